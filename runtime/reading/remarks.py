"""What of tables may surprise people, by kind and column, as a count with the first place."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from enum import StrEnum, auto

from runtime.reading.column_names import NOWHERE, Elsewhere


class RemarkKind(StrEnum):
    """What surprises. Records are used nevertheless.

    MISSING_COLUMN: a table lacks a column that others have; it is null there
    UNREAD_VALUES: values of a field that no query reads are wrong; they are null
    CUT_TIMES: times have nanoseconds, which are cut
    ODD_TIMES: times are hardly meant as they are read
    IDLE_COLUMN: a column that users name does nothing
    """

    MISSING_COLUMN = auto()
    UNREAD_VALUES = auto()
    CUT_TIMES = auto()
    ODD_TIMES = auto()
    IDLE_COLUMN = auto()


@dataclass(frozen=True, slots=True)
class Remark:
    """One remark about one table.

    column: that it is about; "" = none
    count: of rows; 1 for what concerns a table as a whole
    text: a line for people, which names the table and the first place
    """

    kind: RemarkKind
    column: str
    count: int
    text: str


@dataclass(slots=True, eq=False)
class LackedColumns(Elsewhere):
    """Columns of other tables; it keeps which of them tables lack.

    others: the columns that may be absent
    remarks: so far, each once
    """

    others: Container[str] = NOWHERE
    remarks: dict[Remark, None] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        """Whether another table has a column of this name."""
        return name in self.others

    def tell(self, table: str, column: str) -> None:
        """Keep that a table lacks one."""
        self.remarks[Remark(RemarkKind.MISSING_COLUMN, column, 1, lacks_column(table, column))] = None


def lacks_column(table: str, column: str) -> str:
    """The line about a column that a table lacks."""
    return f"{table}: has no column {column!r}, which other tables have: it is null there"
