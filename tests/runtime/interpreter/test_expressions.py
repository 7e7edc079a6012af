"""Columns, interpreter and an evaluator of its own make say what an expression is worth: all say the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from querylang.plan.expression import (
    Binary,
    Call,
    EventOf,
    Expression,
    FieldOf,
    Invoke,
    Items,
    Literal,
    LocalOf,
    Type,
    Unary,
    rewritten,
    terms_of,
)
from querylang.plan.library import METHODS, method_of
from querylang.plan.model import Action, EventType, Field, Plan, Return
from runtime.column_types import arrow_type
from runtime.columns.arrivals import column_name, from_cell
from runtime.columns.expressions import as_array, evaluate
from runtime.columns.methods import native_call
from runtime.instants import NO_TIME
from runtime.interpreter.context import Context, PlanWorld
from runtime.interpreter.expressions import evaluate as interpret
from runtime.interpreter.expressions import holds as interpreted_condition
from runtime.interpreter.statements import run_action
from runtime.interpreter.values import EvaluationError, Event, decimal_text
from runtime.matching.interface import Ordered
from runtime.matching.kernel.program import NotForKernel
from runtime.matching.matchers import KernelMatcher
from tests.runtime.plans import an_input, chain
from tests.support.value_oracle import NoValue, is_known, oracle, outward

INTEGERS = st.sampled_from([0, 1, -1, 2, 7, -7, 10**6, 2**53 + 1, 2**63 - 1, -(2**63)]) | st.integers(
    -(2**63), 2**63 - 1
)
FLOATS = (
    st.sampled_from(
        [0.0, -0.0, 0.5, 1.5, -2.5, 0.49999999999999994, 1e308, -1e308, 5e-324, 2.0**63, math.inf, -math.inf, math.nan]
    )
    | st.floats()
)
STRINGS = st.sampled_from(
    ["", "a", "b", "ab", " a\t", "é", "żółć", "😀", "a😀", "\uffff", "A", "-12", "1.5", "Infinity"]
)
DECIMALS = st.sampled_from(
    [Decimal(text) for text in ("0", "1.5", "-2.5", "0.000000000000000001", "99999999999999999999.999999999999999999")]
) | st.decimals(-(10**20) + 1, 10**20 - 1, places=18)
VALUES: dict[Type, st.SearchStrategy[Any]] = {
    Type.INTEGER: INTEGERS,
    Type.FLOAT: FLOATS,
    Type.STRING: STRINGS,
    Type.BOOLEAN: st.booleans(),
    Type.DECIMAL: DECIMALS,
}
PATTERNS = st.sampled_from(["a*", "[ab]+", ".", "(", "😀|b", "", "-?[0-9]+"]).map(
    lambda text: Literal(Type.STRING, text)
)
NETWORKS = st.sampled_from(["10.0.0.0/8", "::/0", "1.2.3.4", "10.0.0.1/8", ""]).map(
    lambda text: Literal(Type.STRING, text)
)
FIELDS = {
    **dict.fromkeys("ij", Type.INTEGER),
    **dict.fromkeys("xy", Type.FLOAT),
    **dict.fromkeys("st", Type.STRING),
    "b": Type.BOOLEAN,
    **dict.fromkeys("de", Type.DECIMAL),
}
OF_EVENT = Type.event("E")
ITSELF = EventOf(OF_EVENT, 0)
MIXED = Action(
    name="mixed",
    parameters=(Type.INTEGER,),
    slots=2,
    returns=Type.INTEGER,
    body=(Return(Binary(Type.INTEGER, "/", LocalOf(Type.INTEGER, 1), Literal(Type.INTEGER, 7))),),
)
EVENT = EventType("E", tuple(Field(name, type_) for name, type_ in FIELDS.items()), (MIXED,))
PLAN = Plan((EVENT,), ())
QUERY = chain([an_input("E", within=3_000_000)], [0, 0])
BY_RULE = {nulls_fail: replace(QUERY, nulls_fail=nulls_fail) for nulls_fail in (False, True)}
"""A query with the rule for nulls, and one of an earlier plan, in which a null fails."""
WORLDS = {nulls_fail: PlanWorld(PLAN, query) for nulls_fail, query in BY_RULE.items()}
WORLD = WORLDS[False]
RULES = st.booleans()

CALLS: dict[Type, list[tuple[Type, str]]] = {}
"""Result, then the methods that give it: all of the language's table between scalars and decimals."""
for _method in METHODS:
    for _type in filter(lambda type_: type_.kind in _method.kinds, VALUES):
        _signature = _method.on(_type)
        if {_signature.result, *_signature.parameters} <= VALUES.keys():
            CALLS.setdefault(_signature.result or _type, []).append((_type, _method.name))


