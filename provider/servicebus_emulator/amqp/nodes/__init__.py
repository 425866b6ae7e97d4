"""What links attach to: entities, ``$management`` and ``$cbs``."""
