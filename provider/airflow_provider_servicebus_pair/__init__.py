"""Lets Airflow find the example DAGs: it looks for them in the module named like the distribution (Airflow 3.3)."""

from __future__ import annotations

import servicebus_pair

__path__ = servicebus_pair.__path__
