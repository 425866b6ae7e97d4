"""Airflow DAGs that recover three pairs of namespaces; each starts by itself when its pair needs it."""

from __future__ import annotations

# [START three_pairs]
from servicebus_pair.dags import recovery_dag

recovery_dag(servicebus_pair_conn_id="orders_pair")
recovery_dag(servicebus_pair_conn_id="billing_pair", rate=500)
recovery_dag(servicebus_pair_conn_id="flights.west", schedule=None)
# [END three_pairs]
