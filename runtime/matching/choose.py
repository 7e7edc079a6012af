"""Choose a query's matcher: the kernel if it can express the query, else the reference matcher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import cached_property
from math import comb

import numpy as np
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from querylang.plan.describe import condition_text
from querylang.plan.expression import Aggregate
from querylang.plan.model import Condition, Plan, QueryPlan, Without
from querylang.plan.questions import has_additions
from querylang.plan.remembering import MOST_BOUND, SearchCost, search_cost
from querylang.plan.text import Names, expression_text, literal_text
from querylang.printable import warn
from runtime.instants import NEVER
from runtime.matching.interface import Found, Matcher, Ordered, Waiting
from runtime.matching.kernel.aggregates import Function
from runtime.matching.kernel.compilation import (
    CompiledQuery,
    compile_all_of_chain,
    compile_query,
    compile_runs,
    is_of_runs,
    types_with_actions,
)
from runtime.matching.kernel.functions import OfFloat, OfFloats, OfInteger, OfIntegers, ToInteger
from runtime.matching.kernel.program import PUSHES, TRUTH, NotForKernel, Operation, instructions
from runtime.matching.kernel.tables import ConditionKind, Records, is_whole
from runtime.matching.matchers import ChainMatcher, KernelMatcher, ReferenceOverColumns, RunKernelMatcher
from runtime.matching.shared_events import MatcherOfRoles, knows_shared_events, of_one_input, served_together
from runtime.progress_line import duration_text


def choose_matcher(plan: Plan, query: QueryPlan, wanted: str = "auto") -> Matcher:
    """The kernel if it can express the query, else the reference matcher.

    `wanted`: "auto", or "kernel" or "reference" to have that one.
    Raises NotForKernel if the kernel is wanted and cannot express the query.
    """
    match wanted:
        case "reference":
            return ReferenceOverColumns(plan, query)
        case "kernel":
            return _kernel_matcher(plan, query)
        case _:
            return _MadeOnFirstUse(plan, query)


class _MadeOnFirstUse:
    """A matcher that is compiled when the first event is released: most queries of a large program
    see none for long."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self._plan, self._query = plan, query

    @cached_property
    def chosen(self) -> Matcher:
        """The kernel if it can express the query, else the reference matcher."""
        try:
            return _kernel_matcher(self._plan, self._query)
        except NotForKernel:
            return ReferenceOverColumns(self._plan, self._query)

    @property
    def only_finds(self) -> bool:
        return self.chosen.only_finds

    @property
    def takes_may_end(self) -> bool:
        return self.chosen.takes_may_end

    def match(self, events: Ordered) -> Found:
        return self.chosen.match(events)

    def outlives(self, events: Ordered, waiting: Waiting) -> NDArray[np.bool_]:
        return self.chosen.outlives(events, waiting)


def kernel_matcher(plan: Plan, query: QueryPlan) -> Matcher | None:
    """The kernel; None = it cannot express the query."""
    try:
        return _kernel_matcher(plan, query)
    except NotForKernel:
        return None


def _kernel_matcher(plan: Plan, query: QueryPlan) -> Matcher:
    if query.shared_types and not knows_shared_events(query):
        return MatcherOfRoles(_kernel(plan, of_one_input(query)), ReferenceOverColumns(plan, query))
    return _kernel(plan, query)


def _kernel(plan: Plan, query: QueryPlan) -> Matcher:
    if is_of_runs(query):
        return ChainMatcher.of(plan, query) or RunKernelMatcher(plan, query)
    return KernelMatcher(plan, query)


def why_not_kernel(plan: Plan, query: QueryPlan) -> str | None:
    """Why a query needs the reference matcher; None if it runs on a kernel.

    It may be some of its keys only: those with an event that serves two inputs.
    """
    try:
        if is_of_runs(query):
            compile_runs(query, types_with_actions(plan))
        else:
            compile_query(query, types_with_actions(plan))
    except NotForKernel as reason:
        return str(reason)
    together = next(served_together(query), None)
    if together is None or knows_shared_events(query):
        return None
    one, other = (query.inputs[index].name for index in together)
    return f"an event may be both '{one}' and '{other}' of a key, and keys with such an event need it"


