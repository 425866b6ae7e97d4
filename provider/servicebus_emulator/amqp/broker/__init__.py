"""One running namespace: the broker behind its connections, and its injected faults."""
