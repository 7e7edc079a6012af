"""Read the columns of the compiled search: operands of conditions, and counts for each `without`.

Expressions are evaluated over table rows (`runtime.columns.expressions`), before the search begins,
and put in the order of positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.plan.expression import EventOf, FieldOf, Invoke, KeyOf, Kind, Type, terms_of, walk
from querylang.plan.model import Plan, QueryPlan
from runtime.column_types import Integers, has_column, one_chunk
from runtime.columns.arrivals import column_name
from runtime.columns.expressions import Column, as_array, evaluate, with_keys
from runtime.columns.keys import key_columns, key_values
from runtime.compiling.compiled import kernel
from runtime.interpreter import PlanWorld, order_key
from runtime.matching.interface import Ordered
from runtime.matching.kernel.evaluator import FAILED, KNOWN, NULL, LoadedProgram, new_stacks
from runtime.matching.kernel.program import Form, KernelProgram, Operand
from runtime.matching.kernel.workspace import Events

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Counted:
    """A `without` whose events do not depend on the candidate.

    input: whose events they are
    about: the condition that they fulfil; None = all events of the input
    """

    input: int
    about: Operand | None


class Reader:
    """Reads a query's columns from events."""

    def __init__(self, plan: Plan, query: QueryPlan, program: KernelProgram, counted: Sequence[Counted]) -> None:
        self._plan, self._query, self._program, self._counted = plan, query, program, tuple(counted)
        operands = [*program.float_operands, *program.integer_operands]
        computed = [*operands, *(item.about for item in counted if item.about is not None)]
        mentions_keys = any(isinstance(node, KeyOf | Invoke) for item in computed for node in walk(item.expression))
        self._may_mention_keys = mentions_keys and bool(query.keys)
        self._nulls_fail = PlanWorld(plan, query).nulls_fail

    def read(self, events: Ordered) -> tuple[LoadedProgram, Events]:
        """The program with its operands, and the events, counted for each `without`."""
        program, table = self._program, self._with_keys(events.table)
        columns = [self._integers(item, table, events) for item in program.integer_operands]
        columns, constants = _ranked(program, columns)
        integers = self._operands(program.integer_operands, columns, events, np.int64)
        columns = [self._column(item, table) for item in program.float_operands]
        floats = self._operands(program.float_operands, columns, events, np.float64)
        is_complete = bool((integers[2] < 0).all() and (floats[2] < 0).all())
        operands = constants, program.float_constants, *integers, *floats
        loaded = LoadedProgram(program.code, program.ends, *operands, is_complete, *new_stacks())
        counts = self._counts(events, table)
        columns_of_events = events.start, events.fresh, events.input, events.time, events.superseded
        return loaded, Events(*columns_of_events, counts, events.may_end, _first_positions(events), events.number)

    def _with_keys(self, table: pa.Table) -> pa.Table:
        if not self._may_mention_keys:
            return table
        kinds = table.column("_kind").to_numpy()
        return with_keys(
            table, self._query, key_values(self._query, key_columns(table, kinds, self._plan, self._query))
        )

    def values_at(self, item: Operand, events: Ordered, positions: Integers) -> pa.Array:
        """The values of an operand's expression at these positions."""
        taken = pa.array(events.row[positions].astype(np.int64))
        field = self._field(item, events.table)
        if field is not None:
            return field.take(taken)
        rows = events.table.take(taken)
        event = self._plan.event(item.events[0])
        return as_array(item.expression, self._with_keys(rows), self._plan, event, self._query)

    def positions_of_ranks(self, number: int, events: Ordered, loaded: LoadedProgram) -> Integers:
        """By rank of an integer operand's values, the position of one of them."""
        ranks, mask = loaded.integer_columns[number], int(loaded.integer_mask[number])
        is_read = self._inputs_of(self._program.integer_operands[number])[events.input]
        known = np.flatnonzero(is_read & (loaded.integer_state[mask] == KNOWN) if mask >= 0 else is_read)
        result = np.zeros(ranks.max(initial=0) + 1, np.int64)
        result[ranks[known]] = known
        return result

    def _integers(self, item: Operand, table: pa.Table, events: Ordered) -> Column:
        """The column of an integer operand, in its form."""
        if item.form is Form.VALUE:
            return self._column(item, table)
        if item.form is Form.POSITION and isinstance(item.expression, EventOf):
            column = Column(None)
        elif (field := self._field(item, table)) is not None:
            column = Column(field, field.is_valid().to_numpy(zero_copy_only=False) if field.null_count else None)
        else:
            column = self._column(item, table)
            # Whoever leaves out nulls leaves out empty optionals, too.
            if not self._nulls_fail and isinstance(column.values, list):
                there = np.fromiter((value is not None for value in column.values), np.bool_, len(table))
                column = replace(column, valid=there if column.valid is None else column.valid & there)
        if item.form is Form.NUMBER:
            return replace(column, values=_numbers(column.values))
        return replace(column, values=_positions(events.row, len(table)).astype(np.int64))

    def _field(self, item: Operand, table: pa.Table) -> pa.Array | None:
        """The column of a field, where its cells are its values; else None."""
        about = item.expression
        if not isinstance(about, FieldOf):
            return None
        is_list = about.type.kind is Kind.SEQUENCE and about.type.of[0].is_scalar and item.form is Form.POSITION
        if about.type not in _PLAIN and not is_list:
            return None
        name = column_name(about.field, about.type)
        return one_chunk(table.column(name)) if has_column(table, name) else None

    def _column(self, item: Operand, table: pa.Table) -> Column:
        return evaluate(item.expression, table, self._plan, self._plan.event(item.events[0]), self._query)

    def _operands(
        self, operands: Sequence[Operand], columns: Sequence[Column], events: Ordered, kind: type
    ) -> tuple[NDArray[Any], NDArray[np.int8], NDArray[np.int32]]:
        """Values by (operand, position); states of values; and by operand its row in the states.

        The row is -1 if the operand has a value on all events of its types.
        """
        values: NDArray[Any] = np.empty((max(1, len(columns)), len(events.row)), kind)
        mask = np.full(max(1, len(columns)), -1, np.int32)
        states: list[NDArray[np.int8]] = []
        # For several columns it pays to invert the order first: see `_scatter`.
        positions = _positions(events.row, len(events.table)) if len(columns) > 1 else None
        for index, (item, column) in enumerate(zip(operands, columns, strict=True)):
            if positions is None:
                _gather(column.values, events.row, values[index])
            else:
                _scatter(column.values, positions, values[index])
            # An operand without gaps needs no mask, so that the search need not look at it.
            if column.valid is not None:
                state = np.empty(len(events.row), np.int8)
                if _gather_states(_states(column), events.row, events.input, self._inputs_of(item), state):
                    mask[index] = len(states)
                    states.append(state)
        return values, np.array(states) if states else np.ones((1, 1), np.int8), mask

    def _inputs_of(self, item: Operand) -> Mask:
        """By input, whether an operand is read from its events; one about keys is read from all."""
        is_any = not terms_of(item.expression)
        return np.array([is_any or own.event in item.events for own in self._query.inputs])

    def _counts(self, events: Ordered, table: pa.Table) -> NDArray[np.int32]:
        count = len(events.row) + 1 if self._counted else 1
        counts = np.zeros((max(1, len(self._counted)), count), np.int32)
        for number, item in enumerate(self._counted):
            is_one = np.empty(0, np.bool_)
            if item.about is not None:
                column = self._column(item.about, table)
                is_one = column.values if column.valid is None else column.values & column.valid
            _count(events.input, item.input, is_one, events.row, counts[number])
        return counts


