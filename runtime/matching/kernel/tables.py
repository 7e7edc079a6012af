"""A query as tables of numbers for the compiled search: automaton, conditions, dead ends.

Each table is an array of records: one per state, per transition, per condition. Everything here is
made once per query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from querylang.plan.model import ACCEPT, Automaton, Condition, QueryPlan, Transition, Where, Within, Without, known
from querylang.plan.remembering import dead_end_rules, is_leading, rows_of
from runtime.column_types import Integers
from runtime.instants import NEVER
from runtime.matching.kernel.lookahead import lookahead_after
from runtime.matching.kernel.program import KernelProgram, comparison, truth

Records = NDArray[Any]

MOST_LINKS = 8
"""Events of at most so many inputs are linked; of others the search walks from event to event."""


def _record(*names: str) -> np.dtype[Any]:
    return np.dtype([(name, np.int64) for name in names])


STATE = _record(
    *("first_transition", "stop_transition", "input", "link_row", "events_needed"),
    *("dead_end_row", "first_dead_end_term", "stop_dead_end_term", "is_lasting"),
    *("lookahead_program", "lookahead_also", "lookahead_after"),
)
"""A state.

first_transition, stop_transition: its part of the transitions
input: the only input that it takes, if that is linked; -1 = any
link_row: that input's row in the links, -1 = none
events_needed: how many events are taken at least from here to the end
dead_end_row: the number of its dead ends, -1 = none are recorded
    (`querylang.plan.remembering`); those that depend on several events come last
first_dead_end_term, stop_dead_end_term: its part of `AutomatonTables.dead_end_terms`, the terms on
    whose events a dead end depends
is_lasting: 1 if later searches of the key may use its dead ends
lookahead_program: the program to look ahead with (`runtime.matching.kernel.lookahead`), -1 = none
lookahead_also: another one, for events for which that one is true; -1 = none
lookahead_after: after how many rejected events it looks ahead; NEVER = it does not
"""

TRANSITION = _record(
    *("input", "target", "tied_until", "term", "first_bind", "stop_bind"),
    *("first_check", "first_other_check", "stop_check"),
)
"""A transition.

input: whose events it takes
target: the state that follows; negative = none, the candidate is complete
tied_until: end of the transitions of its state that take the same event for equally many names:
    which of these is best is known at the end only
term: the term that it binds
first_bind, stop_bind: its part of `AutomatonTables.binds`, further terms that it binds
first_check, first_other_check, stop_check: its part of `AutomatonTables.checks`, comparisons first
"""

CONDITION = _record(
    *("kind", "program", "length", "input", "first_term", "stop_term", "is_leading", "count_row"),
    *("operation", "left", "left_term", "right", "right_term", "condition"),
)
"""A condition.

kind: a `ConditionKind`
program: of a `where`, or of the condition of a `without`; -1 = none
length: µs, of a `within`
input: of a `without`
first_term, stop_term: the terms of its range, a part of `ConditionTables.terms`
is_leading: 1 if the range begins with the leading wait
count_row: the row of counts of a `without` whose condition is about its own event only; -1 = the
    range is scanned
