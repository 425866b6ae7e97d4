"""State shared through Airflow's state stores: entity health and the index of entity names."""
