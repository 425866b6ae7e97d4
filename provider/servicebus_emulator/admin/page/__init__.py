"""The web page of one namespace: its entities, their messages, and faults."""
