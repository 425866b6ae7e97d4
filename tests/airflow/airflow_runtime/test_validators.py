"""Parameters of operators, sensors and triggers are checked at parse time and again after rendering."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.triggers.backlog import BacklogTrigger
from tests.airflow.conftest import CONN_ID, UNREACHABLE, LogOfFailure, define_connection
from tests.airflow.support.tasks import backlog_sensor, cleanup, cost, drain, drill, fail_over, provision, send


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: provision(on_drift="ignore"), "on_drift is 'ignore': allowed are warn, fail"),
        (lambda: provision(plan_only="perhaps"), "plan_only is 'perhaps': allowed are true and false"),
        (lambda: cleanup(what="some"), "what is 'some': allowed are extra, all"),
        (
            lambda: cleanup(only="a,,b"),
            "only is 'a,,b': it must be a list of paths of at least one character, or a text",
        ),
        (lambda: cleanup(only=[3]), r"only is \[3\]: it must be a list of paths"),
        (lambda: fail_over(entities=[]), "entities is .*: it must be the path of a queue or topic, or a list of them"),
        (lambda: fail_over(entities=["a", 1]), "entities is 1: it must be the path"),
        (lambda: fail_over(reason=" "), "reason is ' ': it must be a text of at least one character"),
        (lambda: fail_over(hold=-1), "hold is -1: it must be a timedelta or a number of seconds, from 0 to 604800 s"),
        (lambda: drill(messages=0), "messages is 0: it must be a whole number from 1 to 10000"),
        (lambda: drill(messages="many"), "messages is 'many': it must be a whole number"),
        (lambda: drill(limit=True), "limit is True: it must be a timedelta or a number of seconds, from 1 to 3600 s"),
        (lambda: cost(period="a month"), "period is 'a month': it must be a timedelta or a number of seconds"),
        (lambda: cost(before=-1), "before is -1: it must be a whole number from 0"),
        (lambda: send(messages=None), "no source given: allowed is one of messages, json_lines, path"),
        (lambda: send(messages=["a"], path="b"), "messages and path given: allowed is one of"),
        (lambda: send(messages=["a", {"bodi": "b"}]), r"messages\[1\]: field 'bodi' is unknown"),
        (lambda: send(messages="a"), "messages is str: it must be a list"),
        (lambda: send(defaults={"body": "b"}), "defaults: field 'body' is unknown"),
        (lambda: send(entity=""), "entity is '': it must be the path of a queue or topic"),
        (lambda: send(entity=5), "entity is 5: it must be the path of a queue or topic"),
        (lambda: send(timeout=0), "timeout is 0: it must be a timedelta or a number of seconds, from 0.001 s"),
        (lambda: send(timeout="soon"), "timeout is 'soon': it must be a timedelta or a number of seconds"),
        (lambda: send(timeout=float("nan")), "timeout is nan: it must be"),
        (lambda: send(path=5), "path is 5: it must be a path or URL, such as s3://bucket/name"),
        (lambda: send(ledger=3), "ledger is 3: it must be a path or URL"),
        (lambda: drain(queues=3), "queues is 3: it must be a list of paths"),
        (lambda: drain(deferrable="yes"), "deferrable is 'yes': allowed are True and False"),
        (lambda: drain(continuous=True, plan_only=True), "plan_only and continuous are true: a dry run ends"),
        (lambda: drain(time_to_live="never"), "time_to_live is 'never': allowed are restart, elapse"),
        (lambda: drain(burst=timedelta(0)), "burst is .*: it must be a timedelta or a number .* from 1 to 86400 s"),
        (lambda: drain(plan_only="maybe"), "plan_only is 'maybe': allowed are true and false"),
        (lambda: drain(poll_interval=0), "poll_interval is 0: allowed are 1 to 3600 seconds"),
        *(
            (partial(drain, rate=rate), rf"rate is {re.escape(repr(rate))}: it must be a number of messages a second")
            for rate in (0, -1, "-1", "many", float("inf"), float("nan"), True, [5])
        ),
        (lambda: backlog_sensor(until="empty"), "until is 'empty': allowed are drained, filled"),
        (lambda: backlog_sensor(messages=-1), "messages is -1: it must be a whole number from 0"),
        (lambda: backlog_sensor(messages="few"), "messages is 'few'"),
        (lambda: backlog_sensor(age="old"), "age is 'old': it must be a timedelta or a number of seconds"),
        (lambda: backlog_sensor(age=timedelta(0)), "age is .*: it must be a timedelta or a number of seconds, from"),
        (lambda: backlog_sensor(poke_interval=0), "poke_interval is 0: allowed are 1 to 3600 seconds"),
        (
            lambda: BacklogTrigger(servicebus_pair_conn_id=CONN_ID, interval=0),
            "interval is 0: allowed are 1 to 3600 seconds",
        ),
        (
            lambda: BacklogTrigger(servicebus_pair_conn_id=CONN_ID, interval="10"),  # type: ignore[arg-type]  # what is refused
            "interval is '10': allowed are 1 to 3600 seconds",
        ),
        (
            lambda: BacklogTrigger(servicebus_pair_conn_id=CONN_ID, repeat=5),
            "repeat is 5: it must be a timedelta or a number of seconds, from 10 s",
        ),
        (lambda: BacklogTrigger(servicebus_pair_conn_id=CONN_ID, repeat=math.nan), "repeat is nan"),
        *(
            (partial(provision, servicebus_pair_conn_id=conn_id), "servicebus_pair_conn_id is .*: it names assets")
            for conn_id in ("{{ params.conn }}", "", "a..b", ".a", "contoso.failover", 5)
        ),
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
        (lambda: drain(rate="{{ 'many' }}"), "rate is 'many': it must be a number of messages a second above 0"),
        (lambda: drain(rate="{{ 'nan' }}"), "rate is 'nan': it must be a number of messages a second above 0"),
        (lambda: cost(outage=31 * 86_400), "outage is 31 days, 0:00:00: it must not be longer than the period"),
    ],
)
def test_invalid_rendered_parameters_fail_before_connecting(
    log_of_failure: LogOfFailure, monkeypatch: pytest.MonkeyPatch, make: Any, message: str
):
    define_connection(monkeypatch, UNREACHABLE)

    assert re.search(message, log_of_failure(make))
