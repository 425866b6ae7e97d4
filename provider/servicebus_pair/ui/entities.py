"""How each entity is, from what tasks shared, what they noted, and what waits in the backlog. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from servicebus_pair.core.health import EntityHealth
from servicebus_pair.hooks.health import HEALTH_KEY_PREFIX
from servicebus_pair.ui.looking import Peeked
from servicebus_pair.ui.records import Note
from servicebus_pair.ui.snapshot import EntityView

__all__ = ["entities_of"]

# Who finds failovers without a person or a drill.
_AUTOMATIC: Final = ("send", "publish")
_DIVERTED: Final = "Its messages are in the backlog, and no task has told of a failover: a sender outside Airflow."
_SENT: Final = "What tasks sent to it was accepted."


def entities_of(state: Mapping[str, Any], peeked: Peeked, notes: Sequence[Note], *, grace: float) -> list[EntityView]:
    """Return all entities of which anything is known, by path.

    :param state: of the pair's asset.
    :param notes: of tasks of the last day.
    :param grace: seconds after a recovery in which senders may not have heard of it.
    """
    seen: dict[str, Counter[str]] = {}
    for note in notes:
        for entity, (primary, backlog) in note.notes.get("entities", {}).items():
            seen.setdefault(entity, Counter()).update(primary=primary, backlog=backlog)
        for entity, home in note.notes.get("home", {}).items():
            seen.setdefault(entity, Counter()).update(home=home)
    healths = {
        key.removeprefix(HEALTH_KEY_PREFIX): value for key, value in state.items() if key.startswith(HEALTH_KEY_PREFIX)
    }
    found = []
    for name in sorted({*healths, *seen, *peeked.waiting}):
        counts = seen.get(name, Counter())
        view = EntityView(
            entity=name,
            state="unknown",
            waiting=peeked.waiting.get(name),
            primary=counts["primary"],
            backlog=counts["backlog"],
            home=counts["home"],
        )
        found.append(_judged(_shared(view, healths.get(name)), peeked.waits_since.get(name), grace))
    return found


def _shared(view: EntityView, value: Any) -> EntityView:
    """The entity, with the health that tasks shared, if any did."""
    if value is None:
        return view
    try:
        health = EntityHealth.from_json(value)
    except (ValueError, AttributeError) as error:
        return replace(view, state="unreadable", reason=str(error))
    return replace(
        view,
        state=health.state.value,
        since=health.since if health.since > 0 else None,
        by=health.by,
        reason=health.reason,
        by_hand=health.failed_over and health.by not in _AUTOMATIC,
        last_ping=health.last_ping,
        held_until=health.held_until,
    )


def _judged(view: EntityView, waits_since: float | None, grace: float) -> EntityView:
    """The entity, as its messages show it where nobody has told, or not since."""
    if view.state not in ("unknown", "healthy"):
        return view
    if view.waiting and (view.since is None or (waits_since is not None and waits_since > view.since + grace)):
        return replace(view, state="diverted", since=waits_since, by="", reason=_DIVERTED)
    # Health is shared when it changes: who sent directly and shared none found nothing wrong, and so did a syphon.
    if view.state == "unknown" and not view.waiting and (view.home or (view.primary and not view.backlog)):
        return replace(view, state="healthy", reason=_SENT)
    return view
