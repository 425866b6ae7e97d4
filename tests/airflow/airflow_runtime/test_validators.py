"""Operator parameters are checked at parse time and again after rendering."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from servicebus_pair.core.model.errors import ConfigurationError
from tests.airflow.conftest import CONN_ID, RunDag
from tests.airflow.support.tasks import cleanup, cost, drill, fail_over, log_of_failed_task, provision


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: provision(on_drift="ignore"), "on_drift is 'ignore': allowed are warn, fail"),
        (lambda: provision(plan_only="perhaps"), "plan_only is 'perhaps': allowed are true and false"),
        (lambda: cleanup(what="some"), "what is 'some': allowed are extra, all"),
        (lambda: cleanup(only="a"), "only is 'a': it must be a list of paths"),
        (lambda: fail_over(entities=[]), "entities is .*: it must be the path of a queue or topic, or a list of them"),
        (lambda: fail_over(entities=["a", 1]), "entities is 1: it must be the path"),
        (lambda: fail_over(reason=" "), "reason is ' ': it must be a text of at least one character"),
        (lambda: fail_over(hold=-1), "hold is -1: it must be a timedelta or a number of seconds, from 0 to 604800 s"),
        (lambda: drill(messages=0), "messages is 0: it must be a whole number from 1 to 10000"),
        (lambda: drill(messages="many"), "messages is 'many': it must be a whole number"),
        (lambda: drill(limit=True), "limit is True: it must be a timedelta or a number of seconds, from 1 to 3600 s"),
        (lambda: cost(period="a month"), "period is 'a month': it must be a timedelta or a number of seconds"),
        (lambda: cost(before=-1), "before is -1: it must be a whole number from 0"),
    ],
)
def test_invalid_parameters_are_refused_at_parse_time(make: Any, message: str):
    with pytest.raises(ConfigurationError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: provision(on_drift="{{ 'ignore' }}"), "on_drift is 'ignore': allowed are warn, fail"),
        (lambda: cleanup(what="{{ 'some' }}"), "what is 'some': allowed are extra, all"),
        (lambda: fail_over(hold="{{ 'long' }}"), "hold is 'long': it must be a timedelta or a number of seconds"),
        (lambda: drill(messages="{{ 10 ** 6 }}"), "messages is '1000000': it must be a whole number from 1 to 10000"),
        (lambda: cost(ledger="nowhere"), "ledger 'nowhere' is not a folder"),
        (lambda: cost(operations={"sent": 1}), "operations: 'sent' is unknown: allowed are sends, diverts"),
        (lambda: cost(prices={"as_of": "today"}), "prices has .*: it must be a mapping with as_of, currency, tiers"),
        (lambda: cost(outage=31 * 86_400), "outage is 31 days, 0:00:00: it must not be longer than the period"),
    ],
)
def test_invalid_rendered_parameters_fail_before_connecting(
    run_dag: RunDag, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, make: Any, message: str
):
    unresolvable = "Endpoint=sb://{};SharedAccessKeyName=n;SharedAccessKey=k"
    extra = {f"{side}_connection_string": unresolvable.format(f"{side}.invalid") for side in ("primary", "secondary")}
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", json.dumps({"conn_type": "servicebus_pair", "extra": extra}))

    assert re.search(message, log_of_failed_task(run_dag, capfd, make))
