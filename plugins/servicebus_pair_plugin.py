"""For deployments that load plugins from a folder and do not install the distribution.

An installed distribution registers the plugin by its entry point; then this file adds nothing.
"""

from __future__ import annotations

from importlib.metadata import entry_points

if not entry_points(group="airflow.plugins", name="servicebus_pair"):
    from servicebus_pair.ui.plugin import ServiceBusPairPlugin

    __all__ = ["ServiceBusPairPlugin"]
