"""``ServiceBusPairCleanupOperator``: deletes backlog queues that are no longer needed and empty."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from airflow.sdk import Context, XComArg

from servicebus_pair.airflow_runtime.validators import boolean, choice, optional_path_list
from servicebus_pair.core import CleanupReport
from servicebus_pair.core.errors import ConfigurationError, PairError
from servicebus_pair.operators._support.base import AsyncPairOperator

__all__ = ["BacklogCleanupError", "ServiceBusPairCleanupOperator"]

_EXTRA: Final = "extra"
_ALL: Final = "all"
_scope = choice(_EXTRA, _ALL)


class BacklogCleanupError(PairError):
    """Some queues could not be checked or deleted; a retry continues with them."""

    retriable = True


class ServiceBusPairCleanupOperator(AsyncPairOperator):
    """Deletes backlog queues of the secondary on request (SPEC section 3).

    A queue that holds messages is kept. An empty one is disabled for sends, counted again and only then deleted; if a
    message arrived in between, it is enabled again and kept. Idempotent. Needs the Manage right on the secondary.

    The result is ``{"plan_only": bool, "planned": [...], "deleted": [...], "kept": {name: messages},
    "failed": {name: reason}, "counts": {"planned": n, "deleted": n, "kept": n, "failed": n}}``.

    :param what: ``extra`` for queues with an index beyond the connection's ``backlog_queue_count``, ``all`` for every
        backlog queue of the pair, to decommission it (templated).
    :param only: delete only these of them, such as the approved ``planned`` queues of a dry run; a list, or a text
        with commas; no restriction when not given or an empty text, which the result of a task may not be (templated).
    :param plan_only: a dry run: only list the queues that would be checked (templated).
    :param force: delete queues that hold messages too; **those messages are lost** (templated).
    :param servicebus_pair_conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is invalid; nothing was done.
    :raises BacklogCleanupError: queues could not be checked or deleted.
    :raises ServiceError: the secondary's administration cannot be reached.
    """

    template_fields = ("what", "only", "plan_only", "force")
    parameter_checks: ClassVar = {"what": _scope, "only": optional_path_list, "plan_only": boolean, "force": boolean}

    def __init__(
        self,
        *,
        what: str = _EXTRA,
        only: Sequence[str] | str | XComArg | None = None,
        plan_only: bool | str = False,
        force: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.what = what
        self.only = only
        self._only_is_result = hasattr(only, "resolve")
        self.plan_only = plan_only
        self.force = force
        self.check_parameters()

    async def aexecute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  the base class passes it
        """Delete the queues, or list them."""
        everything = _scope("what", self.what) == _ALL
        plan_only, force = boolean("plan_only", self.plan_only), boolean("force", self.force)
        if self._only_is_result and self.only in (None, ""):
            raise ConfigurationError(
                f"only is {self.only!r}: the task that names the queues has no result; nothing was deleted"
            )
        only = optional_path_list("only", self.only)
        async with self.hook.pair() as pair:
            planned = await pair.plan_cleanup(everything=everything, only=only)
            for queue in planned:
                self.log.info("queue=%s is %s: %s", queue, self.what, "planned" if plan_only else "checked")
            report = CleanupReport()
            if not plan_only:
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
        lists = {"planned": list(planned), "deleted": list(report.deleted)}
        found = {**lists, "kept": dict(report.kept), "failed": dict(report.failed)}
        return {"plan_only": plan_only, **found, "counts": {name: len(queues) for name, queues in found.items()}}
