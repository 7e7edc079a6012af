"""What is asked of the readers of files, and the limits that hold for every table."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from runtime.reading.formats.csv_form import USUAL_CSV, CsvForm

MAX_RECORD = 16 << 20
"""How long a record may be, in bytes, where users do not say it."""

MOST_NAMES = 1_000
"""How many different names the objects of a JSON table may have together, nested ones included.

A table has a cell for each row and name. Where there are more, only the columns that the queries
need are kept.
"""

MOST_SHOWN = 1_000
"""How many characters of a record or cell messages show."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a reader.

    few_values: text columns with few different cells; they may come as dictionaries
    wanted: the names of the columns that are needed, in lower case; None = all
    max_record: length of the longest record that is read, in bytes; longer ones are unreadable
    csv: how CSV files are written
    rows: most rows of a part, if the reader can choose; None = as it likes. The parts of a Parquet
        file's first row group have half as many, so that work on them begins sooner
    has_named_times: whether users name a column of times
    only: the names of the only columns that are looked at, in lower case; None = all. A reader that
        can leaves out the others
    """

    few_values: Collection[str] = ()
    wanted: Collection[str] | None = None
    max_record: int = MAX_RECORD
    csv: CsvForm = USUAL_CSV
    rows: int | None = None
    has_named_times: bool = False
    only: Collection[str] | None = None

    def chosen(self, names: Iterable[str]) -> list[str] | None:
        """Those of these columns that are looked at; None = all."""
        return None if self.only is None else [name for name in names if name.casefold() in self.only]

    @property
    def too_long(self) -> str:
        """Why a longer record is unreadable."""
        return f"longer than {size_text(self.max_record)}, the limit `max_record`"


EVERYTHING = Asked()


def size_text(size: int) -> str:
    """`16 MB`."""
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "kB")):
        if size >= unit:
            return f"{size // unit:,} {name}" if size % unit == 0 else f"{size / unit:,.1f} {name}"
    return f"{size} bytes"


def shortened(text: str) -> str:
    """A text for a message, cut off if it is long."""
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... ({len(text):,} characters)"
