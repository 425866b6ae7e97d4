"""What a request says and what an answer carries, without HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import quote

from servicebus_emulator.arm.addresses import PROVIDER, Address, Scope
from servicebus_emulator.arm.errors import ArmError
from servicebus_emulator.arm.values import Value, document_of

__all__ = ["API_VERSIONS", "Answer", "Call"]

API_VERSIONS: Final = (
    "2026-01-01",
    "2025-05-01-preview",
    "2024-01-01",
    "2023-01-01-preview",
    "2022-10-01-preview",
    "2022-01-01-preview",
    "2021-11-01",
    "2021-06-01-preview",
    "2021-01-01-preview",
    "2018-01-01-preview",
    "2017-04-01",
)
_PAGE: Final = 100
_MAX_PAGE: Final = 1000
_MAX_SKIP: Final = 2**31 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """A status code and a JSON document; None = nothing to say."""

    status: int
    document: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request, without its token.

    :param origin: scheme, host and port under which the client reached the server.
    :param raw_path: the URL's path as it came, percent-encoded.
    :param scope: the subscription and the resource group that there are.
    """

    method: str
    origin: str
    raw_path: str
    query: Mapping[str, str]
    body: bytes
    address: Address
    scope: Scope

    def check_version(self) -> None:
        """Check the version of the interface that the client speaks.

        :raises ArmError: when it names none, or one that is not known.
        """
        version = self.query.get("api-version")
        allowed = ", ".join(API_VERSIONS)
        if version is None:
            raise ArmError(
                400,
                code="MissingApiVersionParameter",
                message=f"api-version is missing from the query; allowed: {allowed}",
            )
        if version not in API_VERSIONS:
            raise ArmError(
                400, code="InvalidApiVersionParameter", message=f"api-version is {version!r}; allowed: {allowed}"
            )

    @property
    def document(self) -> Value:
        """The body.

        :raises ArmError: when it is no JSON object.
        """
        return document_of(self.body)

    def identify(self, *names: str) -> dict[str, object]:
        """Return how a resource says which it is.

        :param names: its names on the way, one for each type of the address.
        """
        way = "".join(f"/{kind}/{name}" for kind, name in zip(self.address.types, names, strict=True))
        return {
            "id": f"/subscriptions/{self.scope.subscription}/resourceGroups/{self.scope.resource_group}"
            f"/providers/{PROVIDER}{way}",
            "name": names[-1],
            "type": "/".join((PROVIDER, *self.address.types)),
        }

    def list(self, items: Sequence[T], *, show: Callable[[T], object]) -> Answer:
        """Return the part of a list that the client asked for, and where the next part is.

        :raises ArmError: when ``$skip`` or ``$top`` is no number in its range.
        """
        skip = self._number("$skip", default=0, least=0, most=_MAX_SKIP)
        top = self._number("$top", default=_PAGE, least=1, most=_MAX_PAGE)
        end = skip + top
        document: dict[str, object] = {"value": [show(item) for item in items[skip:end]]}
        if end < len(items):
            version = quote(self.query["api-version"])
            path = f"{self.origin}{self.raw_path}"
            document["nextLink"] = f"{path}?api-version={version}&$skip={end}&$top={top}"
        return Answer(200, document)

    def _number(self, name: str, *, default: int, least: int, most: int) -> int:
        text = self.query.get(name)
        if text is None:
            return default
        if re.fullmatch(r"[0-9]{1,10}", text) is None or not least <= int(text) <= most:
            raise ArmError(400, code="BadRequest", message=f"{name} is {text!r}; allowed: {least} .. {most}")
        return int(text)
