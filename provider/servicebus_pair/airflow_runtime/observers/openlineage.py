"""Converts a task's lineage to OpenLineage; a separate module because it imports OpenLineage's optional provider.

OpenLineage's naming conventions have no entry for Azure Service Bus. Names follow the general form, in which a
dataset's namespace is ``scheme://authority`` and its name is the path: ``servicebus://contoso.servicebus.windows.net``
and ``flights`` or ``contoso/x-servicebus-transfer/0``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from airflow.providers.openlineage.extractors import OperatorLineage
from attrs import define
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import RunFacet, input_statistics_input_dataset, output_statistics_output_dataset

from servicebus_pair.airflow_runtime.observers.lineage import DEAD_LETTERED, SYPHONED, RouteTotals, TaskLineage
from servicebus_pair.core.events import Route

ROUTES_FACET = "servicebusPair_routes"


@define
class ServicebusPairRoutesRunFacet(RunFacet):
    """Messages and bytes per route; each item has the fields of ``RouteTotals``."""

    routes: list[dict[str, Any]]


def operator_lineage(lineage: TaskLineage) -> OperatorLineage[Any, Any]:
    """Return the datasets that a task read and wrote, with their statistics, and the totals by route."""
    if lineage.hosts is None:  # the task failed before it opened the pair
        return OperatorLineage()
    primary, secondary = (f"servicebus://{host}" for host in lineage.hosts)
    drained = _group_by_path(lineage.totals, lambda each: each.queue, routes={SYPHONED})
    dead_lettered = _group_by_path(lineage.totals, lambda each: each.queue, routes={DEAD_LETTERED})
    delivered = _group_by_path(lineage.totals, lambda each: each.entity, routes={Route.PRIMARY, SYPHONED})
    diverted = _group_by_path(lineage.totals, lambda each: each.queue, routes={Route.BACKLOG})
    read_paths = dict.fromkeys((*lineage.reads, *drained, *dead_lettered))
    written_paths = dict.fromkeys((*lineage.writes, *delivered))
    return OperatorLineage(
        inputs=[_input_dataset(secondary, path, drained.get(path, ())) for path in read_paths],
        outputs=[
            *(_output_dataset(primary, path, delivered.get(path, ())) for path in written_paths),
            *(_output_dataset(secondary, path, totals) for path, totals in diverted.items()),
        ],
        run_facets={ROUTES_FACET: ServicebusPairRoutesRunFacet(routes=lineage.to_json())},
    )


def _group_by_path(
    totals: Iterable[RouteTotals], path_of: Callable[[RouteTotals], str | None], *, routes: Collection[str]
) -> dict[str, list[RouteTotals]]:
    groups: dict[str, list[RouteTotals]] = {}
    for each in totals:
        path = path_of(each)
        if path is not None and each.route in routes:
            groups.setdefault(path, []).append(each)
    return groups


def _input_dataset(namespace: str, path: str, totals: Collection[RouteTotals]) -> InputDataset:
    statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(**_sums(totals))
    return InputDataset(namespace=namespace, name=path, inputFacets={"inputStatistics": statistics})


def _output_dataset(namespace: str, path: str, totals: Collection[RouteTotals]) -> OutputDataset:
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(**_sums(totals))
    return OutputDataset(namespace=namespace, name=path, outputFacets={"outputStatistics": statistics})


def _sums(totals: Collection[RouteTotals]) -> dict[str, Any]:
    return {"rowCount": sum(each.messages for each in totals), "size": sum(each.bytes for each in totals)}
