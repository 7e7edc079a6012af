"""Conditions as programs for a small stack machine, which the kernel interprets.

A program is data: nothing is compiled per query. *Operands* are expressions over one event; they
are computed beforehand, as columns (`runtime.columns.expressions`). Only what joins several events
is left for the program. Integers and booleans are on one stack, floats on another; all types are
known when the program is built. An expression that a program cannot express raises `NotForKernel`
with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from querylang.dataclass import dataclass, field, replace
from querylang.plan.expression import (
    Call,
    EndOf,
    EventOf,
    Expression,
    FieldOf,
    Fold,
    Literal,
    MemberOf,
    PrevOf,
    Type,
    rewritten,
    walk,
)
from querylang.plan.model import QueryPlan, Where, Without
from runtime.exact_times import MICROSECONDS

STACK = 64
"""The most values on each of a program's stacks."""

CALL = 256
"""In the first argument of NULL_CALL: integers + CALL * floats, + CALL² for a float result."""


class NotForKernel(Exception):
    """Why a condition needs the reference matcher."""


@dataclass(frozen=True, slots=True)
class Computed(Literal):
    """A constant into whose place the search writes a value; no other constant has this value.

    It has a state, which the search writes, too: the value may be null.
    """


class Operation(IntEnum):
    """What an instruction does. I: on integers, booleans and ranks of strings; F: on floats.

    An instruction has two arguments, 0 where it needs fewer. Operations of one kind are neighbours:
    evaluators compare with the last one of each kind.
    """

    PUSH_I = 0  # operand, term
    PUSH_F = 1  # operand, term
    CONSTANT_I = 2  # constant, 1 more than the integer constant that is its state; 0: it is known
    CONSTANT_F = 3  # the same
    ADD_I = 10
    SUBTRACT_I = 11
    MULTIPLY_I = 12
    DIVIDE_I = 13
    REMAINDER_I = 14
    ADD_F = 20
    SUBTRACT_F = 21
    MULTIPLY_F = 22
    DIVIDE_F = 23
    REMAINDER_F = 24
    EQUAL_I = 30
    DIFFERENT_I = 31
    LESS_I = 32
    LESS_EQUAL_I = 33
    EQUAL_F = 40
    DIFFERENT_F = 41
    LESS_F = 42
    LESS_EQUAL_F = 43
    NOT = 50
    NEGATE_I = 51
    NEGATE_F = 52
    TO_FLOAT = 53
    TO_INTEGER = 54
    SKIP_IF_FALSE = 60  # how many instructions to skip; the value stays on the stack, as the result
    SKIP_IF_TRUE = 61  # the same
    AND = 62
    OR = 63
    OF_FLOAT = 70  # function of `runtime.matching.kernel.functions`
    OF_FLOATS = 71  # the same
    OF_INTEGER = 72  # the same
    OF_INTEGERS = 73  # the same
    ROUNDED = 74  # the same, a `ToInteger`
    BIT_EQUALS = 75
    LOCAL_I = 80  # entry of the stack: a copy of it is pushed
    LOCAL_F = 81  # the same
    SET_I = 82  # entry of the stack: what is on top goes there
    SET_F = 83  # the same
    JUMP = 84  # how many instructions to skip
    JUMP_UNLESS = 85  # the same, where what is on top is not true; it goes
    RETURN_I = 86  # entry for the result, which is on top; how many floats are left
    RETURN_F = 87  # entry for the result, which is on top; how many integers are left
    NULL_CALL = 88  # what is on top and would be the result, see CALL; how many to skip if a null is


TRUTH = 34
"""In a `Comparison`, instead of an operation of integers: the operand is true."""

PUSHES = (Operation.PUSH_I, Operation.PUSH_F)


class Form(IntEnum):
    """What stands for a value in a column."""

    VALUE = 0
    """Itself; of texts and decimals their rank."""
    NUMBER = 1
    """A number from 0 on: equal values have equal ones, NaN and NaN too."""
    POSITION = 2
    """The position of its event, where that has a value."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An expression over one event, computed as a column before the search.

    expression: over term 0
    events: the event types that it is computed for; several if they share a field, as all types
        share columns
    form: integers, if not VALUE
    """

    expression: Expression
    events: tuple[str, ...]
    form: Form = Form.VALUE


@dataclass(frozen=True, slots=True)
class KernelProgram:
    """All programs of a query, concatenated.

    code: one row per instruction: `Operation` and its two arguments
    ends: program p is `code[ends[p]:ends[p + 1]]`
    integer_constants, float_constants: what CONSTANT_I and CONSTANT_F push
    integer_operands, float_operands: what PUSH_I and PUSH_F push, numbered apart
    ranked: constants that are strings or decimals, each with its index in `integer_constants`,
        where its rank goes
    """

    code: NDArray[np.int32]
    ends: NDArray[np.int64]
    integer_constants: NDArray[np.int64]
    float_constants: NDArray[np.float64]
    integer_operands: tuple[Operand, ...]
    float_operands: tuple[Operand, ...]
    ranked: tuple[tuple[int, str | Decimal], ...]


def instructions(program: KernelProgram, number: int) -> list[tuple[Operation, int, int]]:
    """One program: its operations with their two arguments."""
    code = program.code[program.ends[number] : program.ends[number + 1]].tolist()
    return [(Operation(operation), first, second) for operation, first, second in code]


def operand_of(program: KernelProgram, number: int) -> tuple[int, int] | None:
    """The operand and the term of a program that only pushes it; None for any other program."""
    steps = instructions(program, number)
    return steps[0][1:] if len(steps) == 1 and steps[0][0] in PUSHES else None


