"""Creating and deleting backlog queues."""
