"""The administration API of a namespace: Atom over HTTP, as the official clients speak it."""
