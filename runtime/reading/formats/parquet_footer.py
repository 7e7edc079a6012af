"""What a Parquet file's footer says of the chunks of its columns.

pyarrow has the same as `FileMetaData`, but some footers that are damaged end the whole process
there, because it does not catch every exception of its C++ part. The footer is a Thrift structure
in the compact protocol: https://github.com/apache/parquet-format (README, parquet.thrift),
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from querylang.errors import InputError

Fields = dict[int, Any]
"""A structure: its values by number of the field."""

_DEPTH = 32
"""Most structures and lists within each other; a footer has fewer than ten."""

_ROW_GROUPS, _COLUMNS, _DESCRIPTION = 4, 1, 3
_KIND, _ENCODINGS, _PATH, _VALUES, _SIZE, _DICTIONARY = 1, 2, 3, 5, 6, 11
_TEXT, _DELTA_OF_TEXT = 6, 7


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """A column of one row group.

    kind: its physical type, as parquet.thrift numbers them
    values: how many, nulls included
    size: bytes of its pages when they are not compressed
    path: names from the column of the table to this one, with dots
    """

    kind: int
    values: int
    size: int
    path: str
    has_dictionary: bool
    has_delta_encoding: bool

    @property
    def is_text(self) -> bool:
        """Whether its values are of any length."""
        return self.kind == _TEXT


def column_chunks(path: Path) -> list[list[ColumnChunk]]:
    """By row group, the chunks of its columns. Raises InputError for a footer that is damaged."""
    try:
        footer = _Reader(_footer(path)).structure()
        return [[_chunk(column) for column in group[_COLUMNS]] for group in footer[_ROW_GROUPS]]
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: is damaged: its footer cannot be read") from error


def _chunk(column: Fields) -> ColumnChunk:
    found = column[_DESCRIPTION]
    return ColumnChunk(
        int(found[_KIND]),
        int(found[_VALUES]),
        int(found[_SIZE]),
        b".".join(found[_PATH]).decode("utf-8"),
        _DICTIONARY in found,
        _DELTA_OF_TEXT in found[_ENCODINGS],
    )


def _footer(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-8, 2)
        (length,) = struct.unpack("<I", file.read(4))
        file.seek(-8 - length, 2)
        return file.read(length)


class _Reader:
    """Reads values from the bytes of a footer; IndexError or ValueError = they are damaged."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0
        self._depth = 0

    def structure(self) -> Fields:
        """The structure at this place."""
        self._enter()
        fields: Fields = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            # A field of truth values has its value in its type.
            fields[number] = head & 15 == 1 if head & 15 in (1, 2) else self._value(head & 15)
        self._depth -= 1
        return fields

    def _value(self, kind: int) -> Any:
        match kind:
            case 1 | 2 | 3:
                return self._byte()
            case 4 | 5 | 6:
                return self._signed()
            case 7:
                return self._bytes(8)
            case 8:
                return self._bytes(self._number())
            case 9 | 10:
                return self._list()
            case 11:
                return self._map()
            case 12:
                return self.structure()
            case 13:
                return self._bytes(16)
        raise ValueError(f"no type has the number {kind}")

    def _list(self) -> list[Any]:
        self._enter()
        head = self._byte()
        length = head >> 4 if head >> 4 < 15 else self._number()
        found = [self._value(head & 15) for _ in range(length)]
        self._depth -= 1
        return found

    def _map(self) -> list[tuple[Any, Any]]:
        self._enter()
        length = self._number()
        kinds = self._byte() if length else 0
        found = [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(length)]
        self._depth -= 1
        return found

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _DEPTH:
            raise ValueError("too many structures within each other")

    def _byte(self) -> int:
        value = self._data[self._place]
        self._place += 1
        return value

    def _bytes(self, length: int) -> bytes:
        if length > len(self._data) - self._place:
            raise IndexError(length)
        self._place += length
        return self._data[self._place - length : self._place]

    def _number(self) -> int:
        value = shift = 0
        while (byte := self._byte()) & 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number has more than 64 bits")
        return value | byte << shift

    def _signed(self) -> int:
        value = self._number()
        return value >> 1 ^ -(value & 1)
