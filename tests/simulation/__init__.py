"""Whole histories of a pair in simulated time: the product's code over the embedded engine, without sockets.

The seam is the public interface of azure-servicebus: ``sdk`` stands in for its client, everything above it is the code
that runs in production. ``make simulate HOURS=24 SEED=7`` runs histories and prints what happened; the same seed gives
the same history.
"""
