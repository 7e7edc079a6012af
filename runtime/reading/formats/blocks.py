"""A file read block by block, and its bytes split into the records of CSV."""

from __future__ import annotations

import csv
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from runtime.column_types import Integers
from runtime.file_forms import shortened

BLOCK = 4 << 20
"""How many bytes are read at a time, at least: few enough for the processor's caches."""


class Blocks:
    """A file that is being read.

    waiting: what was read and not yet taken
    is_end: nothing follows what is waiting
    line: the number of the line with which it begins
    """

    def __init__(self, file: BinaryIO, size: int = BLOCK) -> None:
        self._file = file
        self._size = size
        self._has_returns_only = False
        self.waiting = b""
        self.is_end = False
        self.line = 1
        self.fill()
        self.waiting = self.waiting.removeprefix(b"\xef\xbb\xbf")

    def fill(self) -> None:
        """Read more, at least as much as is waiting: so a long record costs no repeated scans."""
        wanted = max(self._size, len(self.waiting))
        block = self._file.read(wanted)
        self.is_end = len(block) < wanted
        self.waiting += block.replace(b"\r", b"\n") if self._has_returns_only else block

    def take(self, size: int) -> bytes:
        """The first bytes of what is waiting, which then begins behind them."""
        taken = self.waiting[:size]
        self.skip(size, taken.count(b"\n"))
        return taken

    def skip(self, size: int, lines: int) -> None:
        """Continue behind the first bytes, which have so many line ends."""
        self.line += lines
        self.waiting = self.waiting[size:]

    def skip_line(self) -> None:
        """Continue behind the next line end."""
        end = self.waiting.find(b"\n") + 1
        while not end and self.waiting:
            self.take(len(self.waiting))
            self.fill()
            end = self.waiting.find(b"\n") + 1
        self.take(end)

    def accept_returns(self) -> None:
        """Carriage returns end lines, if there are no line feeds."""
        if b"\n" not in self.waiting and b"\r" in self.waiting:
            self._has_returns_only = True
            self.waiting = self.waiting.replace(b"\r", b"\n")

    @property
    def place(self) -> int:
        """Where in the file it begins."""
        return self._file.tell() - len(self.waiting)

    def go_back(self, place: int, line: int) -> None:
        """Continue at an earlier place, of which the line is known."""
        self._file.seek(place)
        self.waiting, self.is_end, self.line = b"", False, line
        self.fill()


# Split CSV bytes into records, and tell which of them are rows. All in time proportional to size.
# A record ends at a line end outside of quotes. A stray quote would make one record of all lines up
# to the next quote. So where lines with an odd number of quotes do not make a row together, the
# first of them is not a row, and the lines behind it stand by themselves.

_QUOTE, _LINE_FEED, _RETURN = (ord(character) for character in '"\n\r')

_NONE = np.empty(0, np.int64)

COMMA = ","


@dataclass(frozen=True, slots=True)
class CsvRecords:
    """Records of a part of a CSV file, in order, without blank lines.

    data: the part
    starts, ends: by record: its bytes, line end included
    line_ends: positions of all line feeds in the part
    quotes: positions of all quotes in the part
    end: how much of `data` the records and blank lines are
    """

    data: bytes
    starts: Integers
    ends: Integers
    line_ends: Integers
    quotes: Integers
    end: int

    def __len__(self) -> int:
        return len(self.starts)

    def raw(self, index: int) -> bytes:
        """A record without its line end."""
        return self.data[self.starts[index] : self.ends[index]].rstrip(b"\r\n")

    def text(self, index: int) -> str:
        """The beginning of a record, for messages."""
        return shortened(self.raw(index).decode("utf-8", "replace"))

    def line(self, index: int) -> int:
        """How many lines of the part are before a record."""
        return int(np.searchsorted(self.line_ends, self.starts[index]))

    @property
    def may_have_inner_line_ends(self) -> bool:
        """Whether a quoted cell may have a line end in it, or lines are blank."""
        return len(self.quotes) > 0 and self.lines != len(self)

    @property
    def lines(self) -> int:
        """How many lines they and the blank ones are."""
        return int(np.searchsorted(self.line_ends, self.end))

    @property
    def lengths(self) -> Integers:
        """By record: its bytes, line end included."""
        return self.ends - self.starts


