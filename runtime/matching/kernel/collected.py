"""What a `find every` asks of its candidates, and aggregates that need all of their values at once.

These are `nth`, `percentile`, `stddev`, `stddev2` and `wavg`; `runtime.interpreter.aggregates`
defines them. The kernel only writes down the values of the candidates that a search has found; the
rest is done in columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from querylang.dataclass import dataclass
from querylang.plan.expression import Aggregate, Expression, Type, terms_of
from querylang.plan.model import QueryPlan
from runtime.column_types import Integers
from runtime.compiling.compiled import borrowing
from runtime.matching.kernel.aggregates import (
    CHUNK_BITS,
    LOW_BITS,
    Aggregated,
    Arguments,
    ExactSums,
    Function,
    add_to_sum,
    bind_found,
    clear_sum,
    mean_of_integers,
    new_exact_sums,
    rounded_sum,
    state_of_argument,
)
from runtime.matching.kernel.building import is_operand
from runtime.matching.kernel.evaluator import KNOWN, LoadedProgram
from runtime.matching.kernel.program import Form, KernelProgram, NotForKernel, operand_of
from runtime.matching.kernel.tables import Records, ends_of
from runtime.matching.kernel.workspace import Matches

Floats = NDArray[np.float64]
Values = Integers | Floats

COLLECTED = frozenset({"nth", "percentile", "stddev", "stddev2", "wavg"})


@dataclass(frozen=True, slots=True)
class Collected:
    """An aggregate whose values are written down.

    index: of the aggregate
    arguments: the numbers of its arguments among all that are written down
    """

    index: int
    function: str
    arguments: tuple[int, ...]


def collect(
    collected: Sequence[Collected], asked: Arguments, values: Aggregated, match: Integers, results: Aggregated
) -> None:
    """Writes the aggregates of candidates, newest first within each match, into the results.

    asked: the arguments of all of them
    values: of the arguments, by (argument, candidate)
    match: by candidate
    """
    for one in collected:
        # A candidate counts if it has all arguments, a match if it has such a candidate.
        candidates = np.flatnonzero(values.is_valid[list(one.arguments)].all(axis=0))
        own = match[candidates]
        begins = np.flatnonzero(np.diff(own, prepend=-1))
        columns = [
            (values.floats if asked.is_float[number] else values.integers)[number, candidates]
            for number in one.arguments
        ]
        with np.errstate(all="ignore"):  # as the interpreter: what overflows is infinite
            found, has_value = _FUNCTIONS[one.function](*columns, np.append(begins, len(own)))
        matches = own[begins]
        results.is_valid[one.index, matches] = has_value
        (results.integers if found.dtype == np.int64 else results.floats)[one.index, matches] = found


Result = tuple[Values, NDArray[np.bool_]]
"""By match the value, and whether there is one."""


def _nth(values: Values, places: Integers, first: Integers) -> Result:
    sizes, place = np.diff(first), places[first[:-1]]
    has_value = (place >= 0) & (place < sizes)
    return values[np.where(has_value, first[1:] - 1 - place, first[:-1])], has_value


def _percentile(values: Values, shares: Values, first: Integers) -> Result:
    share, match = shares[first[:-1]].astype(np.float64), np.repeat(np.arange(len(first) - 1), np.diff(first))
    is_number = ~np.isnan(values)
    match, numbers = match[is_number], values[is_number].astype(np.float64)
    ordered = numbers[np.lexsort((~np.signbit(numbers), numbers, match))]  # -0.0 before 0.0
    sizes = np.bincount(match, minlength=len(share))
    if not len(ordered):
        return np.full(len(share), math.nan), np.ones(len(share), np.bool_)
    is_share = (share >= 0.0) & (share <= 100.0)
    place = (np.maximum(sizes, 1) - 1) * np.where(is_share, share, 0.0) / 100.0
    low = np.floor(place).astype(np.int64)
    between, at = place - low, np.minimum(np.cumsum(sizes) - sizes + low, len(ordered) - 1)
    below, above = ordered[at], ordered[np.minimum(at + 1, len(ordered) - 1)]
    is_exact = (between == 0.0) | (below == above)
    result = np.where(is_exact, below, below + (above - below) * between)
    return np.where(sizes > 0, result, math.nan), is_share | (sizes == 0)


def _deviation(values: Values, first: Integers, less: int) -> Result:
    sizes = np.diff(first)
    middles = _means(values, first)
    distances = values.astype(np.float64) - np.repeat(middles, sizes)
    squares = _sums(distances * distances, first)
    result = np.sqrt(squares / np.maximum(sizes - less, 1))
    return np.where((sizes > less) & np.isfinite(middles), result, math.nan), np.ones(len(sizes), np.bool_)


def _weighted(values: Values, weights: Values, first: Integers) -> Result:
    floats = weights.astype(np.float64)
    heavy, total = _sums(floats, first), _sums(values.astype(np.float64) * floats, first)
    return np.where(heavy == 0.0, math.nan, total / heavy), np.ones(len(heavy), np.bool_)


_FUNCTIONS: dict[str, Callable[..., Result]] = {
    "nth": _nth,
    "percentile": _percentile,
    "stddev": lambda values, first: _deviation(values, first, 0),
    "stddev2": lambda values, first: _deviation(values, first, 1),
    "wavg": _weighted,
}


def _sums(values: Floats, first: Integers) -> Floats:
    result = np.empty(len(first) - 1)
    sums_of_parts(values, first, new_exact_sums(1), result)
    return result


def _means(values: Values, first: Integers) -> Floats:
    sizes = np.diff(first)
    if values.dtype == np.float64:
        return _sums(cast("Floats", values), first) / sizes
    if not len(sizes):
        return np.empty(0)
    result, integers = np.empty(len(sizes)), cast("Integers", values)
    high, low = (np.add.reduceat(part, first[:-1]) for part in (integers >> CHUNK_BITS, integers & LOW_BITS))
    means_of_integers(high, low, sizes, result)
    return result


@borrowing
def sums_of_parts(values: Floats, first: Integers, sums: ExactSums, results: Floats) -> None:
    """The exact sum of each part, rounded once; `first`: where each begins, then the end."""
    for part in range(len(results)):
        clear_sum(sums, 0)
        for at in range(first[part], first[part + 1]):
            add_to_sum(sums, 0, values[at], 1)
        results[part] = rounded_sum(sums, 0)


@borrowing
def means_of_integers(high: Integers, low: Integers, sizes: Integers, results: Floats) -> None:
    """Each `mean_of_integers`."""
    for part in range(len(results)):
        results[part] = mean_of_integers(high[part], low[part], sizes[part])


@borrowing
def write_values(
    program: LoadedProgram,
    asked: Arguments,
    transitions: Records,
    binds: Integers,
    found: Matches,
    count: int,
    bindings: Integers,
    values: Aggregated,
) -> None:
    """Writes the values of arguments down, by (argument, candidate), of the first `count` found.

    bindings: room for the events of one candidate, by term
    """
    for number in range(count):
        bind_found(transitions, binds, found, number, bindings)
        for index in range(len(asked.program)):
            values.is_valid[index, number] = state_of_argument(program, asked, index, bindings) == KNOWN
            if asked.is_float[index]:
                values.floats[index, number] = program.stack_floats[0]
            else:
                values.integers[index, number] = program.stack_integers[0]


# What the kernel asks of each candidate for the aggregates of a query.


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an aggregate, and what stands for it; None = nothing is asked one by one."""

    expression: Expression | None
    form: Form = Form.VALUE


