"""Health of entities: registry, prober, and failback in session order."""
