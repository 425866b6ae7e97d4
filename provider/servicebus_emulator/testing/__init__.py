"""Namespaces in processes of their own, for tests that kill, freeze and restart them."""
