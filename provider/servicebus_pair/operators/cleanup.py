"""``ServiceBusPairCleanupOperator``: deletes backlog queues that nobody needs, and none that holds a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from airflow.sdk import Context

from servicebus_pair.core.errors import PairError
from servicebus_pair.core.results import CleanupReport
from servicebus_pair.hooks.waiting import check_names
from servicebus_pair.operators.base import PairOperator
from servicebus_pair.operators.parameters import check_early, choice, flag

__all__ = ["BacklogCleanupError", "ServiceBusPairCleanupOperator"]

_EXTRA: Final = "extra"
_ALL: Final = "all"
_what = choice(_EXTRA, _ALL)


class BacklogCleanupError(PairError):
    """Some queues could not be looked at or deleted; those that were deleted stay so, and a retry does the rest."""

    retriable = True


class ServiceBusPairCleanupOperator(PairOperator):
    """Deletes backlog queues of the secondary on request (SPEC section 3).

    A queue that holds anything is kept. An empty one is closed to senders, counted again and only then
    deleted; if something arrived meanwhile it is opened again and kept. Idempotent. Needs the Manage
    right on the secondary.

    The result is ``{"plan_only": bool, "planned": [...], "deleted": [...], "kept": {name: messages},
    "failed": {name: reason}, "counts": {"planned": n, "deleted": n, "kept": n, "failed": n}}``.

    :param what: ``extra`` for queues with an index beyond the count of the connection, ``all`` for every
        backlog queue of this pair, as when the pair is given up (templated).
    :param only: of those, only the queues named here, such as the ``planned`` ones of a dry run that
        somebody approved; any when not given (templated).
    :param plan_only: a dry run: only tell which queues would be looked at (templated).
    :param force: delete them with the messages that they hold: **those are lost** (templated).
    :param conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is wrong; nothing was done.
    :raises BacklogCleanupError: queues could not be looked at or deleted.
    :raises ServiceError: the secondary's administration cannot be reached.
    """

    template_fields = ("what", "only", "plan_only", "force")

    def __init__(
        self,
        *,
        what: str = _EXTRA,
        only: Sequence[str] | None = None,
        plan_only: bool | str = False,
        force: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.what = what
        self.only = only
        self.plan_only = plan_only
        self.force = force
        check_early("what", what, _what)
        check_early("plan_only", plan_only, flag)
        check_early("force", force, flag)
        if only is not None:
            check_early("only", only, check_names)

    async def aexecute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  the base class hands it over
        """Delete, or tell the plan."""
        everything = _what("what", self.what) == _ALL
        only_plan, force = flag("plan_only", self.plan_only), flag("force", self.force)
        only = None if self.only is None else check_names("only", self.only)
        async with self.hook.pair() as pair:
            planned = await pair.plan_cleanup(everything=everything, only=only)
            for queue in planned:
                self.log.info("queue=%s is %s: %s", queue, self.what, "planned" if only_plan else "looked at")
            report = CleanupReport()
            if not only_plan:
                report = await pair.cleanup(everything=everything, force=force, only=only)
        for queue in report.deleted:
            self.log.info("queue=%s was deleted", queue)
        for queue, held in report.kept.items():
            self.log.warning("queue=%s is kept: it holds %d messages; drain it first", queue, held)
        if report.failed:
            raise BacklogCleanupError(
                f"{len(report.failed)} backlog queues could not be deleted ({dict(report.failed)}); "
                f"{len(report.deleted)} were, {len(report.kept)} hold messages and are kept"
            )
        return {
            "plan_only": only_plan,
            "planned": list(planned),
            "deleted": list(report.deleted),
            "kept": dict(report.kept),
            "failed": dict(report.failed),
            "counts": {
                "planned": len(planned),
                "deleted": len(report.deleted),
                "kept": len(report.kept),
                "failed": len(report.failed),
            },
        }
