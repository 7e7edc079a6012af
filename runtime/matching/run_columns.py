"""Members of matches as columns: one per name, and several for a run of events.

`widths` says how many columns each term has; it is empty if each has one. The columns of a run are
in order of time, and those behind its last event are -1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def columns_of(widths: Sequence[int], terms: int) -> list[slice]:
    """By term, its columns."""
    ends = np.cumsum(widths or [1] * terms).tolist()
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


def as_columns(
    found: Sequence[Mapping[int, tuple[int, ...]]], is_run: Sequence[bool]
) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Bindings, which have the newest event of a term first, as columns and their widths.

    is_run: by term
    """
    terms = range(len(is_run))
    widths = tuple(
        max((len(bindings.get(term, ())) for bindings in found if is_run[term]), default=0) or 1 for term in terms
    )
    columns = np.full((len(found), sum(widths)), -1, np.int64)
    places = columns_of(widths, len(is_run))
    for row, bindings in enumerate(found):
        for term, positions in bindings.items():
            begin = places[term].start
            columns[row, begin : begin + len(positions)] = positions[::-1]
    return columns, widths if any(is_run) else ()


def as_bindings(members: Sequence[int], widths: Sequence[int], terms: int) -> dict[int, tuple[int, ...]]:
    """The inverse of `as_columns` for one match."""
    bound = {
        term: tuple(position for position in reversed(members[columns]) if position >= 0)
        for term, columns in enumerate(columns_of(widths, terms))
    }
    return {term: positions for term, positions in bound.items() if positions}


def wider(left: Sequence[int], right: Sequence[int]) -> tuple[int, ...]:
    """The widths that both fit into."""
    return tuple(map(max, left, right))


def relaid(values: NDArray[Any], widths: Sequence[int], wanted: Sequence[int], fill: int) -> NDArray[Any]:
    """The columns with other widths; `fill` behind runs."""
    if tuple(widths) == tuple(wanted) or not values.shape[1]:
        return values
    result = np.full((len(values), sum(wanted)), fill, values.dtype)
    for old, new in _moves(widths, wanted):
        result[:, new] = values[:, old]
    return result


def _moves(widths: Sequence[int], wanted: Sequence[int]) -> Iterator[tuple[slice, slice]]:
    for old, new in zip(columns_of(widths, 0), columns_of(wanted, 0), strict=True):
        yield old, slice(new.start, new.start + old.stop - old.start)
