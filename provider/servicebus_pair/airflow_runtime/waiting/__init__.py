"""Waiting for the primary or the backlog; all waiters of a process share one open pair per connection."""
