"""A namespace with its entities, forwarding and shared access policies."""
