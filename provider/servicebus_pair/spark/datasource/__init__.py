"""The data source ``servicebus``: readers, writers and their options."""
