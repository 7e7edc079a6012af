"""What a `MATCH_RECOGNIZE` clause says: its parts as plain data, with their lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot.expressions import Expression


class NotTranslatedError(Exception):
    """A part of the text has no counterpart, or would mean something else."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


@dataclass(frozen=True, slots=True)
class Element:
    """A variable of the pattern, and how often it may come: `most` None = without end.

    is_reluctant: it takes as few rows as it can
    """

    variable: str
    line: int
    least: int = 1
    most: int | None = 1
    is_reluctant: bool = False

    @property
    def is_single(self) -> bool:
        """Whether it is one row, always."""
        return self.least == 1 and self.most == 1

    @property
    def is_fixed(self) -> bool:
        """Whether it always has as many rows."""
        return self.least == self.most


@dataclass(frozen=True, slots=True)
class Skip:
    """`AFTER MATCH SKIP`.

    to: "past last row", "next row", or the "first" or "last" row of `variable`
    is_default: the clause is missing
    """

    to: str
    line: int
    variable: str = ""
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class RowPattern:
    """A clause.

    table: what rows are read from
    keys: columns of `PARTITION BY`
    null_keys: line and name of those that may be null: no WHERE says that they are not
    order: the column of `ORDER BY`
    measures: output columns: name and expression
    within: how long a match may last, as text of a duration; "" = without end
    conditions: of `DEFINE`, by variable
    """

    table: str
    keys: tuple[str, ...]
    null_keys: tuple[tuple[int, str], ...]
    order: str
    measures: tuple[tuple[str, Expression], ...]
    elements: tuple[Element, ...]
    skip: Skip
    within: str
    conditions: Mapping[str, Expression]

    @property
    def is_fixed(self) -> bool:
        """Whether all matches have as many rows."""
        return all(element.is_fixed for element in self.elements)

    def position(self, variable: str) -> int | None:
        """Which element a variable is."""
        names = [element.variable for element in self.elements]
        return names.index(variable) if variable in names else None
