"""Conditions as a small stack program that the kernel matcher interprets.

Takes a query's conditions; gives code, constants and the list of *operands*: expressions over one event, which are computed
beforehand as columns (`runtime.columns.expressions`). Only what joins several events is left for the program. Integers and
booleans live on one stack, floats on another; the types are known when the program is made. A program is data: nothing is
compiled for a query. Expressions that it cannot say raise `NotForKernel` with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from querylang.plan.expression import (
    Binary,
    Call,
    EventOf,
    Expression,
    FieldOf,
    Invoke,
    KeyOf,
    Literal,
    Type,
    Unary,
    rewritten,
    terms_of,
    walk,
)
from querylang.plan.value_types import SCALARS

STACK = 64
"""How deep a program's stacks may grow."""


class NotForKernel(Exception):
    """Why a condition needs the reference matcher."""


class Operation(IntEnum):
    """What a step of the program does; I: on integers (booleans and ranks of strings too), F: on floats."""

    PUSH_I = 0  # operand, term
    PUSH_F = 1  # operand, term
    CONSTANT_I = 2  # constant
    CONSTANT_F = 3  # constant
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
    SKIP_IF_FALSE = 60  # how many steps to skip; the value stays for the end of the skipped part
    SKIP_IF_TRUE = 61
    DROP = 62


_PUSHES = (Operation.PUSH_I, Operation.PUSH_F)
_ARITHMETIC = {"+": "ADD", "-": "SUBTRACT", "*": "MULTIPLY", "/": "DIVIDE", "%": "REMAINDER"}
_COMPARISON = {"=": "EQUAL", "!=": "DIFFERENT", "<": "LESS", "<=": "LESS_EQUAL", ">": "LESS", ">=": "LESS_EQUAL"}


@dataclass(frozen=True, slots=True)
class Operand:
    """What is computed of each event beforehand: an expression over term 0, and that event's types.

    There are several types if it is a field that they have in common: events of all types share columns.
    """

    expression: Expression
    events: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelProgram:
    """Expression `c` is `code[ends[c]:ends[c + 1]]`. Operands of floats and of the rest are numbered apart."""

    code: NDArray[np.int32]
    ends: NDArray[np.int64]
    integers: NDArray[np.int64]
    floats: NDArray[np.float64]
    integer_operands: tuple[Operand, ...]
    float_operands: tuple[Operand, ...]
    strings: tuple[tuple[int, str], ...]
    """Constants that are strings: the place in `integers` that their rank goes to."""


def operand_of(program: KernelProgram, number: int) -> tuple[int, int] | None:
    """The operand and the term of an expression that is no more than that."""
    steps = program.code[program.ends[number] : program.ends[number + 1]].tolist()
    return (steps[0][1], steps[0][2]) if len(steps) == 1 and steps[0][0] in _PUSHES else None


class Comparison(NamedTuple):
    """An expression that compares two operands and does nothing else, as most do; `operation` is that of its last step."""

    operation: int
    left: int
    left_term: int
    right: int
    right_term: int


def comparison(program: KernelProgram, number: int) -> Comparison | None:
    """What an expression compares if that is all that it does."""
    steps = program.code[program.ends[number] : program.ends[number + 1]].tolist()
    if len(steps) != 3 or not Operation.EQUAL_I <= steps[2][0] <= Operation.LESS_EQUAL_F:
        return None
    is_pushed = steps[0][0] in _PUSHES and steps[1][0] in _PUSHES
    return Comparison(steps[2][0], *steps[0][1:], *steps[1][1:]) if is_pushed else None


@dataclass(slots=True)
class _Builder:
    code: list[tuple[int, int, int]] = field(default_factory=list)
    integers: list[int] = field(default_factory=list)
    floats: list[float] = field(default_factory=list)
    integer_operands: list[Operand] = field(default_factory=list)
    float_operands: list[Operand] = field(default_factory=list)
    strings: list[tuple[int, str]] = field(default_factory=list)
    places: dict[tuple[Expression, str | None], int] = field(default_factory=dict)
    """Of operands, by expression and event type, None: whichever it is."""
    events: tuple[str, ...] = ()

    def add(self, operation: Operation, first: int = 0, second: int = 0) -> None:
        self.code.append((int(operation), first, second))


def build_program(parts: Sequence[tuple[Expression, Sequence[str]]]) -> KernelProgram:
    """The program of these expressions, each with the event types of its terms; raises NotForKernel.

    The last term is an event of the partition that is always there: what is about keys only is read from it.
    """
    builder = _Builder()
    ends = [0]
    for expression, events in parts:
        builder.events = tuple(events)
        _emit(builder, expression, STACK)
        ends.append(len(builder.code))
    return KernelProgram(
        code=np.array(builder.code or [(0, 0, 0)], np.int32),
        ends=np.array(ends, np.int64),
        integers=np.array(builder.integers or [0], np.int64),
        floats=np.array(builder.floats or [0.0], np.float64),
        integer_operands=tuple(builder.integer_operands),
        float_operands=tuple(builder.float_operands),
        strings=tuple(builder.strings),
    )