EVENTS_A_SECOND = 20_000
"""Of a query on the reference matcher, about, where windows hold few events.

The bench part *words* measures it.
"""

COMBINATIONS_A_SECOND = 60_000
"""That a `find every` of several names tries on the reference matcher, about."""

IN_WINDOWS = 20
"""Events, for an estimate of what depends on how many windows hold."""

MANY_ROWS = 1_000_000
"""For an estimate where the number of rows is not known."""

TIMES_SLOWER = 100
"""Than on a kernel, about."""


def slow_queries(plan: Plan, rows: int | None = None) -> list[str]:
    """A line for each query of the plan that runs on the reference matcher, with an estimate.

    rows: how many rows there will be, about; None = unknown
    """
    return [_line(slow, _estimate(slow, rows)) for slow in _slow_queries(plan)]


def warn_if_slow(plan: Plan, rows: int | None) -> None:
    """Log a warning for each query on the reference matcher, unless it takes less than a second.

    rows: as of `slow_queries`
    """
    for slow in _slow_queries(plan):
        if rows is None or rows * slow.seconds >= 1:
            warn(_line(slow, _estimate(slow, rows)))


def warn_of_rate(plan: Plan) -> None:
    """The same where rows come bit by bit: how many a second."""
    for slow in _slow_queries(plan):
        warn(_line(slow, f"{1 / slow.seconds:,.0f} events a second", "fewer"))


@dataclass(frozen=True, slots=True)
class _Slow:
    """A query on the reference matcher, and why it is there.

    names: of a `find every` of several, which tries all combinations of so many events; else 1
    """

    name: str
    reason: str
    names: int

    @property
    def combinations(self) -> int:
        """How many it tries for one event."""
        return comb(IN_WINDOWS, self.names) if self.names > 1 else 0

    @property
    def seconds(self) -> float:
        """Of a processor for one event."""
        return 1 / EVENTS_A_SECOND + self.combinations / COMBINATIONS_A_SECOND


def _slow_queries(plan: Plan) -> Iterator[_Slow]:
    # Instances differ in values of parameters only, so one of them is enough.
    for name, query in {query.name: query for query in plan.queries}.items():
        reason = why_not_kernel(plan, query)
        if reason is not None:
            yield _Slow(name, reason, 1 if query.every is None else len(query.terms))


def _line(slow: _Slow, estimate: str, more: str = "more") -> str:
    where = "" if not estimate else f" ({estimate}{_windows(slow, more)})"
    return (
        f"query '{slow.name}' runs on the reference matcher, about {TIMES_SLOWER} times slower than a kernel{where}:"
        f" {slow.reason}"
    )


def _windows(slow: _Slow, more: str) -> str:
    if slow.names == 1:
        return f", {more} where windows hold many events"
    return (
        f" where windows hold {IN_WINDOWS} events: for each event it tries all combinations of {slow.names} of them,"
        f" which are {slow.combinations:,}"
    )


def _estimate(slow: _Slow, rows: int | None) -> str:
    """How long all rows take; "" = less than a second."""
    if rows is None:
        return f"{duration_text(MANY_ROWS * slow.seconds)} of a processor for a million rows"
    return f"{duration_text(rows * slow.seconds)} for these {rows:,} rows" if rows * slow.seconds >= 1 else ""


def why_enumerated(plan: Plan, query: QueryPlan) -> str | None:
    """Why the candidates of a `find every` are enumerated for each match; None if they are not."""
    if query.every is None:
        return None
    if is_of_runs(query):
        if query.gaps:
            return "it has a `wait` between steps"
        return "it uses `prev`" if has_additions(query) else "an aggregate needs all values at once"
    try:
        sliding = compile_query(query, types_with_actions(plan)).sliding
    except NotForKernel:
        return "it runs on the reference matcher"
    return sliding if isinstance(sliding, str) else None


