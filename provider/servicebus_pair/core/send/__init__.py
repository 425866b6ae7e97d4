"""Send messages to the primary or, while an entity is failed over, to the backlog."""
