"""Values of this package are frozen (DESIGN section 5)."""

from __future__ import annotations

from tests.core.support.values import check_values


def test_values_are_frozen_and_have_slots() -> None:
    check_values(
        "sdk",
        mutable={"_Attachment", "_Run"},
        keyword_only={"ClientSecret", "DefaultIdentity", "Identity", "ManagedIdentity"},
    )
