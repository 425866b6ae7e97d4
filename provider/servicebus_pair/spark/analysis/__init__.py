"""Analyses of ledger and queues by Spark: reconciliation, costs, backlog profile."""
