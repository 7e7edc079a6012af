"""Conditions as programs for a small stack machine, which the kernel interprets.

A program is data: nothing is compiled per query. *Operands* are expressions over one event; they
are computed beforehand, as columns (`runtime.columns.expressions`). Only what joins several events
is left for the program. Integers and booleans are on one stack, floats on another; all types are
known when the program is built. An expression that a program cannot express raises `NotForKernel`
with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from querylang.plan.expression import (
    SCALARS,
    Binary,
    Call,
    EndOf,
    EventOf,
    Expression,
    FieldOf,
    Fold,
    Invoke,
    KeyOf,
    Literal,
    MemberOf,
    PrevOf,
    Type,
    Unary,
    rewritten,
    terms_of,
    walk,
)
from querylang.plan.model import QueryPlan, Where, Without
from runtime.exact_times import MICROSECONDS, with_exact_times
from runtime.matching.kernel.functions import OfFloat, OfFloats, OfInteger, OfIntegers, ToInteger

STACK = 64
"""The most values on a program's stacks."""

RANKED = (Type.STRING, Type.DECIMAL)
"""Types whose values are only compared: a rank among all values stands for each."""

_STACKED = (*SCALARS, Type.DECIMAL)


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


TRUTH = 34
"""In a `Comparison`, instead of an operation of integers: the operand is true."""

_PUSHES = (Operation.PUSH_I, Operation.PUSH_F)
_ARITHMETIC = {"+": "ADD", "-": "SUBTRACT", "*": "MULTIPLY", "/": "DIVIDE", "%": "REMAINDER"}
_COMPARISON = {"=": "EQUAL", "!=": "DIFFERENT", "<": "LESS", "<=": "LESS_EQUAL", ">": "LESS", ">=": "LESS_EQUAL"}


_FUNCTIONS = {
    "abs": OfFloat.ABS,
    "sqrt": OfFloat.SQRT,
    "exp": OfFloat.EXP,
    "ln": OfFloat.LN,
    "log": OfFloat.LN,
    "log10": OfFloat.LOG10,
    "sin": OfFloat.SIN,
    "cos": OfFloat.COS,
    "tan": OfFloat.TAN,
    "asin": OfFloat.ASIN,
    "acos": OfFloat.ACOS,
    "atan": OfFloat.ATAN,
    "sinh": OfFloat.SINH,
    "cosh": OfFloat.COSH,
    "tanh": OfFloat.TANH,
    "asinh": OfFloat.ASINH,
    "acosh": OfFloat.ACOSH,
    "atanh": OfFloat.ATANH,
    "erf": OfFloat.ERF,
    "integralPart": OfFloat.INTEGRAL_PART,
    "fractionalPart": OfFloat.FRACTIONAL_PART,
}
_Steps = tuple[tuple[Operation, int], ...]
_FLOAT_METHODS: dict[str, _Steps] = {
    **{name: ((Operation.OF_FLOAT, function),) for name, function in _FUNCTIONS.items()},
    "min": ((Operation.OF_FLOATS, OfFloats.MIN),),
    "max": ((Operation.OF_FLOATS, OfFloats.MAX),),
    "pow": ((Operation.OF_FLOATS, OfFloats.POW),),
    "atan2": ((Operation.OF_FLOATS, OfFloats.ATAN2),),
    "fmod": ((Operation.REMAINDER_F, 0),),
    "floor": ((Operation.ROUNDED, ToInteger.FLOOR),),
    "ceil": ((Operation.ROUNDED, ToInteger.CEIL),),
    "round": ((Operation.ROUNDED, ToInteger.ROUND),),
    "isNaN": ((Operation.ROUNDED, ToInteger.IS_NAN),),
    "isFinite": ((Operation.ROUNDED, ToInteger.IS_FINITE),),
    "isInfinite": ((Operation.ROUNDED, ToInteger.IS_INFINITE),),
    "bitEquals": ((Operation.BIT_EQUALS, 0),),
    "toInteger": ((Operation.TO_INTEGER, 0),),
    "toFloat": (),
}
_INTEGER_METHODS: dict[str, _Steps] = {
    **dict.fromkeys(("ceil", "floor", "round", "toInteger"), ()),
    **{
        name: ((Operation.TO_FLOAT, 0), (Operation.OF_FLOAT, _FUNCTIONS[name]))
        for name in ("sqrt", "exp", "ln", "log", "log10")
    },
    "abs": ((Operation.OF_INTEGER, OfInteger.ABS),),
    "min": ((Operation.OF_INTEGERS, OfIntegers.MIN),),
    "max": ((Operation.OF_INTEGERS, OfIntegers.MAX),),
    "pow": ((Operation.OF_INTEGERS, OfIntegers.POW),),
    "isNaN": ((Operation.OF_INTEGER, OfInteger.NEVER),),
    "isFinite": ((Operation.OF_INTEGER, OfInteger.ALWAYS),),
    "isInfinite": ((Operation.OF_INTEGER, OfInteger.NEVER),),
    "toFloat": ((Operation.TO_FLOAT, 0),),
}
_METHODS: dict[tuple[Type, str], _Steps] = {
    (type_, name): steps
    for type_, methods in ((Type.FLOAT, _FLOAT_METHODS), (Type.INTEGER, _INTEGER_METHODS))
    for name, steps in methods.items()
}
"""By the receiver's type and the name: what follows when the receiver and the arguments are on the
stacks. `cbrt`, `mantissa` and `exponent` are not here: numba does not compile them to what the
interpreter gives."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An expression over one event, computed as a column before the search.

    expression: over term 0
    events: the event types that it is computed for; several if they share a field, as all types
        share columns
    """

    expression: Expression
    events: tuple[str, ...]


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
    return steps[0][1:] if len(steps) == 1 and steps[0][0] in _PUSHES else None


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
    is_pushed = steps[0][0] in _PUSHES and steps[1][0] in _PUSHES
    return Comparison(steps[2][0], *steps[0][1:], *steps[1][1:]) if is_pushed else None


