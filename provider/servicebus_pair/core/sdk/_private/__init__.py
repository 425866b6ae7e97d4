"""Uses of azure-servicebus' private names: an optimisation, taken only where ``capabilities.fast_path()`` allows it."""