def limit_of(query: QueryPlan) -> str | None:
    """What ends a search of too many steps, or makes it dear; None: it needs no limit."""
    cost = search_cost(query) if query.has_runs else SearchCost(is_ended=False, power=0)
    if cost.is_ended:
        reason = "all candidates are wanted" if query.finds_all else "a condition depends on all events of a run"
        return f"{reason}: a search of more than {MOST_BOUND:,} steps is ended, with an error row; {_WAYS_OUT}"
    if cost.power >= 2:
        events = f"the {cost.power_text} of the events in the windows"
        return f"a search that finds nothing may take {events}; {_WAYS_OUT}"
    return None


_WAYS_OUT = "`consecutive`, a `within` of the pattern or `retain` keeps it short"


# Print what the kernel interprets for a query: states, transitions, conditions and their programs.
#
# `ensue explain FILE --program` shows it. Numbers of conditions are those of `ensue explain`, from
# 1 on; all others are the kernel's own, from 0 on. `-` means none.

_SKIPS = (Operation.SKIP_IF_FALSE, Operation.SKIP_IF_TRUE, Operation.JUMP, Operation.JUMP_UNLESS)
_FUNCTIONS: dict[Operation, type[IntEnum]] = {
    Operation.OF_FLOAT: OfFloat,
    Operation.OF_FLOATS: OfFloats,
    Operation.OF_INTEGER: OfInteger,
    Operation.OF_INTEGERS: OfIntegers,
    Operation.ROUNDED: ToInteger,
}
_ENTRIES = (Operation.LOCAL_I, Operation.LOCAL_F, Operation.SET_I, Operation.SET_F)


def listing(plan: Plan, query: QueryPlan) -> str:
    """The tables and programs of a query; or why it needs the reference matcher."""
    types = types_with_actions(plan)
    try:
        chain = compile_all_of_chain(query, types)
        if chain is None and is_of_runs(query):
            return f"query {query.title}\n  has no listing: its pattern has a kernel of its own"
        compiled = chain or compile_query(query, types)
    except NotForKernel as reason:
        return f"query {query.title}\n  on the reference matcher: {reason}"
    sections = [
        ("states", _states(query, compiled)),
        ("transitions", _transitions(query, compiled)),
        ("conditions", list(_conditions(query, compiled))),
        ("aggregates", list(_aggregates(query, compiled))),
    ]
    shown = [_section(title, lines) for title, lines in sections if lines]
    return "\n".join([f"query {query.title}", *shown])


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"  {title}", *(f"    {line}" for line in lines)])


def _states(query: QueryPlan, compiled: CompiledQuery) -> list[str]:
    rows = [("state", "transitions", "input", "linked", "events needed", "dead ends", "looks ahead")]
    for number, state in enumerate(compiled.automaton.states):
        first, last = int(state["first_transition"]), int(state["stop_transition"]) - 1
        rows.append(
            (
                str(number),
                str(first) if first == last else f"{first} to {last}",
                "several" if state["input"] < 0 else query.inputs[state["input"]].name,
                "yes" if state["link_row"] >= 0 else "-",
                str(state["events_needed"]),
                _dead_ends(query, compiled, state),
                _looks_ahead(state),
            )
        )
    return _aligned(rows)


def _dead_ends(query: QueryPlan, compiled: CompiledQuery, state: Records) -> str:
    if state["dead_end_row"] < 0:
        return "-"
    terms = compiled.automaton.dead_end_terms[state["first_dead_end_term"] : state["stop_dead_end_term"]]
    names = ", ".join(query.terms[term].name for term in terms)
    by = f"by event of {names}" if names else "by position"
    return f"{by}, lasting" if state["is_lasting"] else by


def _looks_ahead(state: Records) -> str:
    if state["lookahead_after"] >= NEVER:
        return "-"
    also = "" if state["lookahead_also"] < 0 else f" and {state['lookahead_also']}"
    return f"program {state['lookahead_program']}{also} after {state['lookahead_after']} events"