def truth(program: KernelProgram, number: int) -> Comparison | None:
    """A program that only asks whether an operand is true; None for any other program.

    Such is a condition about one event, which is computed as a column.
    """
    steps = instructions(program, number)
    is_pushed = len(steps) == 1 and steps[0][0] == Operation.PUSH_I
    return Comparison(TRUTH, *steps[0][1:], *steps[0][1:]) if is_pushed else None


@dataclass(slots=True)
class _Builder:
    """A `KernelProgram` in the making.

    operand_numbers: by expression and event type; the type is None for a field, which all types
        share
    events: the event type of each term, for the program at work
    """

    code: list[tuple[int, int, int]] = field(default_factory=list)
    integer_constants: list[int] = field(default_factory=list)
    float_constants: list[float] = field(default_factory=list)
    integer_operands: list[Operand] = field(default_factory=list)
    float_operands: list[Operand] = field(default_factory=list)
    ranked: list[tuple[int, str | Decimal]] = field(default_factory=list)
    operand_numbers: dict[tuple[Expression, str | None], int] = field(default_factory=dict)
    events: tuple[str, ...] = ()

    def add(self, operation: Operation, first: int = 0, second: int = 0) -> None:
        self.code.append((int(operation), first, second))


def build_program(parts: Sequence[tuple[Expression, Sequence[str]]]) -> KernelProgram:
    """The programs of expressions, each given with its terms' event types; raises NotForKernel.

    The last term is an event of the key that is always there: expressions over keys only are read
    from it.
    """
    builder = _Builder()
    ends = [0]
    for expression, events in parts:
        builder.events = tuple(events)
        _emit(builder, with_exact_times(expression), STACK)
        ends.append(len(builder.code))
    return KernelProgram(
        code=np.array(builder.code or [(0, 0, 0)], np.int32),
        ends=np.array(ends, np.int64),
        integer_constants=np.array(builder.integer_constants or [0], np.int64),
        float_constants=np.array(builder.float_constants or [0.0], np.float64),
        integer_operands=tuple(builder.integer_operands),
        float_operands=tuple(builder.float_operands),
        ranked=tuple(builder.ranked),
    )


def _emit(builder: _Builder, expression: Expression, room: int) -> None:
    """Adds instructions that push the value of `expression`; `room`: free entries of the stack."""
    if room <= 0:
        raise NotForKernel(f"a condition is nested more than {STACK} deep")
    # Whatever is about one event only is one operand: it may be anything, as a column is computed
    # by other means.
    terms = terms_of(expression)
    is_of_events = not any(isinstance(node, Computed) for node in walk(expression))
    if is_of_events and (len(terms) == 1 or _is_about_keys(expression, terms)):
        _operand(builder, expression, min(terms, default=len(builder.events) - 1))
        return
    match expression:
        case Unary(type=Type.INTEGER, operator="not", operand=operand):
            _emit(builder, operand, room)
            builder.add(Operation.OF_INTEGER, OfInteger.BITS_NOT)
        case Binary(type=Type.INTEGER, operator="and" | "or" | "xor"):
            _emit_all(builder, (expression.left, expression.right), room)
            builder.add(Operation.OF_INTEGERS, OfIntegers[f"BITS_{expression.operator.upper()}"])
        case Literal(type=type_, value=value) if type_ in _STACKED:
            _constant(builder, type_, value, has_state=isinstance(expression, Computed))
        case Unary(operator=operator, operand=operand) if operand.type in SCALARS:
            _emit(builder, operand, room)
            suffix = _suffix(operand.type)
            builder.add(Operation.NOT if operator == "not" else Operation[f"NEGATE_{suffix}"])
        case Binary(operator="and" | "or"):
            _short_circuit(builder, expression, room)
        case Binary(left=left) if left.type in _STACKED:
            _binary(builder, expression, room)
        case Call(method=method, receiver=receiver, arguments=arguments):
            steps = None if receiver.type is None else _METHODS.get((receiver.type, method))
            if steps is None:
                raise NotForKernel(f"`{method}()` over several events")
            _emit_all(builder, (receiver, *arguments), room)
            for step in steps:
                builder.add(*step)
        case Invoke(action=action):
            raise NotForKernel(f"the action `{action}` over several events")
        case _:
            raise NotForKernel("values other than numbers, booleans and strings over several events")