def asked_of(node: Aggregate) -> Argument:
    """What the kernel adds up."""
    if not node.arguments or node.function in COLLECTED:
        return Argument(None)
    return Argument(node.arguments[0], form_of(node))


def _written_down(node: Aggregate) -> list[Argument]:
    """What is written down of each candidate."""
    first, *others = node.arguments
    return [Argument(first, form_of(node)), *map(Argument, others)]


def collected_of(aggregates: Sequence[Aggregate]) -> tuple[list[Collected], list[Argument]]:
    """The aggregates that need all of their values, and what is written down for them."""
    found, asked = list[Collected](), list[Argument]()
    for index, node in enumerate(aggregates):
        if node.function in COLLECTED:
            own = _written_down(node)
            found.append(Collected(index, node.function, tuple(range(len(asked), len(asked) + len(own)))))
            asked += own
    return found, asked


def refuse_by_recency(aggregates: Sequence[Aggregate]) -> None:
    """Raises NotForKernel for what asks which candidate is newer: ties come in any order."""
    for node in aggregates:
        if node.function == "nth" or (node.function == "percentile" and terms_of(node.arguments[1])):
            raise NotForKernel(f"the aggregate `{node.function}` where one event may serve different names")


def programs_of(asked: Sequence[Argument], first: int) -> Iterator[int]:
    """By argument, the number of its program, from `first` on; -1 = no argument."""
    for item in asked:
        yield -1 if item.expression is None else first
        first += item.expression is not None


