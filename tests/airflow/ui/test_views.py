"""provider/docs/page.md lists every field of the API's JSON."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass

import pytest

from servicebus_pair.ui import views
from tests.airflow.conftest import PROJECT

TEXT = (PROJECT / "provider" / "docs" / "page.md").read_text()
ROWS = re.findall(r"^\| ((?:each of )?[`\w ,]+) \| (`[^|]+`) \|$", TEXT, re.MULTILINE)
DOCUMENTED = {title: set(re.findall(r"`(\w+)`", names)) for title, names in ROWS}
VIEWS = {
    "a pair": views.PairView,
    "`primary`, `secondary`": views.NamespaceView,
    "each of `entities`": views.EntityView,
    "`backlog`": views.BacklogView,
    "each of `queues`": views.QueueView,
    "each of `dead_letters`": views.DeadLetterView,
    "each of `drift`": views.DriftView,
    "`syphon`": views.SyphonView,
    "each of `drains`": views.DrainView,
    "`spool`": views.SpoolView,
    "each of `elsewhere`": views.OtherSpoolView,
    "`sends`": views.SendsView,
    "`cost`": views.CostView,
    "each of `incidents`": views.IncidentView,
    "each of `runs`": views.RunView,
    "each of `action_log`": views.ActionRecordView,
    "each of `actions`": views.ActionView,
}


@pytest.mark.parametrize("title", VIEWS)
def test_fields_are_documented(title: str):
    assert DOCUMENTED.get(title) == {each.name for each in fields(VIEWS[title])}


def test_no_view_is_missing():
    assert set(VIEWS.values()) == {
        each for each in vars(views).values() if is_dataclass(each) and each.__module__ == views.__name__
    }
