"""The plan: all that an executor needs to run a set of queries, as frozen data with a dict form.

Takes nothing from the stages before it: the compiler fills it, `to_dict`/`from_dict` carry it to executors and into
checkpoints. Durations and times are integer microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from querylang import expression as expressions
from querylang.automaton import Automaton, State, Transition
from querylang.expression import Expression, Type

PLAN_VERSION = 1


class PlanVersionError(ValueError):
    """A plan of a version that this release cannot read."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of an event type."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class EventType:
    """An event type; the order of its fields is that of `toString` and of the constructor."""

    name: str
    fields: tuple[Field, ...]

    def type_of(self, field: str) -> Type:
        """The type of a field; KeyError if there is none of that name."""
        for candidate in self.fields:
            if candidate.name == field:
                return candidate.type
        raise KeyError(field)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The event type that says "this input has delivered everything up to my time".

    `keys` are its fields that carry the input's key, in the order of the input's keys; empty with a keyed input:
    it counts for every partition. `time_from` as in `Input`.
    """

    event: str
    keys: tuple[str, ...]
    time_from: str | None


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a query.

    `event` is the type's name, `keys` its fields that make the partition key. `within` and `wait` are microseconds.
    `time_from` names the field that holds the source time (float or integer seconds); None: the column that the source
    declares. `filter` sees the event as term 0. `wait` None: the event's time is its arrival.
    """

    event: str
    keys: tuple[str, ...]
    filter: Expression | None
    within: int | None
    retain: int | None
    wait: int | None
    time_from: str | None
    out_of_order: bool
    heartbeat: Heartbeat | None


@dataclass(frozen=True, slots=True)
class Term:
    """A named event of the pattern: its name and the index of its input."""

    name: str
    input: int


@dataclass(frozen=True, slots=True)
class Print:
    """`print text;`"""

    text: Expression


@dataclass(frozen=True, slots=True)
class Send:
    """`send T(a, b) to "channel";` with one argument a field of `event`."""

    event: str
    arguments: tuple[Expression, ...]
    channel: Expression


Statement = Print | Send


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """One query: `conditions` are and-ed conjuncts of `where`, referred to by the automaton's checks."""

    name: str
    keys: tuple[str, ...]
    inputs: tuple[Input, ...]
    terms: tuple[Term, ...]
    automaton: Automaton
    conditions: tuple[Expression, ...]
    within: int | None
    block: tuple[Statement, ...]

    def input_of(self, event: str) -> int | None:
        """The index of the input that takes this event type."""
        for index, candidate in enumerate(self.inputs):
            if candidate.event == event:
                return index
        return None


@dataclass(frozen=True, slots=True)
class Plan:
    """A set of queries over a set of event types; names are unique in each."""

    events: tuple[EventType, ...]
    queries: tuple[QueryPlan, ...]

    def event(self, name: str) -> EventType:
        """The event type of that name; KeyError if there is none."""
        for candidate in self.events:
            if candidate.name == name:
                return candidate
        raise KeyError(name)

    def query(self, name: str) -> QueryPlan:
        """The query of that name; KeyError if there is none."""
        for candidate in self.queries:
            if candidate.name == name:
                return candidate
        raise KeyError(name)


def to_dict(plan: Plan) -> dict[str, Any]:
    """Plain data that JSON can hold."""
    return {
        "version": PLAN_VERSION,
        "events": [
            {"name": event.name, "fields": [{"name": field.name, "type": str(field.type)} for field in event.fields]}
            for event in plan.events
        ],
        "queries": [_query_to_dict(query) for query in plan.queries],
    }


def from_dict(data: Mapping[str, Any]) -> Plan:
    """The inverse of `to_dict`; raises PlanVersionError for a plan of another version."""
    if data.get("version") != PLAN_VERSION:
        raise PlanVersionError(f"plan of version {data.get('version')!r}; this release reads version {PLAN_VERSION}")
    events = tuple(
        EventType(event["name"], tuple(Field(field["name"], Type(field["type"])) for field in event["fields"]))
        for event in data["events"]
    )
    return Plan(events, tuple(_query_from_dict(query) for query in data["queries"]))


def _query_to_dict(query: QueryPlan) -> dict[str, Any]:
    return {
        "name": query.name,
        "keys": list(query.keys),
        "inputs": [_input_to_dict(item) for item in query.inputs],
        "terms": [{"name": term.name, "input": term.input} for term in query.terms],
        "automaton": [
            [
                {
                    "input": transition.input,
                    "binds": list(transition.binds),
                    "checks": list(transition.checks),
                    "target": transition.target,
                }
                for transition in state.transitions
            ]
            for state in query.automaton.states
        ],
        "conditions": [expressions.to_dict(condition) for condition in query.conditions],
        "within": query.within,
        "block": [_statement_to_dict(statement) for statement in query.block],
    }


def _query_from_dict(data: Mapping[str, Any]) -> QueryPlan:
    states = tuple(
        State(
            tuple(
                Transition(item["input"], tuple(item["binds"]), tuple(item["checks"]), item["target"]) for item in state
            )
        )
        for state in data["automaton"]
    )
    return QueryPlan(
        name=data["name"],
        keys=tuple(data["keys"]),
        inputs=tuple(_input_from_dict(item) for item in data["inputs"]),
        terms=tuple(Term(term["name"], term["input"]) for term in data["terms"]),
        automaton=Automaton(states),
        conditions=tuple(expressions.from_dict(condition) for condition in data["conditions"]),
        within=data["within"],
        block=tuple(_statement_from_dict(statement) for statement in data["block"]),
    )


def _input_to_dict(item: Input) -> dict[str, Any]:
    heartbeat = item.heartbeat
    return {
        "event": item.event,
        "keys": list(item.keys),
        "filter": None if item.filter is None else expressions.to_dict(item.filter),
        "within": item.within,
        "retain": item.retain,
        "wait": item.wait,
        "time_from": item.time_from,
        "out_of_order": item.out_of_order,
        "heartbeat": None
        if heartbeat is None
        else {"event": heartbeat.event, "keys": list(heartbeat.keys), "time_from": heartbeat.time_from},
    }


def _input_from_dict(data: Mapping[str, Any]) -> Input:
    heartbeat = data["heartbeat"]
    return Input(
        event=data["event"],
        keys=tuple(data["keys"]),
        filter=None if data["filter"] is None else expressions.from_dict(data["filter"]),
        within=data["within"],
        retain=data["retain"],
        wait=data["wait"],
        time_from=data["time_from"],
        out_of_order=data["out_of_order"],
        heartbeat=None
        if heartbeat is None
        else Heartbeat(heartbeat["event"], tuple(heartbeat["keys"]), heartbeat["time_from"]),
    )


def _statement_to_dict(statement: Statement) -> dict[str, Any]:
    match statement:
        case Print(text=text):
            return {"is": "print", "text": expressions.to_dict(text)}
        case Send(event=event, arguments=arguments, channel=channel):
            return {
                "is": "send",
                "event": event,
                "arguments": [expressions.to_dict(argument) for argument in arguments],
                "channel": expressions.to_dict(channel),
            }


def _statement_from_dict(data: Mapping[str, Any]) -> Statement:
    match data["is"]:
        case "print":
            return Print(expressions.from_dict(data["text"]))
        case "send":
            arguments = tuple(expressions.from_dict(argument) for argument in data["arguments"])
            return Send(data["event"], arguments, expressions.from_dict(data["channel"]))
        case kind:
            raise ValueError(f"statement of unknown kind {kind!r}")
