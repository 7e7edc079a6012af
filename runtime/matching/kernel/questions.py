"""Ask a condition about runs, the event before, or folds, by the rules of `docs/matching.md`.

It is ignored where something that it is about does not exist, and else asked of each event of its
run. `runtime.matching.candidates` is the same in plain Python.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from runtime.column_types import Integers
from runtime.compiling.compiled import borrowing, inlined
from runtime.instants import NEVER
from runtime.matching.kernel.aggregates import mean_of_integers
from runtime.matching.kernel.evaluator import (
    FAILED,
    KNOWN,
    NULL,
    LoadedProgram,
    comparison_holds,
    holds,
    state_of,
    state_of_operand,
)
from runtime.matching.kernel.tables import FoldFunction, Records, RunTables
from runtime.matching.kernel.workspace import Bound, Events, first_position

FAILS, HOLDS, NOT_ASKED = range(3)


class Span(NamedTuple):
    """From `first` to before `end`; what one up to `event` has superseded is not there."""

    first: int
    end: int
    event: int


@inlined
def each_compares(
    checks: Records,
    questions: Records,
    lists: Integers,
    program: LoadedProgram,
    bound: Bound,
    deepest: int,
    check: int,
) -> bool:
    """Whether a condition without folds that compares two operands may hold, as far as the
    candidate is known.

    deepest: the depth of the candidate's oldest event
    """
    question = checks[check].question
    if _lacks_event_before(questions, lists, bound, question, deepest):
        return True
    first, stop = 0, _iterations(questions, lists, bound, question)
    if checks[check].newest_only:
        first = max(0, stop - 2)
    result = HOLDS
    for place in range(first, stop):
        if result != FAILS:
            result = _of_comparison(checks, questions, lists, program, bound, deepest, check, place)
    return result != FAILS


@inlined
def each_holds(
    tables: RunTables,
    program: LoadedProgram,
    bound: Bound,
    deepest: int,
    check: int,
) -> bool:
    """The same of any condition without folds."""
    checks, questions, lists = tables.checks, tables.questions, tables.lists
    question = checks[check].question
    if _lacks_event_before(questions, lists, bound, question, deepest):
        return True
    first, stop = 0, _iterations(questions, lists, bound, question)
    if checks[check].newest_only:
        first = max(0, stop - 2)
    result = HOLDS
    for place in range(first, stop):
        if result != FAILS:
            result = _of_program(tables, program, bound, deepest, check, place, KNOWN)
    return result != FAILS


@borrowing
def verdict(
    tables: RunTables,
    program: LoadedProgram,
    bound: Bound,
    deepest: int,
    check: int,
) -> int:
    """What a condition says of the whole candidate."""
    questions, lists = tables.questions, tables.lists
    question = tables.checks[check].question
    for index in range(questions[question].first_optional, questions[question].stop_optional):
        if _is_unset(tables.terms, lists, bound, lists[index]):
            return NOT_ASKED
    for index in range(questions[question].first_end, questions[question].stop_end, 3):
        term, slot = lists[index], lists[index + 1]
        count = bound.counts[term]
        if count == 0:
            return NOT_ASKED
        bound.at[slot] = bound.path[bound.runs[term, count - 1 if lists[index + 2] == 1 else 0]]
    if _lacks_event_before(questions, lists, bound, question, deepest):
        return NOT_ASKED
    stop = _iterations(questions, lists, bound, question)
    if stop == 0:
        return HOLDS
    folded = _fold(tables, program, bound, question)
    result = NOT_ASKED
    for place in range(stop):
        if result != FAILS:
            if tables.checks[check].operation >= 0:
                found = _of_comparison(tables.checks, questions, lists, program, bound, deepest, check, place)
            else:
                found = _of_program(tables, program, bound, deepest, check, place, folded)
            if found != NOT_ASKED:
                result = found
    return result


@inlined
def _iterations(questions: Records, lists: Integers, bound: Bound, question: int) -> int:
    """How often a condition is asked: of each event of its runs, those of one group in pairs."""
    result = NEVER
    for index in range(questions[question].first_run, questions[question].stop_run):
        result = min(result, bound.counts[lists[index]])
    return 1 if result == NEVER else result


@inlined
def _is_run_of(questions: Records, lists: Integers, question: int, term: int) -> bool:
    """Whether a term is a run of which each event is asked."""
    result = False
    for index in range(questions[question].first_run, questions[question].stop_run):
        result = result or lists[index] == term
    return result


@inlined
def _is_unset(terms: Records, lists: Integers, bound: Bound, term: int) -> bool:
    """Whether a name is unset; a run of no event is not, if its side of an `or` is taken."""
    result = terms[term].is_optional == 1 and bound.counts[term] == 0
    for index in range(terms[term].first_side, terms[term].stop_side):
        result = result and bound.counts[lists[index]] == 0
    return result


@inlined
def _lacks_event_before(questions: Records, lists: Integers, bound: Bound, question: int, deepest: int) -> bool:
    """Whether a plain name has no event before that is asked for: then nothing is asked."""
    result = False
    for index in range(questions[question].first_prev, questions[question].stop_prev, 2):
        term = lists[index]
        if not _is_run_of(questions, lists, question, term):
            result = result or bound.runs[term, 0] >= deepest
    return result


@inlined
def _bind_one(
    questions: Records,
    lists: Integers,
    bound: Bound,
    deepest: int,
    question: int,
    place: int,
) -> bool:
    """Binds one event for each name; whether there is one. `place`: of a run, newest first."""
    for index in range(questions[question].first_run, questions[question].stop_run):
        bound.at[lists[index]] = bound.path[bound.runs[lists[index], place]]
    for index in range(questions[question].first_prev, questions[question].stop_prev, 2):
        term = lists[index]
        depth = int(bound.runs[term, place if _is_run_of(questions, lists, question, term) else 0])
        if depth >= deepest:
            return False
        bound.at[lists[index + 1]] = bound.path[depth + 1]
    return True


@inlined
def _of_comparison(
    checks: Records,
    questions: Records,
    lists: Integers,
    program: LoadedProgram,
    bound: Bound,
    deepest: int,
    check: int,
    place: int,
) -> int:
    """What a comparison of two operands says with one event for each name."""
    result = NOT_ASKED
    if _bind_one(questions, lists, bound, deepest, checks[check].question, place):
        here, there = bound.at[checks[check].left_term], bound.at[checks[check].right_term]
        is_true = comparison_holds(
            program, checks[check].operation, checks[check].left, here, checks[check].right, there
        )
        result = HOLDS if is_true else FAILS
    return result


@inlined
def _of_program(
    tables: RunTables,
    program: LoadedProgram,
    bound: Bound,
    deepest: int,
    check: int,
    place: int,
    folded: int,
) -> int:
    """What the condition's program says with one event for each name; `folded`: as of `_fold`."""
    checks, result = tables.checks, NOT_ASKED
    if _bind_one(tables.questions, tables.lists, bound, deepest, checks[check].question, place):
        state = state_of(program, checks[check].program, bound.at, folded)
        result = HOLDS if state == KNOWN and program.stack_integers[0] != 0 else FAILS
    return result


