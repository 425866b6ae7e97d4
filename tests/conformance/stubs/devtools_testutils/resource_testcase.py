"""Names of the arguments that preparers pass to tests."""

from __future__ import annotations

from typing import Final

RESOURCE_GROUP_PARAM: Final = "resource_group"
