"""The page as text: what the overview says, escaped, with no script and nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from servicebus_pair.ui.overview import BacklogView, EntityView, PairView

__all__ = ["render"]

_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .3rem 1.2rem .3rem 0; }
th { font-weight: 600; border-bottom: 1px solid gray; }
.healthy { color: #1a7f37; } .suspect { color: #9a6700; } .failed_over, .error { color: #cf222e; }
.quiet { color: gray; }
"""
_FRAME: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="10">
<title>Service Bus pairs</title>
<style>{style}</style>
</head>
<body>
<h1>Service Bus pairs</h1>
{body}
</body>
</html>
"""


def render(pairs: Sequence[PairView]) -> str:
    """Return the page; it loads itself again every 10 s."""
    body = "\n".join(_pair(pair) for pair in pairs)
    if not pairs:
        body = "<p>No connection of type <code>servicebus_pair</code> is known here.</p>"
    return _FRAME.format(style=_STYLE, body=body)


def _pair(pair: PairView) -> str:
    names = f"{escape(pair.primary or '?')} &rarr; {escape(pair.secondary or '?')}"
    return (
        f"<h2>{escape(pair.conn_id)} <span class='quiet'>{names}</span></h2>\n{_backlog(pair.backlog)}\n{_table(pair)}"
    )


def _backlog(backlog: BacklogView) -> str:
    if backlog.error is not None:
        return f"<p class='error'>Backlog: {escape(backlog.error)}</p>"
    return (
        f"<p>Backlog: {backlog.messages:,} messages in {backlog.queues} queues, "
        f"{backlog.dead_lettered:,} dead-lettered</p>"
    )


def _table(pair: PairView) -> str:
    if not pair.entities:
        return "<p class='quiet'>No entity has changed its health yet.</p>"
    head = "".join(f"<th>{name}</th>" for name in ("Entity", "Health", "Since", "By", "Reason"))
    return f"<table><tr>{head}</tr>{''.join(_row(entity) for entity in pair.entities)}</table>"


def _row(entity: EntityView) -> str:
    state = escape(entity.state, quote=True)
    since = datetime.fromtimestamp(entity.since, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if entity.since else ""
    cells = (
        escape(entity.entity),
        f"<span class='{state}'>{state}</span>",
        since,
        escape(entity.by),
        escape(entity.reason),
    )
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
