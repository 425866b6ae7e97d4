"""What Airflow stores of a message is what Airflow reads, and no object of a class that a sender chose."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.airflow_runtime.reserved_keys import RESERVED_KEYS
from servicebus_pair.core.receive.message_fields import UnreadableMessageError, check_keys

serde: Any = pytest.importorskip("airflow.sdk.serde", reason="an older Airflow has it elsewhere")
KEYS = ("__type", "__var", "__source", "__classname__", "__version__", "__data__", "__id__", "__cache__", "a")
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.sampled_from(["dict", "builtins.tuple", "x"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)),
    max_leaves=12,
)


@given(VALUES)
def test_what_passes_is_read_as_it_was_written(value: object) -> None:
    try:
        check_keys(value, RESERVED_KEYS)
    except UnreadableMessageError:
        return
    assert serde.deserialize(serde.serialize(value)) == value


@pytest.mark.parametrize("key", sorted(RESERVED_KEYS))
def test_each_key_is_refused_at_any_depth(key: str) -> None:
    for value in ({key: "x"}, {"a": [1, {"b": {key: "x"}}]}):
        with pytest.raises(UnreadableMessageError, match=key):
            check_keys(value, RESERVED_KEYS)
