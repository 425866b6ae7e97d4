"""Operators, one module each: ``provision``, ``send``, ``syphon`` and ``record``."""

from __future__ import annotations
