"""``make demo``: survive an outage of the primary, end to end, with real data.

Exit status: 0 if no message was lost and every message arrived unchanged; 1 if not; 2 if the demo could not run;
130 or 143 if it was interrupted.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from types import FrameType
from typing import NoReturn

import httpx

from tests.system.demo.expected_messages import expected_messages, message_count, read_flights
from tests.system.demo.kill_targets import KILL_TARGETS
from tests.system.demo.layout import PROJECT, Home
from tests.system.demo.processes import StartError, stop_recorded
from tests.system.demo.report import report
from tests.system.demo.scale import MONTH, YEAR, Scale
from tests.system.demo.scenario import Scenario, ScenarioError, start_pipeline
from tests.system.demo.stack import Stack
from tests.system.demo.terminal import Terminal

EXIT_STATUS_BY_SIGNAL = {signal.SIGINT: 130, signal.SIGTERM: 143}


def main() -> int:
    """Run the demo, or stop the processes that an earlier run left running."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave everything running at the end")
    parser.add_argument("--stop", action="store_true", help="stop the processes that --keep left running")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--kill", choices=KILL_TARGETS, help="kill this process as well as the primary")
    which.add_argument("--year", action="store_true", help="publish the whole year and drain the backlog with Spark")
    arguments = parser.parse_args()
    home = Home()
    if arguments.stop:
        names = stop_recorded(home.processes)
        print(f"stopped: {', '.join(names)}" if names else "no process was running")
        return 0
    for number in EXIT_STATUS_BY_SIGNAL:
        signal.signal(number, exit_on_signal)
    return run(home, YEAR if arguments.year else MONTH, keep=arguments.keep, kill_target=arguments.kill)


def exit_on_signal(number: int, _frame: FrameType | None) -> NoReturn:
    """Exit once; ignore further signals while the processes are being stopped."""
    for other in EXIT_STATUS_BY_SIGNAL:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(EXIT_STATUS_BY_SIGNAL[signal.Signals(number)])


def run(home: Home, scale: Scale, *, keep: bool, kill_target: str | None) -> int:
    """Run the demo and report; stop all processes at the end unless ``keep`` is set."""
    terminal = Terminal()
    stack = Stack.create(home, dags=PROJECT / "dags")
    keeping = False
    try:
        status = run_scenario(stack, scale, terminal, kill_target=kill_target)
        keeping = keep
    except (StartError, ScenarioError, TimeoutError, httpx.HTTPError) as error:
        print(f"the demo could not continue: {error}", file=sys.stderr)
        status = 2
    finally:
        if not keeping:
            terminal.say("stopping all processes")
            stack.processes.stop()
    if keeping:
        terminal.say(f"Airflow is still running: {stack.airflow.url}, user admin, password {stack.airflow.password}")
        terminal.say(f"Service Bus pairs page: {stack.airflow.url}/plugin/servicebus-pairs")
        terminal.say("to stop it, run: make demo-stop")
    return status


def run_scenario(stack: Stack, scale: Scale, terminal: Terminal, *, kill_target: str | None) -> int:
    """Start the stack, run the scenario, compare, and return the exit status."""
    terminal.say("starting two Service Bus namespaces (contoso, contoso-dr) and Airflow ...")
    api = stack.start()
    terminal.say(f"Airflow: {stack.airflow.url}  user admin  password {stack.airflow.password}")
    recovery, pipeline = start_pipeline(api, scale)
    flights = read_flights(month=scale.month)
    count = message_count(flights)
    terminal.say(f"triggered the DAG {pipeline.dag_id}; it will send {count:,} messages {scale.pace}")
    scenario = Scenario(
        stack, api, terminal, pipeline=pipeline, recovery=recovery, scale=scale, expected=count, kill_target=kill_target
    )
    result = scenario.run()
    base = scheduled_base(home=stack.home)
    expected = expected_messages(flights, month=scale.month, run_id=pipeline.run_id, scheduled_base=base)
    return report(stack, expected, scenario.ledger, result, terminal, after_recovery=scale.in_spark)


def scheduled_base(*, home: Home) -> int:
    """Return the reference time of the run's scheduled messages, in seconds since the epoch."""
    (manifest,) = home.output.glob("*/*/manifest.json")
    return int(json.loads(manifest.read_text())["scheduled_base"])


if __name__ == "__main__":
    sys.exit(main())
