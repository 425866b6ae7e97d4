"""Without a private name that has no public alternative, the import fails with a clear error."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

import pytest
from azure.servicebus import ServiceBusMessageBatch, __version__

from servicebus_pair.core.sdk._private import batch_encoding, message_encoding


@pytest.mark.parametrize(
    ("ours", "module", "name"),
    [
        (message_encoding, "azure.servicebus._pyamqp._encode", "encode_payload"),
        (message_encoding, "azure.servicebus._pyamqp.message", "Message"),
        (batch_encoding, "azure.servicebus.aio._transport._pyamqp_transport_async", "PyamqpTransportAsync"),
    ],
)
def test_without_the_encoder_the_import_fails_naming_version_and_name(
    monkeypatch: pytest.MonkeyPatch, ours: ModuleType, module: str, name: str
) -> None:
    monkeypatch.delattr(importlib.import_module(module), name)
    with pytest.raises(ImportError, match=rf"azure-servicebus {__version__} cannot be used: .*{name}.*; install"):
        import_again(ours)


@pytest.mark.parametrize("name", ["_message", "_amqp_transport"])
def test_without_the_private_attributes_of_a_batch_the_import_fails(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    class Incomplete(ServiceBusMessageBatch):
        def __init__(self) -> None:
            super().__init__()
            delattr(self, name)

    monkeypatch.setattr("azure.servicebus.ServiceBusMessageBatch", Incomplete)
    with pytest.raises(ImportError, match=rf"cannot be used: ServiceBusMessageBatch has no '{name}'"):
        import_again(batch_encoding)


def import_again(module: ModuleType) -> None:
    """Execute a module again under another name."""
    assert module.__file__ is not None
    spec = importlib.util.spec_from_file_location("import_again", module.__file__)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
