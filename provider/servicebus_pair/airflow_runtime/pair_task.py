"""Base class of everything that runs as a task on a pair: operators, sensors and the task decorator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

from airflow.sdk import BaseOperator, Context

from servicebus_pair.airflow_runtime.airflow_version import AirflowFailException, AirflowNotFoundException
from servicebus_pair.airflow_runtime.cancellable_run import CancellableRun
from servicebus_pair.airflow_runtime.validators import check_unless_template, no_secret_in
from servicebus_pair.assets import health_alias, pair_asset
from servicebus_pair.core import errors
from servicebus_pair.core.model import get_logger, scrub
from servicebus_pair.hooks.servicebus_pair import DEFAULT_CONN_ID, ServiceBusPairHook
from servicebus_pair.links.servicebus_pair import AzurePortalLink, PairPageLink, Side

ResultT = TypeVar("ResultT")
Check: TypeAlias = Callable[[str, Any], object]
_CONN_ID: Final = "servicebus_pair_conn_id"
# Errors that a later try may not meet, although the core does not repeat the call: a person or a consumer may have
# acted meanwhile, and a new try opens a new pair.
_MAY_PASS: Final = (
    errors.EntityDisabledError,
    errors.HealthStoreError,
    errors.LockLostError,
    errors.NoBacklogQueueError,
    errors.ObserverError,
    errors.PairClosedError,
    errors.QuotaExceededError,
    errors.SendCancelledError,
    errors.SendTimeoutError,
)


def is_permanent(error: BaseException | None) -> bool:
    """Return whether no retry can help, because a person must first change the DAG, the connection or the service."""
    if not isinstance(error, errors.PairError) or isinstance(error, _MAY_PASS):
        return False
    if isinstance(error, errors.SendError):
        return is_permanent(error.cause)
    if isinstance(error, errors.ProvisionError):
        return is_permanent(error.__cause__)
    return not (error.retriable or error.triggers_failover)


@contextmanager
def failing_at_once() -> Iterator[None]:
    """Fail the task without retries on a permanent error; for the methods that Airflow calls.

    :raises AirflowFailException: the error was permanent, or the connection does not exist.
    """
    try:
        yield
    except AirflowNotFoundException as error:
        raise AirflowFailException(str(error)) from error
    except errors.PairError as error:
        if not is_permanent(error):
            raise
        notes = getattr(error, "__notes__", ())
        raise AirflowFailException("; ".join((f"{type(error).__name__}: {error}", *notes))) from error


class PairTask(BaseOperator):
    """A task on a pair of namespaces that can be killed.

    Health is read and shared through the state of the pair's asset, which is therefore an inlet. Asset events of
    failovers and recoveries go through the pair's alias, which is therefore an outlet. Both are added to mapped tasks
    too, whose ``__init__`` does not run when the DAG is parsed.

    :param servicebus_pair_conn_id: the connection of type ``servicebus_pair``. It names assets when the DAG is parsed,
        so it can be neither a template nor mapped.
    :raises ConfigurationError: ``servicebus_pair_conn_id`` is a template, holds a secret, or has characters that asset
        names do not allow.
    """

    operator_extra_links = (PairPageLink(), AzurePortalLink())
    portal_side: ClassVar[Side] = "secondary"
    # The task may detect failovers and recoveries.
    detects_health: ClassVar[bool] = True
    # Of the parameters that the class adds to those of its bases.
    parameter_checks: ClassVar[Mapping[str, Check]] = {}
    # The parameters that are content of messages, which may be anything.
    message_content: ClassVar[Collection[str]] = ()

    def __init__(self, *, servicebus_pair_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        _refuse_old_name(kwargs)
        try:
            super().__init__(**kwargs)
        except TypeError as error:
            # Airflow quotes arguments that it does not know, such as a connection string.
            raise TypeError(scrub(str(error))) from None
        self.servicebus_pair_conn_id = servicebus_pair_conn_id
        self.inlets, self.outlets = self._with_assets(servicebus_pair_conn_id, self.inlets, self.outlets)
        self._cancellable = CancellableRun()

    @classmethod
    def partial(cls, **kwargs: Any) -> Any:
        """Prepare a mapped task: check its parameters, and add the inlets and outlets that ``__init__`` adds.

        :raises ConfigurationError: a parameter is invalid, or the connection is, as in ``__init__``.
        """
        _refuse_old_name(kwargs)
        own_defaults = kwargs.get("default_args") or {}
        checks = cls._all_checks()
        cls._check({name: value for name, value in kwargs.items() if name in checks})
        prepared = super().partial(**kwargs)
        cls.add_assets(prepared.kwargs, prepared.kwargs, own_defaults)
        return prepared

    @classmethod
    def add_assets(
        cls, partial_kwargs: dict[str, Any], place: Mapping[str, Any], own_defaults: Mapping[str, Any]
    ) -> None:
        """Add a mapped task's inlets and outlets to its arguments.

        :param place: its ``dag`` and ``task_group``, whose default arguments may name the connection.
        :param own_defaults: default arguments of the task.
        """
        parents = [getattr(place.get(name), "default_args", None) or {} for name in ("task_group", "dag")]
        given = (source[_CONN_ID] for source in (partial_kwargs, own_defaults, *parents) if _CONN_ID in source)
        conn_id = next(given, DEFAULT_CONN_ID)
        assets = cls._with_assets(conn_id, partial_kwargs.get("inlets"), partial_kwargs.get("outlets"))
        partial_kwargs["inlets"], partial_kwargs["outlets"] = assets
        # Named here, so that Airflow refuses to map over it.
        partial_kwargs[_CONN_ID] = conn_id

    @classmethod
    def _with_assets(cls, conn_id: str, inlets: Any, outlets: Any) -> tuple[list[Any], list[Any]]:
        """Return the inlets and outlets with those of the pair; a mapped task has them already when it runs."""
        added = [health_alias(conn_id)] if cls.detects_health else []
        return _united(inlets, [pair_asset(conn_id)]), _united(outlets, added)

    @classmethod
    def _check(cls, parameters: Mapping[str, Any]) -> None:
        no_secret_in({name: value for name, value in parameters.items() if name not in cls.message_content})
        checks = cls._all_checks()
        for name, value in parameters.items():
            check_unless_template(name, value, checks[name])

    @classmethod
    def _all_checks(cls) -> dict[str, Check]:
        tables = (vars(base).get("parameter_checks", {}) for base in reversed(cls.__mro__))
        return {name: check for table in tables for name, check in table.items()}

    def check_parameters(self) -> None:
        """Check the parameters set so far, except those known at run time only; each ``__init__`` ends with it.

        :raises ConfigurationError: naming the parameter, its value and what is allowed.
        """
        for name in self.template_fields:
            if isinstance(getattr(self, name, None), PurePath):
                # Airflow 3.1 calls the method resolve of all that has one, with the context.
                setattr(self, name, str(getattr(self, name)))
        self._check({name: getattr(self, name) for name in self._all_checks() if hasattr(self, name)})

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        """Render, and refuse secrets before Airflow stores what was rendered."""
        seen_oids.update(map(id, self._returned_values(template_fields)))
        super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)
        with failing_at_once():
            no_secret_in({name: getattr(self, name) for name in self._all_checks() if name not in self.message_content})

    def _returned_values(self, template_fields: Iterable[str]) -> list[object]:
        """Return what another task returned for ``expand_kwargs``, which Airflow would render as templates."""
        dag = getattr(self, "_dag", None)
        mapped: Any = None if dag is None else dag.task_dict.get(self.task_id)
        arguments = getattr(mapped, "op_kwargs_expand_input", None)  # of a decorated function
        source = getattr(mapped, "expand_input", None) if arguments is None else arguments
        if not hasattr(getattr(source, "value", None), "resolve"):
            return []
        own = mapped.partial_kwargs
        if arguments is None:
            given = {name: getattr(self, name, None) for name in template_fields}
            defaults = (getattr(place, "default_args", None) or {} for place in (dag, mapped.task_group))
            sources = (*defaults, own.get("default_args") or {}, own)
            written = {name: value for each in sources for name, value in each.items()}
        else:
            given, written = dict(getattr(self, "op_kwargs", {})), own.get("op_kwargs") or {}
        # As texts, because a task makes one of a path.
        return [value for name, value in given.items() if name not in written or str(written[name]) != str(value)]

    @property
    def log(self) -> Any:
        """The logger of the operator, whose lines nobody can forge."""
        return get_logger(f"{type(self).__module__}.{type(self).__name__}")

    @property
    def hook(self) -> ServiceBusPairHook:
        """The hook of the connection."""
        return ServiceBusPairHook(self.servicebus_pair_conn_id)

    def run_async(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine; a kill or a time limit cancels it, and the pair is closed first."""
        return self._cancellable.run(coroutine)

    def on_kill(self) -> None:
        """Cancel the running coroutine; messages that the primary has not confirmed stay where they are."""
        self._cancellable.cancel()


def _united(given: Any, added: list[Any]) -> list[Any]:
    present = list(given) if isinstance(given, list | tuple) else [given] if given is not None else []
    return [*present, *(each for each in added if each not in present)]


def _refuse_old_name(kwargs: Mapping[str, Any]) -> None:
    if "conn_id" in kwargs:
        raise errors.ConfigurationError(
            f"conn_id is {kwargs['conn_id']!r}: the parameter is servicebus_pair_conn_id, because default_args reach "
            "the operators of other providers too"
        )