@borrowing
def _fold(tables: RunTables, program: LoadedProgram, bound: Bound, question: int) -> int:
    """Writes the values and states of a question's folds into the program.

    FAILED: one has failed; else NULL: one is null; else KNOWN.
    """
    folds, lists, result = tables.folds, tables.lists, KNOWN
    for fold in range(tables.questions[question].first_fold, tables.questions[question].stop_fold):
        first, stop = folds[fold].first_run, folds[fold].stop_run
        count, function, is_float = bound.counts[lists[first]], folds[fold].function, folds[fold].is_float == 1
        number, operand, term = folds[fold].program, folds[fold].operand, folds[fold].term
        integer, real, high, low = np.int64(0), 0.0, np.int64(0), np.int64(0)
        is_number, size, state = False, 0, KNOWN
        if function == FoldFunction.COUNT:
            integer = count
        else:
            # The oldest first; nulls are left out.
            for place in range(count - 1, -1, -1):
                for index in range(first, stop):
                    bound.at[lists[index]] = bound.path[bound.runs[lists[index], place]]
                # Most add up operands. These are read here: a program costs more.
                if operand >= 0:
                    own = state_of_operand(program, operand, is_float, bound.at[term])
                else:
                    own = state_of(program, number, bound.at, KNOWN)
                if own == FAILED:
                    return FAILED
                if own == NULL:
                    continue
                size += 1
                if is_float:
                    value = program.stack_floats[0]
                    if function == FoldFunction.SUM or function == FoldFunction.MEAN:  # noqa: PLR1714
                        real += value
                    # NaN does not count: it is neither the least nor the greatest.
                    elif value == value and (  # noqa: PLR0124
                        not is_number or (value < real if function == FoldFunction.MIN else value > real)
                    ):
                        real, is_number = value, True
                else:
                    one = program.stack_integers[0]
                    if function == FoldFunction.SUM:
                        integer += one
                    elif function == FoldFunction.MEAN:
                        high += one >> 32
                        low += one & 0xFFFFFFFF
                    elif not is_number or (one < integer if function == FoldFunction.MIN else one > integer):
                        integer, is_number = one, True
            if size == 0 and function != FoldFunction.SUM:
                state = FAILED if folds[fold].none_fails == 1 else NULL
            elif function == FoldFunction.MEAN:
                real = real / size if is_float else mean_of_integers(int(high), int(low), size)
            elif is_float and function != FoldFunction.SUM and not is_number:
                real = np.nan
        for index in range(folds[fold].first_constant, folds[fold].stop_constant):
            if folds[fold].is_float_result == 1:
                program.float_constants[lists[index]] = real
            else:
                program.integer_constants[lists[index]] = integer
        if state == FAILED:
            return FAILED
        result = min(result, state)
        for index in range(folds[fold].first_state, folds[fold].stop_state):
            program.integer_constants[lists[index]] = state
    return result


