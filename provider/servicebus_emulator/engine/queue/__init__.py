"""One queue or subqueue: its messages, their delivery order, limits and timers."""
