"""Compile a query into the tables and programs that the kernel interprets.

Nothing here is machine code: it is data, made once per query, that the same compiled search reads
for every query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from querylang.plan.expression import Aggregate, Expression, Type, terms_of
from querylang.plan.model import QueryPlan, Where, Without, known, mentioned_terms
from querylang.plan.questions import has_additions
from runtime.instants import NEVER
from runtime.matching.find_every import aggregates_of
from runtime.matching.kernel.aggregates import Arguments, Function
from runtime.matching.kernel.chain import chain_ages, for_chain
from runtime.matching.kernel.columns import Counted
from runtime.matching.kernel.program import (
    KernelProgram,
    NotForKernel,
    Operand,
    about_one_event,
    build_program,
    operand_of,
)
from runtime.matching.kernel.sliding import Window
from runtime.matching.kernel.sliding_rules import sliding_window
from runtime.matching.kernel.tables import (
    AutomatonTables,
    ConditionTables,
    automaton_tables,
    condition_tables,
    ends_of,
    followed_windows,
    is_ambiguous,
)
from runtime.matching.kernel.waits import LateConditions
from runtime.matching.windows import WindowColumns, window_columns


@dataclass(frozen=True, slots=True)
class CompiledQuery:
    """A query for the kernel.

    program: of all conditions and aggregates
    counted: each `without` whose events are counted beforehand, by count row
    followed: `followed_windows`
    within: µs, of the whole pattern; NEVER = no limit
    leading: µs, the length of the leading wait; NEVER = none
    late: the conditions that the trailing wait decides
    is_ambiguous: some transitions can tie
    sliding: of a `find every`, the window that its aggregates follow, or why its candidates are
        enumerated
    ages: `chain_ages`
    """

    program: KernelProgram
    conditions: ConditionTables
    automaton: AutomatonTables
    counted: tuple[Counted, ...]
    windows: WindowColumns
    followed: np.ndarray[tuple[int], np.dtype[np.bool_]]
    within: int
    leading: int
    late: LateConditions
    aggregates: tuple[Aggregate, ...]
    arguments: Arguments
    is_ambiguous: bool
    sliding: Window | str
    ages: np.ndarray[tuple[int], np.dtype[np.int64]] | None


@lru_cache(maxsize=1024)  # a job makes an engine per bucket and micro-batch
def compile_query(query: QueryPlan) -> CompiledQuery:
    """Raises NotForKernel, with the reason, for a query that needs the reference matcher."""
    assert not has_additions(query), "these have a kernel of their own"
    windows = window_columns(query)
    aggregates = aggregates_of(query)
    functions = [_function(node) for node in aggregates]
    events = [query.inputs[term.input].event for term in query.terms]
    # One program per condition over several events, then one per argument of an aggregate.
    parts: list[tuple[Expression, Sequence[str]]] = []
    programs, count_rows = [], []
    counted: list[Counted] = []
    for condition in query.conditions:
        program = row = -1
        # A `without` that is counted needs no program: its condition is an operand, computed as a
        # column.
        if isinstance(condition, Without) and is_counted_before(condition, query, windows):
            row, about = len(counted), condition.condition
            event = query.inputs[condition.input].event
            counted.append(Counted(condition.input, Operand(about_one_event(about), (event,)) if about else None))
        elif isinstance(condition, Where | Without) and condition.condition is not None:
            program = len(parts)
            own = query.inputs[condition.input].event if isinstance(condition, Without) else events[0]
            parts.append((condition.condition, [*events, own]))
        programs.append(program)
        count_rows.append(row)
    argument_programs = list(_argument_programs(aggregates, len(parts)))
    parts += [(node.arguments[0], [*events, events[0]]) for node in aggregates if node.arguments]
    program_of_all = build_program(parts)
    conditions = condition_tables(query, programs, count_rows, program_of_all)
    automaton = automaton_tables(query, conditions.conditions, program_of_all)
    followed = followed_windows(query, windows.is_used_later)
    within = NEVER if query.within is None else query.within
    arguments = _arguments(aggregates, functions, query, program_of_all, argument_programs)
    ages = chain_ages(query, automaton, windows, followed, within)
    return CompiledQuery(
        program=program_of_all,
        conditions=conditions,
        automaton=automaton if ages is None else for_chain(automaton),
        counted=tuple(counted),
        windows=windows,
        followed=followed,
        within=within,
        leading=NEVER if query.leading is None else known(query.leading.duration),
        late=_late_conditions(query),
        aggregates=aggregates,
        arguments=arguments,
        is_ambiguous=is_ambiguous(query),
        sliding=sliding_window(query, programs, program_of_all, arguments),
        ages=ages,
    )


def is_counted_before(condition: Without, query: QueryPlan, windows: WindowColumns) -> bool:
    """Whether the events of a `without` can be counted beforehand.

    They cannot if its condition is about the candidate too, or if newer events may supersede them.
    """
    about = frozenset() if condition.condition is None else terms_of(condition.condition)
    return about <= {len(query.terms)} and not windows.is_unique[condition.input]


def _argument_programs(aggregates: Sequence[Aggregate], first: int) -> Iterator[int]:
    """By aggregate, the number of its argument's program, from `first` on; -1 = no argument."""
    for node in aggregates:
        yield first if node.arguments else -1
        first += bool(node.arguments)


def _arguments(
    aggregates: Sequence[Aggregate],
    functions: Sequence[Function],
    query: QueryPlan,
    program: KernelProgram,
    programs: Sequence[int],
) -> Arguments:
    mentions = [[term for term in sorted(terms_of(node)) if query.terms[term].is_optional] for node in aggregates]
    operands = [None if number < 0 else operand_of(program, number) for number in programs]
    is_float = [[argument.type for argument in node.arguments] == [Type.FLOAT] for node in aggregates]
    return Arguments(
        function=np.array([int(function) for function in functions], np.int64),
        program=np.array(programs, np.int64),
        operand=np.array([-1 if item is None else item[0] for item in operands], np.int64),
        term=np.array([-1 if item is None else item[1] for item in operands], np.int64),
        is_float=np.array(is_float, np.bool_),
        first=ends_of([len(terms) for terms in mentions]),
        mentions=np.array([term for terms in mentions for term in terms], np.int64),
    )


_FUNCTIONS = {
    "sum": Function.SUM,
    "avg": Function.MEAN,
    "mean": Function.MEAN,
    "min": Function.MIN,
    "max": Function.MAX,
    "first": Function.FIRST,
    "last": Function.LAST,
}


def _function(node: Aggregate) -> Function:
    """The kernel's function for an aggregate; raises NotForKernel."""
    types = [argument.type for argument in node.arguments]
    if not types and node.function == "count":
        return Function.COUNT
    if types == [Type.BOOLEAN] and node.function == "count":
        return Function.COUNT_TRUE
    if types == [Type.FLOAT] and node.function == "count":
        return Function.COUNT_NUMBERS
    if node.function in _FUNCTIONS and types in ([Type.INTEGER], [Type.FLOAT], [Type.BOOLEAN]):
        return _FUNCTIONS[node.function]
    raise NotForKernel(f"the aggregate `{node.function}` of {' and '.join(map(str, types))}")


def _late_conditions(query: QueryPlan) -> LateConditions:
    mentions = [sorted(mentioned_terms(query.conditions[index], len(query.terms))) for index in query.decided_late]
    return LateConditions(
        np.array(query.decided_late, np.int64),
        ends_of([len(terms) for terms in mentions]),
        np.array([term for terms in mentions for term in terms], np.int64),
    )