@borrowing
def has_blocking_event(
    events: Events,
    tables: RunTables,
    program: LoadedProgram,
    bound: Bound,
    deepest: int,
    check: int,
    span: Span,
) -> bool:
    """Whether an event of a span is one of a `without`."""
    checks = tables.checks
    item, question, number = checks[check].input, checks[check].question, checks[check].program
    if question >= 0:
        first_run, stop_run = tables.questions[question].first_run, tables.questions[question].stop_run
        if stop_run > first_run and bound.counts[tables.lists[first_run]] == 0:
            return False
    depth = 0
    for position in range(span.end - 1, span.first - 1, -1):
        if events.input[position] != item or (len(events.superseded) > 0 and events.superseded[position] <= span.event):
            continue
        # Members of the candidate do not count, by whatever input; they are in order.
        own = first_position(events, position)
        while depth <= deepest and first_position(events, bound.path[depth]) > own:
            depth += 1
        if depth <= deepest and first_position(events, bound.path[depth]) == own:
            continue
        if number < 0:
            return True
        bound.at[len(bound.at) - 1] = position
        if question < 0:
            if holds(program, number, bound.at):
                return True
        elif verdict(tables, program, bound, deepest, check) == HOLDS:
            return True
    return False


@borrowing
def names_all(tables: RunTables, bound: Bound, check: int) -> bool:
    """Whether all that a `without` with a question is about is there."""
    question, lists = tables.checks[check].question, tables.lists
    for index in range(tables.questions[question].first_optional, tables.questions[question].stop_optional):
        if _is_unset(tables.terms, lists, bound, lists[index]):
            return False
    for index in range(tables.questions[question].first_named, tables.questions[question].stop_named):
        if bound.counts[lists[index]] == 0:
            return False
    for index in range(tables.checks[check].first_middle, tables.checks[check].stop_middle):
        middle, is_bound = lists[index], False
        for before in range(tables.middles[middle].first_before, tables.middles[middle].stop_before):
            is_bound = is_bound or bound.counts[lists[before]] > 0
        if not is_bound:
            return False
    return True
