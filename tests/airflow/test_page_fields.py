"""The page about the page lists the fields of its JSON, all of them and no others."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from servicebus_pair.ui import snapshot
from tests.airflow.conftest import PROJECT

TEXT = (PROJECT / "provider" / "docs" / "page.md").read_text()
ROWS = re.findall(r"^\| ((?:each of )?[`\w ,]+) \| (`[^|]+`) \|$", TEXT, re.MULTILINE)
LISTED = {title: set(re.findall(r"`(\w+)`", names)) for title, names in ROWS}
OF = {
    "a pair": snapshot.PairView,
    "`primary`, `secondary`": snapshot.NamespaceView,
    "each of `entities`": snapshot.EntityView,
    "`backlog`": snapshot.BacklogView,
    "each of `queues`": snapshot.QueueView,
    "each of `dead_letters`": snapshot.DeadLetterView,
    "each of `drift`": snapshot.DriftView,
    "`syphon`": snapshot.SyphonView,
    "each of `drains`": snapshot.DrainView,
    "`sends`": snapshot.SendsView,
    "`cost`": snapshot.CostView,
    "each of `incidents`": snapshot.IncidentView,
    "each of `runs`": snapshot.RunView,
    "each of `deeds`": snapshot.DeedView,
    "each of `actions`": snapshot.ActionView,
}


@pytest.mark.parametrize("title", OF)
def test_each_part_is_listed_with_its_fields(title: str):
    assert LISTED.get(title) == {each.name for each in fields(OF[title])}


def test_no_part_is_left_out():
    assert {part.__name__ for part in OF.values()} == set(snapshot.__all__)