def whole_records(data: bytes, *, is_end: bool) -> CsvRecords:
    """The records that end in `data`, by the quotes alone.

    is_end: nothing follows, so that the last record needs no line end
    """
    content = np.frombuffer(data, np.uint8)
    line_ends = np.flatnonzero(content == _LINE_FEED)
    ends, quotes = line_ends + 1, _NONE
    if b'"' in data:
        quotes = np.flatnonzero(content == _QUOTE)
        ends = ends[np.searchsorted(quotes, line_ends) % 2 == 0]
    if is_end and len(data) and (not len(ends) or ends[-1] != len(data)):
        ends = np.append(ends, len(data))
    return _without_blank_lines(data, ends, line_ends, quotes)


def _without_blank_lines(data: bytes, ends: Integers, line_ends: Integers, quotes: Integers) -> CsvRecords:
    content = np.frombuffer(data, np.uint8)
    starts = np.concatenate([np.zeros(min(len(ends), 1), np.int64), ends[:-1]])
    lengths, first = ends - starts, content[starts]
    blank = (lengths == 1) & (first == _LINE_FEED) | (lengths == 2) & (first == _RETURN)
    if blank.any():
        starts, ends_of_rows = starts[~blank], ends[~blank]
    else:
        ends_of_rows = ends
    return CsvRecords(data, starts, ends_of_rows, line_ends, quotes, int(ends[-1]) if len(ends) else 0)


def separate_records(data: bytes, cells: int, delimiter: str = COMMA, *, is_end: bool) -> CsvRecords:
    """The records that end in `data`, so that a stray quote spoils its own line only.

    cells: how many cells a row has
    """
    content = np.frombuffer(data, np.uint8)
    line_ends = np.flatnonzero(content == _LINE_FEED)
    ends = line_ends + 1
    if is_end and len(data) and (not len(ends) or ends[-1] != len(data)):
        ends = np.append(ends, len(data))
    starts = np.concatenate([np.zeros(min(len(ends), 1), np.int64), ends[:-1]])
    quotes = np.flatnonzero(content == _QUOTE)
    counts = np.diff(np.searchsorted(quotes, np.concatenate([starts, ends[-1:]])))
    odd = np.flatnonzero(counts % 2)
    are_rows = _are_rows(data, starts[odd], ends[odd], cells, delimiter)
    lines = odd.tolist()
    is_inside = np.zeros(len(ends), np.bool_)  # the record continues behind this line
    at, used = 0, len(ends)
    while at < len(lines):
        if at + 1 == len(lines):
            used = used if is_end else lines[at]
            break
        if are_rows[at]:
            is_inside[lines[at] : lines[at + 1]] = True
        at += 2 if are_rows[at] else 1
    return _without_blank_lines(data, ends[:used][~is_inside[:used]], line_ends, quotes)


def _are_rows(data: bytes, starts: Integers, ends: Integers, cells: int, delimiter: str) -> list[bool]:
    """By line with an odd number of quotes: whether it makes a row together with the next one."""
    found = np.zeros(len(starts), np.bool_)
    for first in (0, 1):  # pairs that do not overlap
        begin, end = starts[first:-1:2], ends[first + 1 :: 2]
        found[first:-1:2] = fits(data, begin, end, cells, delimiter)
    are_rows: list[bool] = found.tolist()
    return are_rows


def quotes_of(data: bytes, end: int) -> Integers:
    """The positions of all quotes before `end`."""
    if b'"' not in data:
        return _NONE
    return np.flatnonzero(np.frombuffer(data, np.uint8, end) == _QUOTE)


def count_lines(data: bytes, end: int) -> int:
    """How many line feeds are before `end`."""
    return int(np.count_nonzero(np.frombuffer(data, np.uint8, end) == _LINE_FEED))


def has_lone_returns(data: bytes, end: int) -> bool:
    """Whether a carriage return may be where no line ends; Arrow takes it for the end of a line."""
    return data.find(b"\r", 0, end) >= 0 and data.count(b"\r", 0, end) != data.count(b"\r\n", 0, end)


