"""A scenario's plan made by hand, as the compiler should make it."""

from __future__ import annotations

from querylang.automaton import ACCEPT, Automaton, State, Transition
from querylang.expression import Binary, Call, EventText, Expression, FieldOf, Literal, Type, Unary, terms_of
from querylang.plan import EventType, Field, Heartbeat, Input, Plan, Print, QueryPlan, Term
from tests.support.conditions import Constant, Method, Name, Negative, Node, Not, Operation
from tests.support.scenario import EVENTS, FIELDS, InputSetup, Scenario, field_name

METHODS = {"toFloat": Type.FLOAT, "toInteger": Type.INTEGER, "toString": Type.STRING}
TYPES = {bool: Type.BOOLEAN, int: Type.INTEGER, float: Type.FLOAT, str: Type.STRING}
ARITHMETIC = {"+", "-", "*", "/", "%"}


def plan_of(scenario: Scenario) -> Plan:
    """The plan; conditions are checked as soon as all of their terms are bound."""
    terms = tuple(
        Term(name, index)
        for name, index in zip(scenario.names(), map(scenario.input_of, scenario.pattern), strict=True)
        if index is not None
    )
    conditions = tuple(expression_of(node, scenario.pattern) for node in scenario.conditions)
    text: Expression = EventText(0)
    for index in range(1, len(terms)):
        text = Binary(Type.STRING, "+", Binary(Type.STRING, "+", text, Literal(Type.STRING, "|")), EventText(index))
    inputs = tuple(input_of(item, scenario.keys) for item in scenario.inputs)
    automaton = chain(terms, conditions)
    block = (Print(text),) if scenario.prints else ()
    query = QueryPlan("Q", scenario.keys, inputs, terms, automaton, conditions, scenario.within, block)
    return Plan(event_types(), (query,))


def event_types() -> tuple[EventType, ...]:
    """Every definition of a scenario's query."""
    found: list[EventType] = []
    for event in EVENTS:
        fields = tuple(Field(field_name(event, name), Type(type_)) for name, type_ in FIELDS.items())
        found.append(EventType(event, fields))
        found.append(EventType(f"H{event}", tuple(fields[list(FIELDS).index(name)] for name in ("k", "c", "ts"))))
    return (*found, EventType("H", (Field("ts", Type.FLOAT),)), EventType("U", (Field("id", Type.INTEGER),)))


def input_of(item: InputSetup, keys: tuple[str, ...]) -> Input:
    """One input."""
    least = None
    if item.least is not None:
        least = Binary(Type.BOOLEAN, ">=", FieldOf(Type.INTEGER, 0, "v"), Literal(Type.INTEGER, item.least))
    own_keys = tuple(field_name(item.event, name) for name in keys)
    time_from = None if item.time == "column" or item.wait is None else "ts"
    heartbeat = None
    if item.heartbeat is not None:
        keyless = item.heartbeat == "H"
        heartbeat = Heartbeat(item.heartbeat, () if keyless else own_keys, "ts" if keyless else time_from)
    return Input(
        event=item.event,
        keys=own_keys,
        filter=least,
        within=item.within,
        retain=item.retain,
        wait=item.wait,
        time_from=time_from,
        out_of_order=item.out_of_order,
        heartbeat=heartbeat,
    )


def chain(terms: tuple[Term, ...], conditions: tuple[Expression, ...]) -> Automaton:
    """`first -> ... -> last`, read backwards."""
    states: list[State] = []
    for number, index in enumerate(reversed(range(len(terms))), 1):
        checks = tuple(n for n, node in enumerate(conditions) if min(terms_of(node), default=len(terms) - 1) == index)
        states.append(State((Transition(terms[index].input, (index,), checks, number if index else ACCEPT),)))
    return Automaton(tuple(states))


def expression_of(node: Node, pattern: tuple[str, ...]) -> Expression:
    """The checked tree of a condition."""
    match node:
        case Name(term, field, type_):
            return FieldOf(Type(type_), term, field_name(pattern[term], field))
        case Constant(value):
            return Literal(TYPES[type(value)], value)
        case Operation(sign, left, right):
            operand = expression_of(left, pattern)
            type_of_result = operand.type if sign in ARITHMETIC else Type.BOOLEAN
            return Binary(type_of_result, sign, operand, expression_of(right, pattern))
        case Not(operand):
            return Unary(Type.BOOLEAN, "not", expression_of(operand, pattern))
        case Negative(operand):
            inner = expression_of(operand, pattern)
            return Unary(inner.type, "-", inner)
        case Method(name, operand):
            return Call(METHODS[name], name, expression_of(operand, pattern))