@st.composite
def expressions(draw: st.DrawFn, type_: Type, depth: int = 3) -> Expression:
    """A well-typed expression over one event."""
    choice = draw(st.integers(0, 5)) if depth else 0
    if choice <= 1:
        return draw(leaves(type_))
    if choice == 2:
        return draw(operations(type_, depth - 1))
    receiver, name = draw(st.sampled_from(CALLS[type_]))
    signature = method_of(receiver, name)
    assert signature is not None
    arguments = [draw(expressions(parameter, depth - 1)) for parameter in signature.parameters[: signature.required]]
    if name in ("matches", "replace", "search", "groupSearch"):
        arguments[0] = draw(PATTERNS)
    elif name == "inNetwork":
        arguments[0] = draw(NETWORKS)
    return Call(type_, name, draw(expressions(receiver, depth - 1)), tuple(arguments))


@st.composite
def leaves(draw: st.DrawFn, type_: Type) -> Expression:
    """A constant, a field, the event's time or text, its action."""
    fields = [FieldOf(type_, 0, name) for name, kind in FIELDS.items() if kind == type_]
    more: list[Expression] = []
    if type_ == Type.FLOAT:
        more = [Call(type_, "getTime", ITSELF)]
    elif type_ == Type.STRING:
        more = [Call(type_, "toString", ITSELF)]
    elif type_ == Type.INTEGER:
        more = [Invoke(type_, "mixed", ITSELF, (fields[0],))]
    return draw(st.sampled_from([*fields, *more]) | VALUES[type_].map(lambda value: Literal(type_, value)))


@st.composite
def operations(draw: st.DrawFn, type_: Type, depth: int) -> Expression:
    """An operator."""
    if type_ == Type.STRING:
        return Binary(type_, "+", draw(expressions(type_, depth)), draw(expressions(type_, depth)))
    if type_ != Type.BOOLEAN:
        if draw(st.booleans()):
            return Unary(type_, "-", draw(expressions(type_, depth)))
        signs = ["+", "-", "*", "/", "%", *(("and", "or", "xor") if type_ == Type.INTEGER else ())]
        sides = draw(expressions(type_, depth)), draw(expressions(type_, depth))
        return Binary(type_, draw(st.sampled_from(signs)), *sides)
    match draw(st.sampled_from(["compare", "logic", "not"])):
        case "compare":
            kind = draw(st.sampled_from([Type.INTEGER, Type.FLOAT, Type.STRING, Type.DECIMAL]))
            operator = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
            return Binary(type_, operator, draw(expressions(kind, depth)), draw(expressions(kind, depth)))
        case "logic":
            operator = draw(st.sampled_from(["and", "or", "xor", "=", "!="]))
            return Binary(type_, operator, draw(expressions(type_, depth)), draw(expressions(type_, depth)))
    return Unary(type_, "not", draw(expressions(type_, depth)))


Row = Mapping[str, Any]
ROW = st.fixed_dictionaries({name: st.none() | VALUES[type_] for name, type_ in FIELDS.items()})
ROWS = st.lists(ROW, min_size=1, max_size=5)
TIMES = [1_500_000, NO_TIME, -1, 2**60, 0]