def _emit_all(builder: _Builder, parts: Sequence[Expression], room: int) -> None:
    """Adds instructions that push some values, the last one on top."""
    for before, part in enumerate(parts):
        _emit(builder, part, room - before)


def _is_about_keys(expression: Expression, terms: frozenset[int]) -> bool:
    """Whether an expression mentions keys and no events; an action may mention keys in its body."""
    return not terms and any(isinstance(node, KeyOf | Invoke) for node in walk(expression))


def _suffix(type_: Type | None) -> str:
    return "F" if type_ == Type.FLOAT else "I"


def _operand(builder: _Builder, expression: Expression, term: int) -> None:
    if expression.type not in _STACKED:
        raise NotForKernel(f"a value of type {expression.type} in a condition")
    floating = expression.type == Type.FLOAT
    operands = builder.float_operands if floating else builder.integer_operands
    # Equal operands share a column. A field has one column for all types, so it is shared among
    # them as well.
    about, event = about_one_event(expression), builder.events[term]
    what = about, None if isinstance(about, FieldOf) else event
    number = builder.operand_numbers.setdefault(what, len(operands))
    if number == len(operands):
        operands.append(Operand(about, (event,)))
    elif event not in operands[number].events:
        operands[number] = replace(operands[number], events=(*operands[number].events, event))
    builder.add(Operation.PUSH_F if floating else Operation.PUSH_I, number, term)


def _constant(builder: _Builder, type_: Type, value: bool | float | str | Decimal, *, has_state: bool) -> None:
    state = 0
    if has_state:
        builder.integer_constants.append(1)  # it is written over by the search, as the constant is
        state = len(builder.integer_constants)
    if type_ == Type.FLOAT:
        builder.float_constants.append(float(value))
        builder.add(Operation.CONSTANT_F, len(builder.float_constants) - 1, state)
        return
    # A rank is known per batch only: `runtime.matching.kernel.columns` fills it in.
    is_ranked = isinstance(value, str | Decimal)
    if isinstance(value, str | Decimal):
        builder.ranked.append((len(builder.integer_constants), value))
    builder.integer_constants.append(0 if is_ranked else int(value))
    builder.add(Operation.CONSTANT_I, len(builder.integer_constants) - 1, state)


def _short_circuit(builder: _Builder, expression: Binary, room: int) -> None:
    """`and`, `or`: the right side is skipped where the left side decides; it may have no value."""
    _emit(builder, expression.left, room)
    skip, is_and = len(builder.code), expression.operator == "and"
    builder.add(Operation.SKIP_IF_FALSE)  # replaced below, when its length is known
    _emit(builder, expression.right, room - 1)
    builder.add(Operation.AND if is_and else Operation.OR)
    kind = Operation.SKIP_IF_FALSE if is_and else Operation.SKIP_IF_TRUE
    builder.code[skip] = (int(kind), len(builder.code) - skip - 1, 0)


def _binary(builder: _Builder, expression: Binary, room: int) -> None:
    operator, type_ = expression.operator, expression.left.type
    if type_ in RANKED and not (
        _is_ranked(expression.left) and _is_ranked(expression.right) and operator in _COMPARISON
    ):
        text = "text put together" if type_ == Type.STRING else "decimals calculated"
        raise NotForKernel(f"{text} from several events in a condition")
    # There is no "greater": the sides are swapped. Their order does not matter, as neither has an
    # effect.
    swapped = operator in (">", ">=")
    for side in (expression.right, expression.left) if swapped else (expression.left, expression.right):
        _emit(builder, side, room)
        room -= 1
    if operator == "xor":
        builder.add(Operation.DIFFERENT_I)
        return
    name = _ARITHMETIC.get(operator) or _COMPARISON[operator]
    builder.add(Operation[f"{name}_{_suffix(type_)}"])


def _is_ranked(expression: Expression) -> bool:
    """Whether a value is a column or a constant, so that its rank can represent it."""
    terms = terms_of(expression)
    return len(terms) == 1 or isinstance(expression, Literal) or _is_about_keys(expression, terms)


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

    def events(self, own: str) -> list[str]:
        """By slot, the type of its event; `own`: that of the last one."""
        named = [self.query.inputs[term.input].event for term in self.query.terms]
        # The event before may be of any type that has the field: `Reader` asks every type.
        return [*named, *(named[0] for _ in (*self.prevs, *self.ends)), own]


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
                    EventOf(Type.event(slots.events("")[slot]), slot),
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