def _first_positions(events: Ordered) -> Integers:
    """By position, the first one of its event; empty if each event has one."""
    first = np.arange(len(events.row) if len(events.event) else 0)
    return first if len(first) and _fill_first(events.start, events.event, first) else first[:0]


def _states(column: Column) -> NDArray[np.int8]:
    """By row KNOWN, NULL or FAILED."""
    assert column.valid is not None, "who asks has seen a row without a value"
    states = np.where(column.valid, np.int8(KNOWN), np.int8(NULL))
    if column.failed is not None:
        states[column.failed] = FAILED
    return states


@kernel
def _fill_first(start: Integers, event: Integers, first: Integers) -> bool:
    """Fills in the first position of each event, and whether any has several."""
    has_several = False
    for key in range(len(start) - 1):
        for position in range(start[key], start[key + 1]):
            if position > start[key] and event[position] == event[position - 1]:
                first[position], has_several = first[position - 1], True
    return has_several


@kernel
def _gather(values: NDArray[Any], row: NDArray[np.int32], into: NDArray[Any]) -> None:
    """The values of these rows, in their order."""
    for position in range(len(row)):
        into[position] = values[row[position]]


@kernel
def _positions(row: NDArray[np.int32], count: int) -> NDArray[np.int32]:
    """By table row, its position; -1 = none."""
    positions = np.full(count, -1, np.int32)
    for position in range(len(row)):
        positions[row[position]] = position
    return positions