def table(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {
        column_name(name, type_): pa.array([row[name] for row in rows], arrow_type(type_, PLAN))
        for name, type_ in FIELDS.items()
    }
    return pa.table({**columns, "_time": TIMES[: len(rows)]})


def interpreted(expression: Expression, row: Row, time: int, *, nulls_fail: bool = False) -> str:
    event = Event(EVENT, dict(row), None if time == NO_TIME else time)
    try:
        value = interpret(expression, Context(events=[event], world=WORLDS[nulls_fail], invoke=run_action))
    except EvaluationError:
        return "nothing"
    return "null" if value is None else shown(value, expression.type)


def shown(value: Any, type_: Type | None) -> str:
    """A value as text in which differences show."""
    return decimal_text(value) if type_ == Type.DECIMAL else repr(value)


def in_columns(expression: Expression, rows: list[dict[str, Any]], *, nulls_fail: bool = False) -> list[str]:
    column = evaluate(expression, table(rows), PLAN, EVENT, BY_RULE[nulls_fail])
    if isinstance(column.values, list):
        values = column.values
    else:
        values = column.values.to_pylist() if isinstance(column.values, pa.Array) else column.values.tolist()
    valid = [True] * len(rows) if column.valid is None else column.valid.tolist()
    failed = [False] * len(rows) if column.failed is None else column.failed.tolist()
    assert not any(map(min, valid, failed)), "what has failed has no value"
    return [
        shown(value, expression.type) if has_one else "nothing" if has_failed else "null"
        for value, has_one, has_failed in zip(values, valid, failed, strict=True)
    ]


ANY_EXPRESSION = st.sampled_from(list(VALUES)).flatmap(expressions)


@settings(max_examples=500, deadline=None)
@given(ANY_EXPRESSION, ROWS, RULES)
def test_columns_agree_with_the_interpreter(
    expression: Expression, rows: list[dict[str, Any]], nulls_fail: bool
) -> None:
    timed = zip(rows, TIMES, strict=False)
    expected = [interpreted(expression, row, time, nulls_fail=nulls_fail) for row, time in timed]
    assert in_columns(expression, rows, nulls_fail=nulls_fail) == expected


@settings(max_examples=500, deadline=None)
@given(ANY_EXPRESSION.filter(is_known), ROWS)
def test_the_interpreter_agrees_with_an_evaluator_of_its_own_make(
    expression: Expression, rows: list[dict[str, Any]]
) -> None:
    assert expression.type is not None
    for row in rows:
        try:
            value = oracle(expression, row)
            expected = "null" if value is None else outward(value, expression.type)
        except NoValue:
            expected = "nothing"
        assert interpreted(expression, row, NO_TIME) == expected


@settings(max_examples=150, deadline=None)
@given(ANY_EXPRESSION, ROWS)
def test_as_an_array_what_has_no_value_is_null(expression: Expression, rows: list[dict[str, Any]]) -> None:
    array = as_array(expression, table(rows), PLAN, EVENT)
    assert expression.type is not None
    assert array.type == arrow_type(expression.type, PLAN)
    values = array.to_pylist()
    got = ["nothing" if value is None else shown(value, expression.type) for value in values]
    assert got == ["nothing" if text == "null" else text for text in in_columns(expression, rows)]


def test_an_evaluator_that_is_wrong_is_noticed() -> None:
    wrong = Binary(Type.INTEGER, "+", FieldOf(Type.INTEGER, 0, "i"), Literal(Type.INTEGER, 1))
    row: dict[str, Any] = {"i": 2**63 - 1}
    assert outward(oracle(wrong, row) + 1, Type.INTEGER) != interpreted(wrong, row, NO_TIME)


CONTAINERS = [
    Items(Type.sequence(Type.INTEGER), (FieldOf(Type.INTEGER, 0, "i"), FieldOf(Type.INTEGER, 0, "j"))),
    Items(Type.dictionary(Type.STRING, Type.FLOAT), (FieldOf(Type.STRING, 0, "s"), FieldOf(Type.FLOAT, 0, "x"))),
    ITSELF,
]


@pytest.mark.parametrize("expression", CONTAINERS, ids=["sequence", "dictionary", "event"])
def test_values_with_parts_are_columns_too(expression: Expression) -> None:
    rows = [
        dict.fromkeys(FIELDS) | {"i": 1, "j": 2, "s": "é", "x": 1.5, "d": Decimal("0.5")},
        dict.fromkeys(FIELDS) | {"i": 1, "x": math.inf},
    ]
    assert expression.type is not None
    array = as_array(expression, table(rows), PLAN, EVENT)
    for row, cell in zip(rows, array.to_pylist(), strict=True):
        try:
            expected = interpret(expression, Context(events=[Event(EVENT, dict(row))], world=WORLD, invoke=run_action))
        except EvaluationError:
            expected = None
        assert from_cell(cell, expression.type, WORLD) == expected


@pytest.mark.parametrize("name", ["abs", "floor", "round", "toInteger", "sqrt", "isNaN", "max"])
def test_what_numpy_does_exactly_is_done_by_numpy(name: str) -> None:
    signature = method_of(Type.FLOAT, name)
    assert signature is not None
    field = FieldOf(Type.FLOAT, 0, "x")
    call = Call(Type.FLOAT, name, field, (field,) * len(signature.parameters))
    assert native_call(call, [np.array([2.5])] * (1 + len(signature.parameters))) is not None


def test_a_condition_gets_copies_of_what_could_be_changed() -> None:
    """An action that a condition calls may change its parameters; the event stays as it is."""
    numbers = Type.sequence(Type.INTEGER)
    event = EventType("A", (Field("xs", numbers),))
    value = Event(event, {"xs": [1]})
    change = Call(numbers, "append", FieldOf(numbers, 0, "xs"), (Literal(Type.INTEGER, 2),))
    interpret(change, Context(events=[value]))
    assert value.values == {"xs": [1]}


@st.composite
def over_two_events(draw: st.DrawFn, type_: Type, depth: int = 3) -> Expression:
    """What the kernel's program can say: arithmetic, comparisons and logic over expressions of one event or the other."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        term = draw(st.integers(0, 1))
        node = draw(expressions(type_, 1))
        if not terms_of(node) and not isinstance(node, Literal):
            node = draw(leaves(type_))
        return rewritten(node, lambda part: replace(part, term=term) if isinstance(part, FieldOf | EventOf) else part)
    if type_ in (Type.INTEGER, Type.FLOAT):
        match draw(st.sampled_from(["binary", "binary", "minus", "convert"])):
            case "binary":
                sides = draw(over_two_events(type_, depth - 1)), draw(over_two_events(type_, depth - 1))
                return Binary(type_, draw(st.sampled_from("+-*/%")), *sides)
            case "minus":
                return Unary(type_, "-", draw(over_two_events(type_, depth - 1)))
        other = draw(over_two_events(draw(st.sampled_from([Type.INTEGER, Type.FLOAT])), depth - 1))
        return Call(type_, "toFloat" if type_ == Type.FLOAT else "toInteger", other)
    match draw(st.sampled_from(["compare", "text", "logic", "not"])):
        case "compare":
            kind = draw(st.sampled_from([Type.INTEGER, Type.FLOAT]))
            sides = draw(over_two_events(kind, depth - 1)), draw(over_two_events(kind, depth - 1))
            return Binary(type_, draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="])), *sides)
        case "text":
            sides = draw(over_two_events(Type.STRING, 0)), draw(over_two_events(Type.STRING, 0))
            return Binary(type_, draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="])), *sides)
        case "not":
            return Unary(type_, "not", draw(over_two_events(type_, depth - 1)))
    sides = draw(over_two_events(type_, depth - 1)), draw(over_two_events(type_, depth - 1))
    return Binary(type_, draw(st.sampled_from(["and", "or", "xor", "=", "!="])), *sides)


def kernel_finds(condition: Expression, rows: list[dict[str, Any]], *, nulls_fail: bool = False) -> bool:
    """Whether the kernel matches the two events; raises NotForKernel."""
    query = replace(chain([an_input("E", within=3_000_000)], [0, 0], [condition]), nulls_fail=nulls_fail)
    ordered = Ordered(
        start=np.array([0, 2]),
        fresh=np.array([0]),
        row=np.array([0, 1], np.int32),
        input=np.array([0, 0], np.int16),
        time=np.array([1_500_000, 2_000_000]),
        superseded=np.empty(0, np.int64),
        table=table(rows).set_column(len(FIELDS), "_time", pa.array([1_500_000, 2_000_000])),
    )
    return len(KernelMatcher(replace(PLAN, queries=(query,)), query).match(ordered).latest) > 0


TWO_ROWS = st.tuples(ROW, ROW).map(list)


@settings(max_examples=500, deadline=None)
@given(over_two_events(Type.BOOLEAN), TWO_ROWS, RULES)
def test_the_kernel_agrees_with_the_interpreter(
    condition: Expression, rows: list[dict[str, Any]], nulls_fail: bool
) -> None:
    events = [Event(EVENT, dict(row), time) for row, time in zip(rows, [1_500_000, 2_000_000], strict=True)]
    context = Context(events=events, world=WORLDS[nulls_fail], invoke=run_action)
    assume(terms_of(condition))
    assert kernel_finds(condition, rows, nulls_fail=nulls_fail) is interpreted_condition(condition, context)


@pytest.mark.parametrize("operator", ["<", "=", "+", "/", "%"])
@pytest.mark.parametrize("name", ["i", "x", "s"])
def test_the_kernel_takes_numbers_and_the_order_of_strings(name: str, operator: str) -> None:
    left, right = FieldOf(FIELDS[name], 0, name), FieldOf(FIELDS[name], 1, name)
    condition = Binary(Type.BOOLEAN, operator, left, right)
    if operator in "+/%":
        both = Binary(FIELDS[name], operator, left, right)
        condition = Binary(Type.BOOLEAN, "=", both, both)
    row: dict[str, Any] = dict.fromkeys(FIELDS) | {"i": 1, "x": 1.0, "s": "a"}
    taken = name != "s" or operator in "<="
    try:
        assert kernel_finds(condition, [row, row]) is (operator != "<")
    except NotForKernel:
        assert not taken
    else:
        assert taken
