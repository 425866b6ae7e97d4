"""Shared by all Spark code: offsets, credential references, redaction, preflight checks, paths, schemas."""
