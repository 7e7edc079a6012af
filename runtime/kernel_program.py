"""Conditions as a small stack program that the kernel matcher interprets.

Takes a query's conditions; gives code, constants and the list of *operands*: expressions over one event, which are computed
beforehand as columns (`runtime.expressions`). Only what joins several events is left for the program. Integers and
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

from querylang.expression import (
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
from querylang.value_types import SCALARS
from runtime.compiled import inlined
from runtime.expressions import divide, remainder

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


_ARITHMETIC = {"+": "ADD", "-": "SUBTRACT", "*": "MULTIPLY", "/": "DIVIDE", "%": "REMAINDER"}
_COMPARISON = {"=": "EQUAL", "!=": "DIFFERENT", "<": "LESS", "<=": "LESS_EQUAL", ">": "LESS", ">=": "LESS_EQUAL"}


@dataclass(frozen=True, slots=True)
class Operand:
    """What is computed of each event beforehand: an expression over term 0, and that event's type."""

    expression: Expression
    event: str


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


@dataclass(slots=True)
class _Builder:
    code: list[tuple[int, int, int]] = field(default_factory=list)
    integers: list[int] = field(default_factory=list)
    floats: list[float] = field(default_factory=list)
    integer_operands: list[Operand] = field(default_factory=list)
    float_operands: list[Operand] = field(default_factory=list)
    strings: list[tuple[int, str]] = field(default_factory=list)
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
    operand = Operand(about_one_event(expression), builder.events[term])
    if operand not in operands:
        operands.append(operand)
    builder.add(Operation.PUSH_F if floating else Operation.PUSH_I, operands.index(operand), term)


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


class Conditions(NamedTuple):
    """A program with its operands as columns, as the kernel takes it. Operands are by (operand, position).

    `integer_mask[operand]` is the row of `integer_valid` that says where the operand has a value, -1 if everywhere.
    """

    code: NDArray[np.int32]
    ends: NDArray[np.int64]
    integers: NDArray[np.int64]
    floats: NDArray[np.float64]
    integer_columns: NDArray[np.int64]
    integer_valid: NDArray[np.bool_]
    integer_mask: NDArray[np.int32]
    float_columns: NDArray[np.float64]
    float_valid: NDArray[np.bool_]
    float_mask: NDArray[np.int32]


class Stacks(NamedTuple):
    """Room for a program to work in: STACK + 1 entries each."""

    whole: NDArray[np.int64]
    real: NDArray[np.float64]


@inlined
def holds(conditions: Conditions, condition: int, bound: NDArray[np.int64], stacks: Stacks) -> bool:
    """Whether an expression is true of the events at the positions `bound`, by term; without a value it is false."""
    return has_value(conditions, condition, bound, stacks) and stacks.whole[0] != 0


@inlined
def has_value(conditions: Conditions, condition: int, bound: NDArray[np.int64], stacks: Stacks) -> bool:
    """Evaluates an expression over the events at the positions `bound`, by term; leaves its value on top of a stack.

    An operand without a value, a division of integers by zero or a float that is no integer: there is none.
    """
    code, whole, real = conditions.code, stacks.whole, stacks.real
    at, last = conditions.ends[condition], conditions.ends[condition + 1]
    i = f = -1
    while at < last:
        step = code[at, 0]
        if step == 1:
            operand, position = code[at, 1], bound[code[at, 2]]
            mask = conditions.float_mask[operand]
            if mask >= 0 and not conditions.float_valid[mask, position]:
                return False
            f += 1
            real[f] = conditions.float_columns[operand, position]
        elif step == 0:
            operand, position = code[at, 1], bound[code[at, 2]]
            mask = conditions.integer_mask[operand]
            if mask >= 0 and not conditions.integer_valid[mask, position]:
                return False
            i += 1
            whole[i] = conditions.integer_columns[operand, position]
        elif step == 2:
            i += 1
            whole[i] = conditions.integers[code[at, 1]]
        elif step == 3:
            f += 1
            real[f] = conditions.floats[code[at, 1]]
        elif step < 20:
            i -= 1
            a, b = whole[i], whole[i + 1]
            if step == 10:
                whole[i] = a + b
            elif step == 11:
                whole[i] = a - b
            elif step == 12:
                whole[i] = a * b
            elif b == 0:
                return False
            elif step == 13:
                whole[i] = divide(a, b)
            else:
                whole[i] = remainder(a, b)
        elif step < 30:
            f -= 1
            x, y = real[f], real[f + 1]
            if step == 20:
                real[f] = x + y
            elif step == 21:
                real[f] = x - y
            elif step == 22:
                real[f] = x * y
            elif step == 23:
                real[f] = x / y
            else:
                real[f] = np.fmod(x, y)
        elif step < 40:
            i -= 1
            a, b = whole[i], whole[i + 1]
            if step == 30:
                whole[i] = a == b
            elif step == 31:
                whole[i] = a != b
            elif step == 32:
                whole[i] = a < b
            else:
                whole[i] = a <= b
        elif step < 50:
            f -= 2
            x, y = real[f + 1], real[f + 2]
            i += 1
            if step == 40:
                whole[i] = x == y
            elif step == 41:
                whole[i] = x != y
            elif step == 42:
                whole[i] = x < y
            else:
                whole[i] = x <= y
        elif step == 50:
            whole[i] = 1 - whole[i]
        elif step == 51:
            whole[i] = -whole[i]
        elif step == 52:
            real[f] = -real[f]
        elif step == 53:
            f += 1
            real[f] = np.float64(whole[i])
            i -= 1
        elif step == 54:
            if not (real[f] >= -9223372036854775808.0 and real[f] < 9223372036854775808.0):
                return False
            i += 1
            whole[i] = np.int64(real[f])
            f -= 1
        elif step == 60:
            if whole[i] == 0:
                at += code[at, 1]
        elif step == 61:
            if whole[i] != 0:
                at += code[at, 1]
        else:
            i -= 1
        at += 1
    return True
