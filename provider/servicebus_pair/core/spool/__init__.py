"""The third rung: messages that neither namespace took, kept on a mount or in an object store (SPEC section 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicebus_pair._lazy import lazy_exports

if TYPE_CHECKING:
    from servicebus_pair.core.spool.folder_storage import SHARED_MODE, FolderStorage, replace_file
    from servicebus_pair.core.spool.location import open_storage
    from servicebus_pair.core.spool.spool import SpooledEntity, open_spool

__all__ = ["SHARED_MODE", "FolderStorage", "SpooledEntity", "open_spool", "open_storage", "replace_file"]

__getattr__ = lazy_exports(
    __name__,
    {
        "folder_storage": ["SHARED_MODE", "FolderStorage", "replace_file"],
        "location": ["open_storage"],
        "spool": ["SpooledEntity", "open_spool"],
    },
)