def _transitions(query: QueryPlan, compiled: CompiledQuery) -> list[str]:
    automaton = compiled.automaton
    rows = [("transition", "takes", "for", "comparisons", "other checks", "then", "ties with")]
    for number, item in enumerate(automaton.transitions):
        terms = [item["term"], *automaton.binds[item["first_bind"] : item["stop_bind"]]]
        conditions = [int(check) + 1 for check in automaton.checks["condition"]]
        rows.append(
            (
                str(number),
                query.inputs[item["input"]].name,
                ", ".join(query.terms[term].name for term in terms),
                _numbers(conditions[item["first_check"] : item["first_other_check"]]),
                _numbers(conditions[item["first_other_check"] : item["stop_check"]]),
                "match" if item["target"] < 0 else f"state {item['target']}",
                _numbers(range(number + 1, item["tied_until"])),
            )
        )
    return _aligned(rows)


def _conditions(query: QueryPlan, compiled: CompiledQuery) -> Iterator[str]:
    names = Names.of(query)
    for index, condition in enumerate(query.conditions):
        record = compiled.conditions.conditions[index]
        yield f"{index + 1}  {condition_text(condition, query, names)}: {_how(index, condition, query, record)}"
        own = names.with_term(condition.name) if isinstance(condition, Without) else names
        if record["program"] >= 0:
            yield from _program(compiled, int(record["program"]), own)


def _how(index: int, condition: Condition, query: QueryPlan, record: Records) -> str:
    """How the kernel checks a condition."""
    late = " when the trailing wait ends" if index in query.decided_late else ""
    match ConditionKind(int(record["kind"])):
        case ConditionKind.COMPARISON if record["operation"] == TRUTH:
            return f"a column, program {record['program']}"
        case ConditionKind.COMPARISON:
            return f"a comparison, program {record['program']}"
        case ConditionKind.WHERE:
            return f"program {record['program']}"
        case ConditionKind.WITHIN:
            return "limits the search" if is_whole(condition) and not late else f"the range is measured{late}"
        case ConditionKind.WITHOUT if record["count_row"] >= 0:
            return f"the range is counted{late}, count row {record['count_row']}"
        case ConditionKind.WITHOUT:
            program = f", program {record['program']}" if record["program"] >= 0 else ""
            return f"the range is scanned{late}{program}"


def _aggregates(query: QueryPlan, compiled: CompiledQuery) -> Iterator[str]:
    names = Names.of(query)
    for index, node in enumerate(compiled.aggregates):
        program = int(compiled.arguments.program[index])
        yield f"{expression_text(node, names)}: {_function(node, compiled, index)}"
        if program >= 0:
            yield from _program(compiled, program, names)


def _function(node: Aggregate, compiled: CompiledQuery, index: int) -> str:
    function = Function(int(compiled.arguments.function[index])).name
    return f"{function}, program {compiled.arguments.program[index]}" if node.arguments else function


def _program(compiled: CompiledQuery, number: int, names: Names) -> Iterator[str]:
    """A program's instructions, their numbers in the margin."""
    steps = instructions(compiled.program, number)
    width = len(str(len(steps) - 1))
    for at, (operation, first, second) in enumerate(steps):
        argument = _argument(compiled, names, at, operation, first, second)
        yield f"     {at:>{width}} {operation.name}{argument and f' {argument}'}"


def _argument(compiled: CompiledQuery, names: Names, at: int, operation: Operation, first: int, second: int) -> str:
    program = compiled.program
    if operation in PUSHES:
        operands = program.float_operands if operation is Operation.PUSH_F else program.integer_operands
        own = names.terms[second] if second < len(names.terms) else ""
        return expression_text(operands[first].expression, Names((own,), names.keys))
    if operation is Operation.CONSTANT_F:
        return literal_text(float(program.float_constants[first]))
    if operation is Operation.CONSTANT_I:
        text = dict(program.ranked).get(first)
        return str(program.integer_constants[first]) if text is None else f"rank of {literal_text(text)}"
    if operation in _FUNCTIONS:
        return _FUNCTIONS[operation](first).name
    if operation in _ENTRIES:
        return f"entry {first}"
    if operation is Operation.NULL_CALL:
        return f"to {at + second + 1}"
    return f"to {at + first + 1}" if operation in _SKIPS else ""


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "-"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
