"""Requests and responses of Azure Resource Manager, independent of HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import quote

from servicebus_emulator.admin.requests import parse_page
from servicebus_emulator.arm.addresses import PROVIDER, Address, Scope
from servicebus_emulator.arm.errors import ArmError
from servicebus_emulator.arm.json_values import JsonValue, parse_body

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

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Response:
    """A status code and a JSON document; None = no body."""

    status: int
    document: object = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request without its token.

    :ivar origin: scheme, host and port under which the client reached the server.
    :ivar raw_path: the path of the URL as received, percent-encoded.
    :ivar scope: the subscription and the resource group of the emulator.
    :ivar location: that of the namespace, in requests about something in it.
    """

    method: str
    origin: str
    raw_path: str
    query: Mapping[str, str]
    body: bytes
    address: Address
    scope: Scope
    location: str | None = None

    def check_version(self) -> None:
        """Check the API version.

        :raises ArmError: it is missing or unknown.
        """
        version = self.query.get("api-version")
        allowed = ", ".join(API_VERSIONS)
        if version is None:
            raise ArmError(
                400, f"api-version is missing from the query; allowed: {allowed}", code="MissingApiVersionParameter"
            )
        if version not in API_VERSIONS:
            raise ArmError(400, f"api-version is {version!r}; allowed: {allowed}", code="InvalidApiVersionParameter")

    @property
    def document(self) -> JsonValue:
        """The body.

        :raises ArmError: it is not a JSON object.
        """
        return parse_body(self.body)

    def resource(self, *names: str, properties: object) -> dict[str, object]:
        """Return a resource of the requested type: id, name, type and properties.

        :param names: the names on its path, one for each type of the address.
        """
        path = "".join(f"/{kind}/{name}" for kind, name in zip(self.address.types, names, strict=True))
        document: dict[str, object] = {
            "id": f"/subscriptions/{self.scope.subscription}/resourceGroups/{self.scope.resource_group}"
            f"/providers/{PROVIDER}{path}",
            "name": names[-1],
            "type": "/".join((PROVIDER, *self.address.types)),
            "properties": properties,
        }
        return document if self.location is None else {**document, "location": self.location}

    def list_response(self, items: Sequence[T], *, encode: Callable[[T], object]) -> Response:
        """Return the requested page of a list, with a link to the next one.

        :raises InvalidArgument: ``$skip`` or ``$top`` is not a number in its range.
        """
        page = parse_page(self.query)
        end = page.skip + page.top
        document: dict[str, object] = {"value": [encode(item) for item in items[page.skip : end]]}
        if end < len(items):
            version = quote(self.query["api-version"])
            path = f"{self.origin}{self.raw_path}"
            document["nextLink"] = f"{path}?api-version={version}&$skip={end}&$top={page.top}"
        return Response(200, document)
