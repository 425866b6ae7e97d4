"""Data sources of the page: namespaces, connections and Airflow's metadata database."""
