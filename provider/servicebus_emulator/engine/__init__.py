"""The broker itself: entities and messages, without any wire."""
