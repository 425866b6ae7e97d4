"""The lineage of a task in the words of OpenLineage; imported only where its provider asks for it.

OpenLineage's naming rules have no entry for Azure Service Bus, so these names follow their general form, in which the
namespace of a dataset is ``scheme://authority`` and its name the path: ``servicebus://contoso.servicebus.windows.net``
and ``flights`` or ``contoso/x-servicebus-transfer/0``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from airflow.providers.openlineage.extractors import OperatorLineage
from attrs import define
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import RunFacet, input_statistics_input_dataset, output_statistics_output_dataset

from servicebus_pair.core.events import Route
from servicebus_pair.hooks.lineage import DEAD_LETTERED, SYPHONED, Moved, TaskLineage

__all__ = ["ROUTES_FACET", "ServicebusPairRoutesRunFacet", "operator_lineage"]

ROUTES_FACET = "servicebusPair_routes"


@define
class ServicebusPairRoutesRunFacet(RunFacet):
    """How many messages and bytes took which route; each item has the fields of ``hooks.lineage.Moved``."""

    routes: list[dict[str, Any]]


def operator_lineage(lineage: TaskLineage) -> OperatorLineage[Any, Any]:
    """Return the datasets that a task read and wrote, with statistics, and the counts by route."""
    if lineage.hosts is None:  # it never came to its work
        return OperatorLineage()
    primary, secondary = (f"servicebus://{host}" for host in lineage.hosts)
    taken = _by(lineage.moved, lambda each: each.queue, routes={SYPHONED})
    given_up = _by(lineage.moved, lambda each: each.queue, routes={DEAD_LETTERED})
    arrived = _by(lineage.moved, lambda each: each.entity, routes={Route.PRIMARY, SYPHONED})
    diverted = _by(lineage.moved, lambda each: each.queue, routes={Route.BACKLOG})
    return OperatorLineage(
        inputs=[
            _read(secondary, path, taken.get(path, ())) for path in dict.fromkeys((*lineage.reads, *taken, *given_up))
        ],
        outputs=[
            *(_written(primary, path, arrived.get(path, ())) for path in dict.fromkeys((*lineage.writes, *arrived))),
            *(_written(secondary, path, moved) for path, moved in diverted.items()),
        ],
        run_facets={ROUTES_FACET: ServicebusPairRoutesRunFacet(routes=lineage.carry())},
    )


def _by(
    moved: Iterable[Moved], place: Callable[[Moved], str | None], *, routes: Collection[str]
) -> dict[str, list[Moved]]:
    """Group what took one of ``routes`` by where it was."""
    found: dict[str, list[Moved]] = {}
    for each in moved:
        path = place(each)
        if path is not None and each.route in routes:
            found.setdefault(path, []).append(each)
    return found


def _read(namespace: str, queue: str, moved: Collection[Moved]) -> InputDataset:
    messages, size = _sums(moved)
    statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=messages, size=size)
    return InputDataset(namespace=namespace, name=queue, inputFacets={"inputStatistics": statistics})


def _written(namespace: str, path: str, moved: Collection[Moved]) -> OutputDataset:
    messages, size = _sums(moved)
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=messages, size=size)
    return OutputDataset(namespace=namespace, name=path, outputFacets={"outputStatistics": statistics})


def _sums(moved: Collection[Moved]) -> tuple[int, int]:
    return sum(each.messages for each in moved), sum(each.bytes for each in moved)
