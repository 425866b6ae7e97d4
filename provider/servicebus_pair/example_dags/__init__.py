"""Example DAGs; they need no edits, and ``[core] load_examples`` shows them in Airflow."""
