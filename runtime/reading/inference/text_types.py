"""The type of a column of text, such as one of CSV, and why it is that where it is not plain."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.plan.expression import Type
from runtime.reading.conversion import convert
from runtime.reading.formats.csv_form import POINT, WITH_COMMA, WITH_THOUSANDS, hint_of_cell, hint_of_number
from runtime.timestamps import is_text

_PLAIN_WHOLE = r"^-?(0|[1-9]\d{0,18})$"
"""An integer as people and programs write one."""

_WHOLE = r"^[+-]?\d+$"

_BEGINS_WITH_ZERO = r"^[+-]?0\d"
"""Numbers are not written like this, but identifiers and postal codes are."""


_ANY_COMMA = rf"{WITH_COMMA}|{WITH_THOUSANDS}"

TOO_LARGE = ", more than an integer holds"


class TextType(NamedTuple):
    """What a column of text holds.

    row: of the cell that made it so, from 0; None = it is plain
    reason: what is special about this cell, to be written behind it
    mostly: the type of most cells, if these are numbers beside others
    """

    type: Type
    row: int | None = None
    reason: str = ""
    mostly: Type | None = None

    @property
    def is_doubtful(self) -> bool:
        """Whether users may have meant numbers even where text is written as text, as in JSON."""
        return self.type == Type.STRING and self.reason in ("", TOO_LARGE)


def type_of_text(column: pa.Array, *, is_csv: bool = True, decimal: str = POINT) -> TextType:
    """The narrowest type that holds all cells without a loss; cells without text say nothing.

    column: with points in its decimals
    is_csv: settings of CSV can change what the cells are
    decimal: what their fractions begin with in the table
    """
    text = pc.utf8_trim_whitespace(column)
    filled = pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)
    if filled.null_count == len(filled):
        return TextType(Type.STRING)
    if _all(filled, _PLAIN_WHOLE) and convert(filled, Type.INTEGER).bad is None:
        return TextType(Type.INTEGER)
    bad = convert(filled, Type.FLOAT).bad
    if bad is None:
        return _number(filled)
    if convert(filled, Type.BOOLEAN).bad is None:
        return TextType(Type.BOOLEAN)
    if not (bad & ~_are(filled, _ANY_COMMA)).any():
        is_decimal = bad & ~_are(filled, WITH_THOUSANDS)
        telling = int(np.argmax(is_decimal if is_decimal.any() else bad))
        hint = hint_of_number(filled[telling].as_py(), decimal) if is_csv else ""
        return TextType(Type.STRING, int(np.argmax(bad)), hint)
    if 2 * int(bad.sum()) > len(filled) - filled.null_count:
        return TextType(Type.STRING)
    number = _number(filled.filter(pa.array(~bad))).type
    are_whole = _all(filled.filter(pa.array(~bad)), _PLAIN_WHOLE)
    mostly = Type.INTEGER if are_whole else number if number == Type.FLOAT else None
    first = int(np.argmax(bad))
    hint = hint_of_cell(filled[first].as_py(), decimal=None) if is_csv else ""
    return TextType(Type.STRING, first, hint, mostly)


def has_padded(column: pa.Array) -> bool:
    """Whether a column of text has a number with zeros in front."""
    return is_text(column.type) and bool(_are(pc.utf8_trim_whitespace(column), f"{_BEGINS_WITH_ZERO}*$").any())


def _number(column: pa.Array) -> TextType:
    """The type of a column whose cells are all numbers, but not all plain integers."""
    padded = _are(column, _BEGINS_WITH_ZERO)
    if padded.any():
        return TextType(Type.STRING, int(np.argmax(padded)), ", and a number would lose its zeros")
    if _all(column, _WHOLE):
        too_large = convert(column, Type.INTEGER).bad
        if too_large is not None:
            return TextType(Type.STRING, int(np.argmax(too_large)), TOO_LARGE)
        return TextType(Type.STRING, int(np.argmax(_are(column, r"\+"))), ", and a number would lose its sign")
    if _are(column, r"\.").any():
        return TextType(Type.FLOAT)
    return TextType(
        Type.FLOAT, int(np.argmax(~_are(column, _WHOLE) & column.is_valid().to_numpy(zero_copy_only=False)))
    )


def _all(column: pa.Array, form: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(column, form)).as_py())


def _are(column: pa.Array, form: str) -> NDArray[np.bool_]:
    """By cell: whether it has this form; nulls have none."""
    found: NDArray[np.bool_] = pc.fill_null(pc.match_substring_regex(column, form), False).to_numpy(
        zero_copy_only=False
    )
    return found