class Comparison(NamedTuple):
    """A program that only compares two operands, as most do; `operation` is its last one.

    TRUTH: the program is a single operand, which is on both sides.
    """

    operation: int
    left: int
    left_term: int
    right: int
    right_term: int


def comparison(program: KernelProgram, number: int) -> Comparison | None:
    """What a program compares if that is all that it does; None for any other program."""
    steps = instructions(program, number)
    if len(steps) != 3 or not Operation.EQUAL_I <= steps[2][0] <= Operation.LESS_EQUAL_F:
        return None
    is_pushed = steps[0][0] in PUSHES and steps[1][0] in PUSHES
    return Comparison(steps[2][0], *steps[0][1:], *steps[1][1:]) if is_pushed else None


def truth(program: KernelProgram, number: int) -> Comparison | None:
    """A program that only asks whether an operand is true; None for any other program.

    Such is a condition about one event, which is computed as a column.
    """
    steps = instructions(program, number)
    is_pushed = len(steps) == 1 and steps[0][0] == Operation.PUSH_I
    return Comparison(TRUTH, *steps[0][1:], *steps[0][1:]) if is_pushed else None


def about_one_event(expression: Expression) -> Expression:
    """The expression with its only term renumbered to 0: equal expressions compare equal."""

    def first(node: Expression) -> Expression:
        return replace(node, term=0) if isinstance(node, FieldOf | EventOf) else node

    return rewritten(expression, first)


# Conditions about runs as expressions over slots, which a kernel program can evaluate.
#
# A program reads events by slot. The slots of a query are its terms; then one for each event before
# that is asked for, and for each first or last event of a run; and last the event of a `without`,
# before that any event of the key. A fold becomes a constant: the search computes the fold, and
# writes the value in the constant's place.


@dataclass(slots=True)
class Slots:
    """The slots of a query, and the folds of its conditions.

    prevs: by term, the slot of the event before it
    ends: by run and whether it is the first event, its slot
    folds: the constant that stands for each
    """

    query: QueryPlan
    prevs: dict[int, int] = field(default_factory=dict)
    ends: dict[tuple[int, bool], int] = field(default_factory=dict)
    folds: dict[Fold, Computed] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many slots there are."""
        return len(self.query.terms) + len(self.prevs) + len(self.ends) + 1

    def events(self, own: str) -> list[str | tuple[str, ...]]:
        """By slot, the type of its event, or all that it may have; `own`: that of the last one."""
        named = [self.query.inputs[term.input].event for term in self.query.terms]
        # The event before may be of any type that has the field.
        before = tuple(dict.fromkeys([named[0], *(item.event for item in self.query.inputs)]))
        return [*named, *(before for _ in self.prevs), *(named[term] for term, _ in self.ends), own]


def slots_of(query: QueryPlan) -> Slots:
    """All slots, so that each has its number before a program is made."""
    slots = Slots(query)
    nodes = [node for expression in conditions_of(query) for node in walk(expression)]
    terms = len(query.terms)
    for node in nodes:
        if isinstance(node, PrevOf):
            slots.prevs.setdefault(node.term, terms + len(slots.prevs))
    for node in nodes:
        if isinstance(node, EndOf):
            key = node.term, node.function == "first"
            slots.ends.setdefault(key, terms + len(slots.prevs) + len(slots.ends))
    literals = {node.value for node in nodes if isinstance(node, Literal) and not isinstance(node.value, str)}
    for node in nodes:
        if isinstance(node, Fold) and node not in slots.folds:
            slots.folds[node] = _stand_in(node, [*literals, *(item.value for item in slots.folds.values())])
    return slots


def conditions_of(query: QueryPlan) -> Iterator[Expression]:
    """The expressions of a query's conditions."""
    for item in query.conditions:
        if isinstance(item, Where | Without) and item.condition is not None:
            yield item.condition


def _stand_in(fold: Fold, taken: Sequence[object]) -> Computed:
    """A constant that no condition has."""
    if fold.type not in (Type.INTEGER, Type.FLOAT):
        raise NotForKernel(f"the fold `{fold.function}` of decimals")
    number = -(1 << 53)
    while number in taken:
        number -= 2
    return Computed(fold.type, float(number) if fold.type == Type.FLOAT else number)


def over_slots(expression: Expression, slots: Slots) -> Expression:
    """The expression with slots in place of terms."""
    terms = len(slots.query.terms)

    def change(node: Expression) -> Expression:
        match node:
            case Fold():
                return slots.folds[node]
            case PrevOf(type=type_, term=term, field=name):
                slot = slots.prevs[term]
                if name:
                    return FieldOf(type_, slot, name)
                return Call(
                    type_,
                    MICROSECONDS if type_ == Type.INTEGER else "getTime",
                    EventOf(Type.event(slots.query.inputs[slots.query.terms[0].input].event), slot),
                )
            case EndOf(type=type_, function=function, term=term):
                return EventOf(type_, slots.ends[term, function == "first"])
            case MemberOf(type=type_, receiver=EventOf(term=slot), field=name):
                return FieldOf(type_, slot, name)
            case FieldOf() | EventOf() if node.term == terms:
                return replace(node, term=slots.count - 1)
        return node

    return rewritten(_without_folds(expression, slots), change)


def _without_folds(expression: Expression, slots: Slots) -> Expression:
    """Folds go first: what is inside of them is not about slots of the candidate."""
    return rewritten(expression, lambda node: slots.folds[node] if isinstance(node, Fold) else node)
