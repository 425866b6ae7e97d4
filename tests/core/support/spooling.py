"""A pair with a spool, and namespaces that take nothing."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from servicebus_emulator import Fault, FaultKind, HostedNamespace
from tests.core.support.local_pair import QUICK_OPTIONS, LocalPair, open_local_pair

DOWN = (Fault(kind=FaultKind.REFUSE), Fault(kind=FaultKind.RESET))


def spooling_pair(folder: Path, *entities: str, **changed: Any) -> AbstractAsyncContextManager[LocalPair]:
    options = replace(QUICK_OPTIONS, spool=str(folder), **changed)
    return open_local_pair(*(entities or ("flights",)), options=options)


def stop(*namespaces: HostedNamespace) -> None:
    for namespace in namespaces:
        for fault in DOWN:
            namespace.set_fault(fault)
