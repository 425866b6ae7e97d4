"""Sizes of the pages of a Parquet file, from their headers: a page of a few bytes may unpack to gigabytes.

The metadata of a file says its own; readers believe the headers, which are structures of Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, Final

_MAX_HEADER_BYTES: Final = 65_536
_MAX_DEPTH: Final = 16
_UNPACKED, _PACKED, _DICTIONARY = 0x2, 0x3, 0x7  # fields
_VALUES: Final = 0x1  # of a page, in the structure about its kind
_BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0x3, 0x7, 0x8, 0x9, 0xA, 0xB, 0xC


def page_sizes(file: BinaryIO, metadata: Any) -> Iterator[int]:
    """Yield how many bytes each page has when it is unpacked.

    :param metadata: of the file, as pyarrow reads it.
    :raises ValueError: a header is damaged.
    """
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            offsets = (column.dictionary_page_offset, column.data_page_offset)
            start = min(each for each in offsets if each is not None)
            end = start + column.total_compressed_size
            while start < end:
                file.seek(start)
                header = _Reader(file.read(_MAX_HEADER_BYTES))
                try:
                    fields = header.struct()
                except IndexError:
                    raise ValueError("the header of a page is cut off") from None
                if min(start, fields.get(_PACKED, -1), fields.get(_UNPACKED, -1)) < 0:
                    raise ValueError("the header of a page has no sizes")
                # Readers make room for them before they read one.
                if not 0 <= fields.get(_DICTIONARY, 0) <= fields[_UNPACKED]:
                    raise ValueError("a dictionary has more values than bytes")
                yield fields[_UNPACKED]
                start += header.position + fields[_PACKED]


class _Reader:
    """Reads one structure. :raises IndexError: it is cut off."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.position = 0

    def struct(self, depth: int = 0) -> dict[int, int]:
        """Return the whole numbers of a structure by field, and of a structure in it how many values a page has."""
        if depth > _MAX_DEPTH:
            raise ValueError("the header of a page is nested too deeply")
        fields: dict[int, int] = {}
        number = 0
        while (head := self._byte()) & 0x0F:
            delta, kind = head >> 4, head & 0x0F
            number = number + delta if delta else self._number()
            value = self._value(kind, depth)
            if value is not None:
                fields[number] = value
        return fields

    def _value(self, kind: int, depth: int) -> int | None:
        if kind == _STRUCT:
            return self.struct(depth + 1).get(_VALUES)
        if kind in {_LIST, _SET, _MAP}:
            raise ValueError("the header of a page has a list")  # none is defined
        if kind == _BINARY:
            length = self._varint()  # first, because it moves the position
            self.position += length
        elif kind == _DOUBLE:
            self.position += 8
        elif kind >= _BYTE:  # below are true and false, without a value
            return self._byte() if kind == _BYTE else self._number()
        return None

    def _byte(self) -> int:
        self.position += 1
        return self._content[self.position - 1]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