def forms_of(asked: Sequence[Argument], programs: Sequence[int]) -> dict[int, Form]:
    """By program of an argument that has another form than its value: that form."""
    return {number: item.form for number, item in zip(programs, asked, strict=True) if item.form is not Form.VALUE}


def arguments_of(
    functions: Sequence[Function],
    asked: Sequence[Argument],
    query: QueryPlan,
    program: KernelProgram,
    programs: Sequence[int],
) -> Arguments:
    """The table of arguments; `functions` and `programs`: of each of them."""
    mentions = [
        [term for term in sorted(terms_of(item.expression)) if query.terms[term].is_optional]
        if item.expression is not None
        else []
        for item in asked
    ]
    operands = [None if number < 0 else operand_of(program, number) for number in programs]
    is_float = [
        item.expression is not None and item.expression.type == Type.FLOAT and item.form is Form.VALUE for item in asked
    ]
    return Arguments(
        function=np.array([int(function) for function in functions], np.int64),
        program=np.array(programs, np.int64),
        operand=np.array([-1 if item is None else item[0] for item in operands], np.int64),
        term=np.array([-1 if item is None else item[1] for item in operands], np.int64),
        is_float=np.array(is_float, np.bool_),
        first=ends_of([len(terms) for terms in mentions]),
        mentions=np.array([term for terms in mentions for term in terms], np.int64),
    )


_OF_KERNEL = {
    "countUnique": Function.COUNT_UNIQUE,
    "sum": Function.SUM,
    "avg": Function.MEAN,
    "mean": Function.MEAN,
    "min": Function.MIN,
    "max": Function.MAX,
    "first": Function.FIRST,
    "last": Function.LAST,
}


def function_of(node: Aggregate) -> Function:
    """The kernel's function for an aggregate; raises NotForKernel."""
    if node.function in ("countUnique", "first", "last"):
        return _OF_KERNEL[node.function]
    types = [argument.type for argument in node.arguments]
    if node.function == "nth" or (node.function in COLLECTED and set(types) <= {Type.INTEGER, Type.FLOAT}):
        return Function.COLLECTED
    if not types and node.function == "count":
        return Function.COUNT
    if types == [Type.BOOLEAN] and node.function == "count":
        return Function.COUNT_TRUE
    if types == [Type.FLOAT] and node.function == "count":
        return Function.COUNT_NUMBERS
    if node.function in _OF_KERNEL and types in ([Type.INTEGER], [Type.FLOAT], [Type.BOOLEAN]):
        return _OF_KERNEL[node.function]
    if node.function in ("min", "max") and types in ([Type.STRING], [Type.DECIMAL]) and is_operand(node.arguments[0]):
        return _OF_KERNEL[node.function]
    raise NotForKernel(f"the aggregate `{node.function}` of {' and '.join(map(str, types))}")


def form_of(node: Aggregate) -> Form:
    """What stands for the argument of an aggregate."""
    if node.function == "countUnique":
        return Form.NUMBER
    is_number = bool(node.arguments) and node.arguments[0].type in (Type.INTEGER, Type.FLOAT, Type.BOOLEAN)
    return Form.POSITION if node.function in ("first", "last", "nth") and not is_number else Form.VALUE
