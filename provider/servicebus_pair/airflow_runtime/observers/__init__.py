"""Observers of a pair: task activity, metrics, lineage and asset events."""