def has_stray_quotes(data: bytes, quotes: Integers, end: int, delimiter: str = COMMA) -> bool:
    """Whether a quote is where none may be, if each record has an even number of them.

    quotes: the positions of all quotes, at least before `end`
    """
    quotes = quotes[: np.searchsorted(quotes, end)]
    if not len(quotes):
        return False
    content = np.frombuffer(data, np.uint8, end)
    if len(quotes) % 2:
        return True
    opening, closing = quotes[::2], quotes[1::2]
    before = content[np.maximum(opening - 1, 0)]
    after = content[np.minimum(closing + 1, len(content) - 1)]
    may_open = _among(before, ord(delimiter), _QUOTE, _LINE_FEED)
    may_close = _among(after, ord(delimiter), _LINE_FEED, _RETURN, _QUOTE)
    may_open[0] |= opening[0] == 0
    may_close[-1] |= closing[-1] + 1 == len(content)
    return not (may_open.all() and may_close.all())


def _among(content: NDArray[np.uint8], *characters: int) -> NDArray[np.bool_]:
    """Whether each byte is one of these characters."""
    is_one = np.zeros(256, np.bool_)
    is_one[list(characters)] = True
    return is_one[content]


def fits(data: bytes, starts: Integers, ends: Integers, cells: int, delimiter: str = COMMA) -> NDArray[np.bool_]:
    """By record: whether it is a row of so many cells, with quotes only where they may be."""
    if not len(starts):
        return np.zeros(0, np.bool_)
    content = np.frombuffer(data, np.uint8)
    quotes = np.flatnonzero(content == _QUOTE)
    first_quote = np.searchsorted(quotes, starts)
    good = (np.searchsorted(quotes, ends) - first_quote) % 2 == 0

    # A quote opens a cell, or closes it, or is one of two that mean one.
    record = np.searchsorted(starts, quotes, "right") - 1
    is_within = (record >= 0) & (quotes < ends[record])
    opens = (np.arange(len(quotes)) - first_quote[record]) % 2 == 0
    before, after = content[np.maximum(quotes - 1, 0)], content[np.minimum(quotes + 1, len(content) - 1)]
    may_open = (quotes == starts[record]) | (before == ord(delimiter)) | (before == _QUOTE)
    may_close = (quotes + 1 == ends[record]) | np.isin(after, (ord(delimiter), _LINE_FEED, _RETURN, _QUOTE))
    good[record[is_within & np.where(opens, ~may_open, ~may_close)]] = False

    between = _outside(np.flatnonzero(content == ord(delimiter)), quotes, starts, ends)
    good &= np.bincount(between, minlength=len(starts)) == cells - 1

    returns = np.flatnonzero(content == _RETURN)
    is_before = content[np.minimum(returns + 1, len(content) - 1)] == _LINE_FEED
    is_last = np.isin(returns + 1, ends)
    good[_outside(returns[~is_before & ~is_last], quotes, starts, ends)] = False
    return good


def _outside(places: Integers, quotes: Integers, starts: Integers, ends: Integers) -> Integers:
    """The records that have these places outside of quotes."""
    record = np.searchsorted(starts, places, "right") - 1
    is_within = (record >= 0) & (places < ends[record])
    record, places = record[is_within], places[is_within]
    is_outside = (np.searchsorted(quotes, places) - np.searchsorted(quotes, starts)[record]) % 2 == 0
    found: Integers = record[is_outside]
    return found


def what_is_wrong(record: bytes, cells: int, delimiter: str = COMMA) -> str:
    """Why a record is not a row."""
    if b'"' not in record:
        found_cells = record.count(delimiter.encode()) + 1
        if found_cells == cells:
            return "a line end inside of a cell without quotes"
        return f"{found_cells} cells where the header has {cells}"
    try:
        (found,) = csv.reader([record.decode("utf-8", "replace")], delimiter=delimiter, strict=True)
    except (csv.Error, ValueError):
        return "a quote is not closed, or occurs inside a cell"
    return "a quote occurs inside a cell" if len(found) == cells else f"{len(found)} cells where the header has {cells}"