operation, left, left_term, right, right_term: of a comparison
condition: its number in the plan
"""


class AutomatonTables(NamedTuple):
    """The automaton as tables.

    states, transitions: records (`STATE`, `TRANSITION`)
    binds: terms, in parts that belong to transitions
    checks: conditions (`CONDITION`), in parts that belong to transitions
    linked_inputs: the inputs whose events are linked, one per row of the links
    is_first: by input, whether the first state takes it
    dead_end_terms: terms, in parts that belong to states
    """

    states: Records
    transitions: Records
    binds: Integers
    checks: Records
    linked_inputs: Integers
    is_first: NDArray[np.bool_]
    dead_end_terms: Integers


class ConditionKind(IntEnum):
    """What a condition is. A `where` that compares two operands is a comparison; without
    `find every`, one that is an operand, too."""

    WHERE = 0
    WITHIN = 1
    WITHOUT = 2
    COMPARISON = 3


class ConditionTables(NamedTuple):
    """`conditions` are records (`CONDITION`), `terms` the lists of their ranges."""

    conditions: Records
    terms: Integers


def automaton_tables(query: QueryPlan, conditions: Records, program: KernelProgram) -> AutomatonTables:
    """The automaton's tables.

    A `within` over the whole pattern is not among the checks: the search never looks further back.
    """
    states = query.automaton.states
    transitions = [item for state in states for item in state.transitions]
    checks = [[check for check in item.checks if not is_whole(query.conditions[check])] for item in transitions]
    # Comparisons first: they cost least, so they refuse most events before anything else is
    # checked.
    comparisons = [sum(_is_comparison(conditions, check) for check in item) for item in checks]
    checks = [sorted(item, key=lambda check: not _is_comparison(conditions, check)) for item in checks]
    takes = [{item.input for item in state.transitions} for state in states]
    only = [min(inputs) if len(inputs) == 1 else -1 for inputs in takes]
    # The first state of other queries takes the new event only, never an older one.
    linked_inputs = sorted({item for item in only[0 if query.every else 1 :] if item >= 0})[:MOST_LINKS]
    dead_ends = dead_end_rules(query)
    dead_end_rows, dead_end_ends = rows_of(dead_ends), ends_of([len(item.terms) if item else 0 for item in dead_ends])
    # A state looks ahead if it has one transition only: what that refuses, the state refuses.
    lookahead = [
        _lookahead_programs(conditions[list(state.transitions[0].checks)], program)
        if len(state.transitions) == 1 and item in linked_inputs
        else (-1, -1)
        for state, item in zip(states, only, strict=True)
    ]
    ends = ends_of([len(state.transitions) for state in states])
    bind_ends, check_ends = ends_of([len(item.binds) for item in transitions]), ends_of([len(item) for item in checks])
    return AutomatonTables(
        states=records(
            STATE,
            first_transition=ends[:-1],
            stop_transition=ends[1:],
            # Without a link the search meets events of all inputs. The first state takes one only.
            input=[
                item if item in linked_inputs or (number == 0 and query.every is None) else -1
                for number, item in enumerate(only)
            ],
            link_row=[linked_inputs.index(item) if item in linked_inputs else -1 for item in only],
            events_needed=_events_needed(query.automaton),
            dead_end_row=dead_end_rows,
            first_dead_end_term=dead_end_ends[:-1],
            stop_dead_end_term=dead_end_ends[1:],
            is_lasting=[item is not None and item.is_lasting for item in dead_ends],
            lookahead_program=[number for number, _ in lookahead],
            lookahead_also=[also for _, also in lookahead],
            lookahead_after=[NEVER if number < 0 else lookahead_after(program, number) for number, _ in lookahead],
        ),
        transitions=records(
            TRANSITION,
            input=[item.input for item in transitions],
            target=[item.target for item in transitions],
            tied_until=list(tied_until(query.automaton)),
            term=[item.binds[0] for item in transitions],
            first_bind=bind_ends[:-1] + 1,
            stop_bind=bind_ends[1:],
            first_check=check_ends[:-1],
            first_other_check=check_ends[:-1] + np.array(comparisons, np.int64),
            stop_check=check_ends[1:],
        ),
        binds=np.array([term for item in transitions for term in item.binds], np.int64),
        checks=conditions[[check for item in checks for check in item]],
        linked_inputs=np.array(linked_inputs, np.int64),
        is_first=np.array([index in takes[0] for index in range(len(query.inputs))]),
        dead_end_terms=np.array([term for item in dead_ends if item for term in item.terms], np.int64),
    )


def _is_comparison(conditions: Records, index: int) -> bool:
    """Whether a condition is checked before all others of a transition."""
    return bool(conditions[index]["kind"] == ConditionKind.COMPARISON)


def _lookahead_programs(checks: Records, program: KernelProgram) -> tuple[int, int]:
    """The programs of the first two conditions that lanes can evaluate together; -1 = none."""
    kinds = (ConditionKind.WHERE, ConditionKind.COMPARISON)
    programs = [int(item["program"]) for item in checks if item["kind"] in kinds]
    first, second, *_ = *(number for number in programs if lookahead_after(program, number) < NEVER), -1, -1
    return first, second


def condition_tables(
    query: QueryPlan, programs: Sequence[int], count_rows: Sequence[int], program: KernelProgram
) -> ConditionTables:
    """The conditions; `programs` and `count_rows`: by condition, as in the records."""
    everything = tuple(range(len(query.terms)))
    ranges = [
        item.between.terms if isinstance(item, Within | Without) and item.between is not None else everything
        for item in query.conditions
    ]
    ends = ends_of([len(terms) for terms in ranges])
    kinds = [_kind(item) for item in query.conditions]
    compared = [None if number < 0 else comparison(program, number) for number in programs]
    # A `find every` binds the latest event first: where it has refused that, no older one is tried.
    if query.every is None:
        asked = [None if number < 0 else truth(program, number) for number in programs]
        compared = [one or other for one, other in zip(compared, asked, strict=True)]
    kinds = [
        ConditionKind.COMPARISON if kind == ConditionKind.WHERE and item is not None else kind
        for kind, item in zip(kinds, compared, strict=True)
    ]
    table = records(
        CONDITION,
        kind=kinds,
        program=programs,
        length=[known(item.duration) if isinstance(item, Within) else NEVER for item in query.conditions],
        input=[item.input if isinstance(item, Without) else -1 for item in query.conditions],
        first_term=ends[:-1],
        stop_term=ends[1:],
        is_leading=[is_leading(item, query) for item in query.conditions],
        count_row=count_rows,
        operation=[item.operation if item else -1 for item in compared],
        left=[item.left if item else 0 for item in compared],
        left_term=[item.left_term if item else 0 for item in compared],
        right=[item.right if item else 0 for item in compared],
        right_term=[item.right_term if item else 0 for item in compared],
        condition=range(len(query.conditions)),
    )
    return ConditionTables(table, np.array([term for terms in ranges for term in terms], np.int64))


def records(dtype: np.dtype[Any], **columns: Sequence[int] | Integers) -> Records:
    """Records made of all their columns."""
    assert dtype.names is not None, "a record has fields"
    assert set(dtype.names) == set(columns), "a column for each field"
    table: Records = np.zeros(len(columns[dtype.names[0]]), dtype)
    for name, column in columns.items():
        table[name] = column
    return table


def is_whole(condition: Condition) -> bool:
    """Whether it is a `within` over the whole pattern."""
    return isinstance(condition, Within) and condition.between is None


def is_ambiguous(query: QueryPlan) -> bool:
    """Whether transitions tie: in one state an event may serve different names, equally many."""
    return any(end > number + 1 for number, end in enumerate(tied_until(query.automaton)))


def _kind(condition: Condition) -> ConditionKind:
    match condition:
        case Where():
            return ConditionKind.WHERE
        case Within():
            return ConditionKind.WITHIN
        case Without():
            return ConditionKind.WITHOUT
    raise AssertionError("queries with other conditions run on the reference matcher")


def tied_until(automaton: Automaton) -> Iterator[int]:
    """By transition, where those of its state end that tie with it; these are neighbours."""
    first = 0
    for state in automaton.states:
        for place, item in enumerate(state.transitions):
            end = place
            while end < len(state.transitions) and _rank(state.transitions[end]) == _rank(item):
                end += 1
            yield first + end
        first += len(state.transitions)


def _rank(item: Transition) -> tuple[int, int]:
    return item.input, len(item.binds)


def _events_needed(automaton: Automaton) -> list[int]:
    """By state, the length of the shortest path to the end; a target is a later state."""
    needed = [0] * len(automaton.states)
    for index in reversed(range(len(needed))):
        targets = [item.target for item in automaton.states[index].transitions]
        needed[index] = 1 + min(0 if target == ACCEPT else needed[target] for target in targets)
    return needed


def ends_of(lengths: Sequence[int]) -> Integers:
    """Where each of several concatenated lists begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def followed_windows(query: QueryPlan, is_used_later: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """By input, whether the first position of its window is kept up to date; empty = of none.

    With `retain` it must be known where windows begin, so all are followed. A `without` looks for
    all events of a range, so it needs the position too. Of other events it is enough to compare the
    time when they are found. `is_used_later`: as in `runtime.matching.windows`.
    """
    inputs = range(len(query.inputs))
    if any(is_used_later[index] and query.inputs[index].retain is not None for index in inputs):
        return is_used_later
    looked_at = {item.input for item in query.conditions if isinstance(item, Without)}
    return np.array([index in looked_at for index in inputs] if looked_at else [], np.bool_)


# A query with additions as tables of numbers for its search: states, transitions, conditions.
#
# Each table is an array of records, made once per query. Lists that records have parts of are
# arrays.


RUN_STATE = _record(
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
fail_row, direct_row, hash_row, is_lasting, first_part, stop_part: `querylang.plan.remembering`
is_falling: a `Falling`
is_counted: 1 if the events that it binds count for the limit of a search
"""


class Falling(IntEnum):
    """What a failure of a state after one event says of older ones. It is in `MemoryRule`, too."""

    NOTHING = 0
    OLDER = 1  # the state fails after all older events
    LOOP = 2  # it fails after the older ones of the transition that leads back to it


RUN_TRANSITION = _record(
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
is_numbered: 1 if its runs have numbers (`runtime.matching.kernel.memory`)
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


class RunTables(NamedTuple):
    """The tables of a query.

    states, transitions, checks, questions, folds, middles, terms: records
    binds: terms, in parts that belong to transitions
    lists: terms and slots, in parts that belong to checks, questions, folds and terms
    parts: by part of a memory, a `PartKind` and a term
    linked_inputs: the inputs whose events are linked, one per row of the links
    is_first: by input, whether the first state takes it
    keeps_memory: failures by several events may hold for later searches of a key
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
    keeps_memory: bool


class LateConditions(NamedTuple):
    """The conditions whose range ends with the trailing wait.

    conditions: their numbers
    first: where each one's part of `mentions` begins; one more entry for the end
    mentions: the terms that each mentions
    """

    conditions: Integers
    first: Integers
    mentions: Integers