def _emit(builder: _Builder, expression: Expression, room: int) -> None:
    if room <= 0:
        raise NotForKernel(f"a condition is nested more than {STACK} deep")
    terms = terms_of(expression)
    if len(terms) == 1 or _is_about_keys(expression, terms):
        _operand(builder, expression, min(terms, default=len(builder.events) - 1))
        return
    match expression:
        case Unary(type=Type.INTEGER, operator="not") | Binary(type=Type.INTEGER, operator="and" | "or" | "xor"):
            raise NotForKernel("the bits of integers over several events")
        case Literal(type=type_, value=value) if type_.is_scalar:
            assert not isinstance(value, Decimal), "decimals are no scalars"
            _constant(builder, type_, value)
        case Unary(operator=operator, operand=operand) if operand.type in SCALARS:
            _emit(builder, operand, room)
            suffix = _suffix(operand.type)
            builder.add(Operation.NOT if operator == "not" else Operation[f"NEGATE_{suffix}"])
        case Binary(operator="and" | "or"):
            _short_circuit(builder, expression, room)
        case Binary(left=left) if left.type in SCALARS:
            _binary(builder, expression, room)
        case Call(method="toFloat" | "toInteger", receiver=receiver) if receiver.type in (Type.INTEGER, Type.FLOAT):
            _emit(builder, receiver, room)
            if receiver.type != expression.type:
                builder.add(Operation.TO_FLOAT if expression.type == Type.FLOAT else Operation.TO_INTEGER)
        case Call(method=method):
            raise NotForKernel(f"`{method}()` over several events")
        case Invoke(action=action):
            raise NotForKernel(f"the action `{action}` over several events")
        case _:
            raise NotForKernel("values other than numbers, booleans and strings over several events")


def _is_about_keys(expression: Expression, terms: frozenset[int]) -> bool:
    """Whether it mentions keys and no events; an action may mention them in its body."""
    return not terms and any(isinstance(node, KeyOf | Invoke) for node in walk(expression))


def _suffix(type_: Type | None) -> str:
    return "F" if type_ == Type.FLOAT else "I"


def _operand(builder: _Builder, expression: Expression, term: int) -> None:
    if expression.type not in SCALARS:
        raise NotForKernel(f"a value of type {expression.type} in a condition")
    floating = expression.type == Type.FLOAT
    operands = builder.float_operands if floating else builder.integer_operands
    about, event = about_one_event(expression), builder.events[term]
    what = about, None if isinstance(about, FieldOf) else event
    place = builder.places.setdefault(what, len(operands))
    if place == len(operands):
        operands.append(Operand(about, (event,)))
    elif event not in operands[place].events:
        operands[place] = replace(operands[place], events=(*operands[place].events, event))
    builder.add(Operation.PUSH_F if floating else Operation.PUSH_I, place, term)


def _constant(builder: _Builder, type_: Type, value: bool | float | str) -> None:
    if type_ == Type.FLOAT:
        builder.floats.append(float(value))
        builder.add(Operation.CONSTANT_F, len(builder.floats) - 1)
        return
    if isinstance(value, str):
        builder.strings.append((len(builder.integers), value))
    builder.integers.append(0 if isinstance(value, str) else int(value))
    builder.add(Operation.CONSTANT_I, len(builder.integers) - 1)


def _short_circuit(builder: _Builder, expression: Binary, room: int) -> None:
    _emit(builder, expression.left, room)
    skip = len(builder.code)
    builder.add(Operation.DROP)
    builder.add(Operation.DROP)
    _emit(builder, expression.right, room - 1)
    kind = Operation.SKIP_IF_FALSE if expression.operator == "and" else Operation.SKIP_IF_TRUE
    builder.code[skip] = (int(kind), len(builder.code) - skip - 1, 0)


def _binary(builder: _Builder, expression: Binary, room: int) -> None:
    operator, type_ = expression.operator, expression.left.type
    if type_ == Type.STRING and (operator == "+" or not _ranked(expression.left) or not _ranked(expression.right)):
        raise NotForKernel("text put together from several events in a condition")
    swapped = operator in (">", ">=")
    for side in (expression.right, expression.left) if swapped else (expression.left, expression.right):
        _emit(builder, side, room)
        room -= 1
    if operator == "xor":
        builder.add(Operation.DIFFERENT_I)
        return
    name = _ARITHMETIC.get(operator) or _COMPARISON[operator]
    builder.add(Operation[f"{name}_{_suffix(type_)}"])


def _ranked(expression: Expression) -> bool:
    """Whether a string operand is a column or a constant, so that a rank can stand for it."""
    terms = terms_of(expression)
    return len(terms) == 1 or isinstance(expression, Literal) or _is_about_keys(expression, terms)


def about_one_event(expression: Expression) -> Expression:
    """The same expression with term 0 for whatever term it mentions, so that equal ones compare equal."""

    def first(node: Expression) -> Expression:
        return replace(node, term=0) if isinstance(node, FieldOf | EventOf) else node

    return rewritten(expression, first)
