"""Extra links of tasks to the page of the pairs and to the Azure portal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import DAG

from servicebus_pair.links.servicebus_pair import portal_url
from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from tests.airflow.conftest import CONN_ID, UNREACHABLE, RunDag, define_connection
from tests.airflow.ui.support.page_client import api_server_app, auth_header


def links(run: Any) -> dict[str, Any]:
    """The links that Airflow stored for a run, by task and XCom key; an empty text means no link."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    ours = select(XComModel.task_id, XComModel.key, XComModel.value).where(
        XComModel.run_id == run.run_id, XComModel.key.startswith("_link_")
    )
    with create_session() as session:
        return {f"{task}{key}": value for task, key, value in session.execute(ours)}


def links_from_api(run: Any, task_id: str) -> dict[str, Any]:
    """The links of a task in the API server's response, by name."""
    path = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances/{task_id}/links"
    with api_server_app() as client:
        found: dict[str, Any] = client.get(path, headers=auth_header(client, "admin")).json()["extra_links"]
    return found


@pytest.mark.parametrize(
    ("side", "make"),
    [
        (
            "secondary",
            lambda: ServiceBusPairProvisionOperator(
                task_id="link", servicebus_pair_conn_id=CONN_ID, on_drift="{{ 'no' }}"
            ),
        ),
        (
            "primary",
            lambda: ServiceBusPairSendOperator(
                task_id="link", servicebus_pair_conn_id=CONN_ID, entity="{{ '' }}", messages=[]
            ),
        ),
    ],
)
@pytest.mark.usefixtures("fresh_state")
def test_with_arm_coordinates_the_portal_link_is_that_of_the_tasks_side(
    run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, side: str, make: Callable[[], Any]
):
    define_connection(
        monkeypatch, {**UNREACHABLE, f"{side}_subscription_id": "0d5c-42", f"{side}_resource_group": "rg"}
    )
    with DAG(f"portal_of_{side}", schedule=None) as dag:
        make()
    run = run_dag(dag)

    assert links(run)["link_link_AzurePortalLink"] == (
        "https://portal.azure.com/#resource/subscriptions/0d5c-42/resourceGroups/rg"
        f"/providers/Microsoft.ServiceBus/namespaces/contoso-{side}/overview"
    )


@pytest.mark.usefixtures("fresh_state")
def test_without_arm_coordinates_a_failed_task_links_only_to_the_page(run_dag: RunDag, monkeypatch: pytest.MonkeyPatch):
    define_connection(monkeypatch, UNREACHABLE)
    with DAG("linked", schedule=None) as dag:
        ServiceBusPairProvisionOperator(task_id="provision", servicebus_pair_conn_id=CONN_ID, on_drift="{{ 'no' }}")
    run = run_dag(dag)

    stored, links_by_name = links(run), links_from_api(run, "provision")
    assert stored["provision_link_PairPageLink"].endswith("/plugin/servicebus-pairs")
    assert stored["provision_link_AzurePortalLink"] == ""
    assert links_by_name["Service Bus pairs"].endswith("/plugin/servicebus-pairs")
    assert links_by_name["Azure portal"] is None


@pytest.mark.usefixtures("fresh_state")
def test_a_missing_connection_is_reported_once(run_dag: RunDag, capfd: pytest.CaptureFixture[str]):
    with DAG("unknown", schedule=None) as dag:
        ServiceBusPairProvisionOperator(task_id="provision", servicebus_pair_conn_id="unknown_pair")

    assert links(run_dag(dag))["provision_link_AzurePortalLink"] == ""
    assert capfd.readouterr().out.count("AirflowNotFoundException: ") == 1


@pytest.mark.parametrize(
    ("cloud", "portal"),
    [
        (None, "https://portal.azure.com"),
        ("https://management.azure.com/", "https://portal.azure.com"),
        ("https://management.usgovcloudapi.net", "https://portal.azure.us"),
        ("https://management.chinacloudapi.cn", "https://portal.azure.cn"),
    ],
)
def test_the_portal_is_that_of_the_management_endpoints_cloud(cloud: str | None, portal: str):
    address = portal_url(subscription_id="s", resource_group="r g", namespace="contoso", management_endpoint=cloud)

    assert address == (
        f"{portal}/#resource/subscriptions/s/resourceGroups/r%20g"
        "/providers/Microsoft.ServiceBus/namespaces/contoso/overview"
    )


def test_an_unknown_cloud_has_no_portal():
    assert not portal_url(
        subscription_id="s", resource_group="r", namespace="contoso", management_endpoint="http://127.0.0.1:1"
    )
