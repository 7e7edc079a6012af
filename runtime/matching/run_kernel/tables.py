"""A query with additions as tables of numbers for its search: states, transitions, conditions.

Each table is an array of records, made once per query. Lists that records have parts of are arrays.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime.number_arrays import Integers

Records = NDArray[Any]


def _record(*names: str) -> np.dtype[Any]:
    return np.dtype([(name, np.int64) for name in names])


STATE = _record(
    *("first_transition", "stop_transition", "input", "link_row", "is_next_only"),
    *("is_end", "first_check", "stop_check"),
    *("fail_row", "direct_row", "hash_row", "is_falling", "is_lasting", "first_part", "stop_part", "is_counted"),
)
"""A state.

first_transition, stop_transition: its part of the transitions
input: the only input that it takes, if that is linked; -1 = any
link_row: that input's row in the links, -1 = none
is_next_only: 1 if it takes only the event directly before the one bound last
is_end: 1 if the candidate may end here; first_check, stop_check: if these checks hold
fail_row, direct_row, hash_row, is_falling, is_lasting, first_part, stop_part:
    `runtime.matching.run_kernel.memory_rules`
is_counted: 1 if the events that it binds count for the limit of a search
"""

TRANSITION = _record(
    *("input", "target", "tied_until", "follows", "first_bind", "stop_bind", "first_check", "stop_check")
)
"""A transition.

input: whose events it takes
target: the state that follows; negative = the candidate is complete
tied_until: end of the transitions of its state that take the same event for equally many names
follows: 1 if it takes only the event directly before the one bound last
first_bind, stop_bind: its part of `Tables.binds`
first_check, stop_check: its part of `Tables.checks`
"""

CHECK = _record(
    *("kind", "program", "length", "input", "first_term", "stop_term", "is_leading", "count_row"),
    *("operation", "left", "left_term", "right", "right_term", "question", "newest_only"),
    *("first_middle", "stop_middle"),
)
"""A condition at a place where it is checked.

kind: a `CheckKind`
program: of a `where`, or of the condition of a `without`; -1 = none
length: µs, of a `within`
input: of a `without`
first_term, stop_term: the terms of its range, a part of `Tables.lists`
is_leading: 1 if the range begins with the leading wait
count_row: the row of counts of a `without` whose condition is about its own event only; -1 = none
operation, left, left_term, right, right_term: of a comparison of two operands; operation -1 = none
question: its question, -1 = none
newest_only: 1 if only the two oldest events bound for its runs are asked: the others were before
first_middle, stop_middle: the waits between steps of its range, a part of `Tables.lists`; of a
    `GAP`, that wait, and the range is what comes after it
"""

QUESTION = _record(
    *("first_run", "stop_run", "first_prev", "stop_prev", "first_optional", "stop_optional"),
    *("first_end", "stop_end", "first_fold", "stop_fold", "first_named", "stop_named"),
)
"""What a condition about runs, the event before or a fold asks.

All but folds are parts of `Tables.lists`.

first_run, stop_run: the runs of which each event is asked
first_prev, stop_prev: of each term whose event before is asked for: the term, its slot
first_optional, stop_optional: the terms that may be unset
first_end, stop_end: of each first or last event: the run, its slot, 1 = first
first_fold, stop_fold: its part of `Tables.folds`
first_named, stop_named: the terms that the range of a `without` names
"""

FOLD = _record(
    *("function", "program", "operand", "term", "is_float", "is_float_result", "none_fails"),
    *("first_run", "stop_run", "first_constant", "stop_constant", "first_state", "stop_state"),
)
"""A fold.

function: a `FoldFunction`
program: of its argument, -1 = none
operand, term: of a program that only pushes it; operand -1: any other program
is_float: 1 if the values are floats; is_float_result: 1 if the fold is one
none_fails: 1 if a fold of no value fails, as in plans of earlier versions; else it is null
first_run, stop_run: its runs, a part of `Tables.lists`
first_constant, stop_constant: the program's constants that stand for it, a part of `Tables.lists`
first_state, stop_state: the integer constants that are their states, a part of `Tables.lists`
"""

MIDDLE = _record("first_before", "stop_before", "length")
"""A wait between steps: µs, after the latest event of these terms, a part of `Tables.lists`."""

TERM = _record("is_optional", "first_side", "stop_side", "is_numbered")
"""A term.

is_optional: 1 if it may be unset; it is not if a term of its side is bound
first_side, stop_side: the terms of its side of an `or`, a part of `Tables.lists`
is_numbered: 1 if its runs have numbers (`runtime.matching.run_kernel.memory`)
"""


class CheckKind(IntEnum):
    """What a condition is, and how it is asked."""

    WHERE = 0
    EACH = 1  # a question about what is bound so far
    WHOLE = 2  # a question about complete runs
    WITHIN = 3
    WITHOUT = 4
    GAP = 5  # a wait between steps


class FoldFunction(IntEnum):
    """What a fold computes."""

    COUNT = 0
    SUM = 1
    MEAN = 2
    MIN = 3
    MAX = 4


class PartKind(IntEnum):
    """What of a term a memory depends on."""

    EVENT = 0  # the only event, or the newest one
    OLDEST = 1
    COUNT = 2
    RUN = 3  # all its events


class Tables(NamedTuple):
    """The tables of a query.

    states, transitions, checks, questions, folds, middles, terms: records
    binds: terms, in parts that belong to transitions
    lists: terms and slots, in parts that belong to checks, questions, folds and terms
    parts: by part of a memory, a `PartKind` and a term
    linked_inputs: the inputs whose events are linked, one per row of the links
    is_first: by input, whether the first state takes it
    """

    states: Records
    transitions: Records
    checks: Records
    questions: Records
    folds: Records
    middles: Records
    terms: Records
    binds: Integers
    lists: Integers
    parts: Integers
    linked_inputs: Integers
    is_first: NDArray[np.bool_]
