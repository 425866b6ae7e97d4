"""``make demo``: an outage survived, end to end, on real data.

Exit status: 0 when nothing is lost and every message arrived as it was sent; 1 when not; 2 when the demo itself could
not run; 130 and 143 when it was interrupted.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

import httpx

from tests.system.demo.flights import expected_messages, message_count, read_flights
from tests.system.demo.killing import VICTIMS
from tests.system.demo.layout import PROJECT, Home
from tests.system.demo.processes import StartError, stop_recorded
from tests.system.demo.report import report
from tests.system.demo.scale import MONTH, YEAR
from tests.system.demo.stack import Stack
from tests.system.demo.story import Story, StoryError, begin
from tests.system.demo.terminal import Terminal

if TYPE_CHECKING:
    from types import FrameType

    from tests.system.demo.scale import Scale

STOPPED_BY = {signal.SIGINT: 130, signal.SIGTERM: 143}


def main() -> int:
    """Run the demo, or stop what an earlier one left running."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave everything running at the end")
    parser.add_argument("--stop", action="store_true", help="stop what a run with --keep left running")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--kill", choices=VICTIMS, help="let something else die besides the primary")
    which.add_argument("--year", action="store_true", help="publish the whole year, and bring it home in Spark")
    arguments = parser.parse_args()
    home = Home()
    if arguments.stop:
        names = stop_recorded(home.processes)
        print(f"stopped: {', '.join(names)}" if names else "nothing was running")
        return 0
    for number in STOPPED_BY:
        signal.signal(number, leave)
    return run(home, YEAR if arguments.year else MONTH, keep=arguments.keep, victim=arguments.kill)


def leave(number: int, _frame: FrameType | None) -> NoReturn:
    """End the demo, once: while it stops what it started, further signals change nothing."""
    for other in STOPPED_BY:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(STOPPED_BY[signal.Signals(number)])


def run(home: Home, scale: Scale, *, keep: bool, victim: str | None) -> int:
    """Play the demo and report; stop everything at the end unless it is to be kept."""
    terminal = Terminal()
    stack = Stack.lay(home, dags=PROJECT / "dags")
    keeping = False
    try:
        status = play(stack, scale, terminal, victim=victim)
        keeping = keep
    except (StartError, StoryError, TimeoutError, httpx.HTTPError) as error:
        print(f"the demo could not go on: {error}", file=sys.stderr)
        status = 2
    finally:
        if not keeping:
            terminal.say("stopping everything that was started")
            stack.processes.stop()
    if keeping:
        terminal.say(f"left running: {stack.airflow.url}, user admin, password {stack.airflow.password}")
        terminal.say(f"the page of the pair: {stack.airflow.url}/plugin/servicebus-pairs")
        terminal.say("stop it with: make demo-stop")
    return status


def play(stack: Stack, scale: Scale, terminal: Terminal, *, victim: str | None) -> int:
    """Start the stack, play the story, compare, and return the exit status."""
    terminal.say("starting two Service Bus namespaces (contoso, contoso-dr) and Airflow ...")
    api = stack.start()
    terminal.say(f"Airflow: {stack.airflow.url}  user admin  password {stack.airflow.password}")
    recovery, pipeline = begin(api, scale)
    flights = read_flights(month=scale.month)
    count = message_count(flights)
    terminal.say(f"triggered the DAG {pipeline.dag_id}; {count:,} messages are to be sent, {scale.pace}")
    story = Story(
        stack, api, terminal, pipeline=pipeline, recovery=recovery, scale=scale, expected=count, victim=victim
    )
    played = story.play()
    base = scheduled_base(home=stack.home)
    expected = expected_messages(flights, month=scale.month, run_id=pipeline.run_id, scheduled_base=base)
    return report(stack, expected, story.ledger, played, terminal, at_the_end=scale.in_spark)


def scheduled_base(*, home: Home) -> int:
    """Return the moment from which the run counted its scheduled times, in seconds since the epoch."""
    (manifest,) = home.output.glob("*/manifest.json")
    return int(json.loads(manifest.read_text())["scheduled_base"])


if __name__ == "__main__":
    sys.exit(main())
