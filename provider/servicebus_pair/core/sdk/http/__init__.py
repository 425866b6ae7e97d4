"""HTTP to services that may be in other hands."""