@kernel
def _scatter(values: NDArray[Any], positions: NDArray[np.int32], into: NDArray[Any]) -> None:
    """The same as `_gather`, for rows that have one position each.

    Random writes are faster than random reads once the positions are known: those of one key are
    neighbours.
    """
    for row in range(len(positions)):
        if positions[row] >= 0:
            into[positions[row]] = values[row]


@kernel
def _gather_states(
    states: NDArray[np.int8],
    row: NDArray[np.int32],
    input_of: NDArray[np.int16],
    needed: Mask,
    into: NDArray[np.int8],
) -> bool:
    """The same for the states of values; whether a value is missing for an input that needs it."""
    missing = False
    for position in range(len(row)):
        state = states[row[position]]
        into[position] = state
        missing |= (state != KNOWN) & needed[input_of[position]]
    return missing


@kernel
def _count(
    input_of: NDArray[np.int16], item: int, is_one: Mask, row: NDArray[np.int32], into: NDArray[np.int32]
) -> None:
    """Counts, before each position, the events of the input `item` for which `is_one` is true.

    `is_one`: by row; empty = true for all.
    """
    count = 0
    for position in range(len(row)):
        into[position] = count
        count += (input_of[position] == item) & (len(is_one) == 0 or is_one[row[position]])
    into[len(row)] = count


def _ranked(program: KernelProgram, columns: Sequence[Column]) -> tuple[list[Column], Integers]:
    """The columns of integer operands and the constants, with ranks in place of texts and decimals.

    A rank is that among all values of its type in these columns and constants, so ranks compare as
    the values do, and the program compares integers only. The order of texts is that of code
    points.
    """
    result, constants = list(columns), program.integer_constants.copy()
    for type_, ranks_of in ((Type.STRING, _ranks_of_texts), (Type.DECIMAL, _ranks_of_decimals)):
        kind = str if type_ == Type.STRING else Decimal
        operands = enumerate(program.integer_operands)
        used = [index for index, item in operands if item.form is Form.VALUE and item.expression.type == type_]
        own = [(index, value) for index, value in program.ranked if isinstance(value, kind)]
        if used or own:
            # The ranks come back in the order of the parts: those of the columns first.
            *ranks, last = ranks_of([columns[index].values for index in used], [value for _, value in own])
            for index, values in zip(used, ranks, strict=True):
                result[index] = replace(columns[index], values=values)
            constants[[index for index, _ in own]] = last
    return result, constants


def _ranks_of_texts(columns: Sequence[pa.Array], constants: Sequence[Any]) -> list[Integers]:
    # One dictionary for all of them, so that equal texts have equal ranks in every column.
    parts = [*columns, pa.array(constants, pa.string())]
    encoded = pa.concat_arrays(parts).dictionary_encode()
    rank = np.empty(len(encoded.dictionary), np.int64)
    rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
    ranks = rank[encoded.indices.fill_null(0).to_numpy()] if len(rank) else np.zeros(len(encoded), np.int64)
    return np.split(ranks, np.cumsum([len(part) for part in parts])[:-1])


def _ranks_of_decimals(columns: Sequence[Sequence[Any]], constants: Sequence[Any]) -> list[Integers]:
    # Rows without a value have any rank, as it is never read.
    parts = [*columns, constants]
    values = {value for part in parts for value in part if isinstance(value, Decimal)}
    rank = {value: place for place, value in enumerate(sorted(values))}
    return [np.array([rank.get(value, 0) for value in part], np.int64) for part in parts]


_PLAIN = (Type.STRING, Type.DECIMAL)
"""Types whose cells in Arrow are values, and equal if the values are."""


def _numbers(values: Any) -> Integers:
    """Numbers from 0 on in place of values; rows without a value have any number."""
    if isinstance(values, list):
        numbers = dict[Any, int]()
        return np.array([numbers.setdefault(order_key(value), len(numbers)) for value in values], np.int64)
    if isinstance(values, np.ndarray) and values.dtype == np.float64:
        # Arrow tells apart zeros by their sign, and NaN by their bits.
        values = np.where(np.isnan(values), np.nan, values + 0.0)
    array = values if isinstance(values, pa.Array) else pa.array(values)
    return np.asarray(array.dictionary_encode().indices.fill_null(0).to_numpy(), np.int64)
