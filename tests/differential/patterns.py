"""Random queries of every construct, and streams for them: several queries share a stream, as compiling and running have a cost.

Streams are short, of few keys and small values, with many ties and times exactly at a bound; what they bring is decided by
enumeration, so patterns with too many candidates are drawn again, smaller.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.differential.streams import DELAYS, Drawing
from tests.support import pattern_oracle
from tests.support.candidates import TooManyError
from tests.support.conditions import Aggregate, Constant, Method, Moment, Name, Node, Operation, Selected
from tests.support.patterns import (
    SECOND,
    Both,
    Chain,
    Clause,
    Either,
    Every,
    Leaf,
    Pattern,
    Wait,
    Where,
    Within,
    Without,
    is_plain,
    leaves_of,
    opposites,
    parts_of,
)
from tests.support.scenario import EVENTS, Filter, InputSetup, Row, Scenario

LENGTHS = tuple(seconds * SECOND for seconds in (1, 2, 3, 4, 5, 8, 12, 20, 40, 60))
LONG = LENGTHS[3:]
WAITS = tuple(seconds * SECOND for seconds in (1, 2, 3, 5, 8, 15))
KEYS: tuple[tuple[str, ...], ...] = ((), (), (), ("k",), ("k",), ("c",), ("h",), ("k", "c"), ("c", "k"), ("h", "k"))
KINDS = (*("find", "find", "find", "find", "every", "every", "every"), *("trailing", "trailing", "leading", "leading"))
FILTERS = (
    Filter("v", ">=", 0),
    Filter("v", "<", 3),
    Filter("s", "=", "a"),
    Filter("v", "[]", (0, 2)),
    Filter("v", "(]", (-1, 2)),
    Filter("f", "[)", (-1.5, 2.0)),
)
UNIQUE = (("v",), ("s",), ("g",), ("v", "g"), ("half",))
FUNCTIONS = (
    *("count", "count()", "sum", "sum", "avg", "mean", "min", "max", "first", "last", "nth", "percentile"),
    *("stddev", "stddev2", "wavg", "countUnique"),
)
SHARES = (0.0, 25.0, 50.0, 90.0, 100.0)
COUNTS = (1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5)


def random_queries(seed: int, count: int) -> list[Scenario]:
    """`count` queries over one stream, by number."""
    return PatternDrawing(random.Random(seed)).queries(count)


class PatternDrawing(Drawing):
    """Draws a stream, then queries for it."""

    def __init__(self, chooser: random.Random) -> None:
        super().__init__(chooser.choice)
        self._delays = self._one((DELAYS[0], DELAYS[0], *DELAYS))
        self._times = {event: self._one(("column", "field", "annotation")) for event in EVENTS}
        self._letters = self._one(("A", "AB", "AB", "AB", "ABC"))
        self._lax = {event: self._calm or self._chance(4) for event in EVENTS}
        self._odd = False

    def queries(self, count: int) -> list[Scenario]:
        """Queries named Q0, Q1, ... over one stream."""
        rows = self._stream()
        return [self._query(f"Q{number}", rows) for number in range(count)]

    def _stream(self) -> tuple[Row, ...]:
        inputs = tuple(InputSetup(event, heartbeat=self._one((f"H{event}", "H"))) for event in self._letters)
        rows = self._rows(inputs, self._one((15, 25, 35, 45)))
        if self._nulls:
            return rows
        return tuple(
            row if row.kind not in EVENTS or row.time is not None else replace(row, time=row.at) for row in rows
        )

    def _query(self, name: str, rows: tuple[Row, ...]) -> Scenario:
        """A query whose candidates can be counted."""
        for narrow in range(100):
            scenario = self._draw(name, rows, narrow)
            try:
                pattern_oracle.run(scenario)
            except TooManyError:
                continue
            return scenario
        raise AssertionError("no query is small enough")

    def _draw(self, name: str, rows: tuple[Row, ...], narrow: int) -> Scenario:
        count = self._one(COUNTS)
        pattern = self._pattern([Leaf(self._one(self._letters), "") for _ in range(count)])
        pattern = named(pattern)
        events = sorted({leaf.event for leaf in leaves_of(pattern)} | set(self._one(("", "", "", *EVENTS))))
        keys = self._one(KEYS)
        inputs = tuple(self._window(event, keys, narrow) for event in events)
        kind = self._one(KINDS)
        leading = self._wait("p") if kind == "leading" or self._chance(10) else None
        trailing = self._wait("q") if kind == "trailing" else None
        waits = [wait.name for wait in (leading, trailing) if wait is not None and wait.name is not None]
        clauses = tuple(self._clauses(pattern, events, waits))
        every = self._every(pattern) if kind == "every" else None
        prints, parameters = self._chance(4), self._chance(6)
        return Scenario(inputs, pattern, rows, keys, clauses, leading, trailing, every, prints, parameters, name)

    def _pattern(self, leaves: list[Leaf]) -> Pattern:
        if len(leaves) == 1:
            return leaves[0]
        operator = self._one(("->", "->", "->", "and", "or"))
        if operator == "->":
            cuts = sorted({self._one(range(1, len(leaves))) for _ in range(self._one((1, 1, 2, 4)))})
            ends = zip([0, *cuts], [*cuts, len(leaves)], strict=True)
            return Chain(tuple(self._pattern(leaves[start:end]) for start, end in ends))
        cut = self._one(range(1, len(leaves)))
        sides = self._pattern(leaves[:cut]), self._pattern(leaves[cut:])
        return Both(*sides) if operator == "and" else Either(*sides)

    def _window(self, event: str, keys: tuple[str, ...], narrow: int) -> InputSetup:
        retain = self._one((None, None, 4, 3, 5, 8, 2, 1)) if narrow < 5 else self._one((1, 2, 3))
        within = self._one(LONG if retain is None else (None, None, None, *LENGTHS))
        filters = (self._one(FILTERS),) if self._chance(6) else ()
        unique = self._one(UNIQUE) if self._chance(6) else ()
        item = InputSetup(event, within, retain, filters=filters, unique=unique, time=self._times[event])
        item = replace(item, out_of_order=self._lax[event])
        if self._chance(5):
            return item
        heartbeats = ("H",) if "h" in keys else (f"H{event}", "H") if keys else (f"H{event}",)
        heartbeat = None if item.time != "field" and self._chance(2) else self._one(heartbeats)
        return replace(item, wait=100 * SECOND if self._calm else self._one(WAITS), heartbeat=heartbeat)

    def _wait(self, name: str) -> Wait:
        return Wait(self._one(WAITS), None if self._chance(5) else name)

    # Clauses

    def _clauses(self, pattern: Pattern, events: Sequence[str], waits: Sequence[str]) -> list[Clause]:
        names = [leaf.name for leaf in leaves_of(pattern)]
        clauses: list[Clause] = [Where(self._where(self._some(pattern))) for _ in range(self._one((0, 0, 1, 1, 1, 2)))]
        if self._chance(4):
            clauses.append(Within(self._one(LENGTHS)))
        if self._chance(4) and len(names) + len(waits) > 1:
            clauses.append(Within(self._one(LONG), self._between([*names, *waits])))
        count = self._one((0, 1, 1, 2) if waits else (0, 0, 0, 1, 1, 2))
        return [*clauses, *(self._without(pattern, events, waits, f"x{number}") for number in range(count))]

    def _where(self, leaves: tuple[Leaf, ...]) -> Node:
        """Mostly something between two events that is often so."""
        if self._chance(3):
            return self._condition(leaves)
        if self._chance(6):
            apart = Operation("-", Moment(leaves[-1].name), Moment(leaves[0].name))
            return Operation(self._one(("<", ">=", "!=")), apart, Constant(self._one((0.0, 1.0, 3.0))))
        field, kind = self._one((("v", "integer"), ("f", "float"), ("s", "string"), ("g", "boolean")))
        sign = self._one(("!=", "!=", "=") if kind == "boolean" else ("!=", "!=", "<=", ">=", "=", "<"))
        low = {"v": 1, "f": 0.5, "s": "a", "g": True}[field]
        right = Constant(low) if len(leaves) == 1 else Name(leaves[-1].name, field, kind)
        return Operation(sign, Name(leaves[0].name, field, kind), right)

    def _without(self, pattern: Pattern, events: Sequence[str], waits: Sequence[str], name: str) -> Without:
        event = self._one(events)
        names = [*(leaf.name for leaf in leaves_of(pattern)), *waits]
        between = self._between(names) if len(names) > 1 and self._chance(2) else ()
        condition = None
        if self._chance(2):
            own = Leaf(event, name)
            condition = self._about((own, *self._some(pattern)), own)
        return Without(event, name, condition, between)

    def _about(self, leaves: tuple[Leaf, ...], own: Leaf) -> Node:
        """A condition that mentions the event of a `without`."""
        field, kind = self._one((("v", "integer"), ("s", "string"), ("f", "float")))
        sign = self._one(("=", "!=", "<", ">="))
        return Operation(sign, Name(own.name, field, kind), self._operand(leaves, kind))

    def _between(self, names: Sequence[str]) -> tuple[str, ...]:
        rest, chosen = list(names), []
        for _ in range(min(len(rest), self._one((2, 2, 2, 3)))):
            chosen.append(self._one(rest))
            rest.remove(chosen[-1])
        return tuple(chosen)

    def _some(self, pattern: Pattern) -> tuple[Leaf, ...]:
        """Up to three named events, never of both sides of an `or`."""
        leaves, chosen = list(leaves_of(pattern)), []
        sides = opposites(pattern)
        for _ in range(self._one((1, 2, 2, 3))):
            fitting = [leaf for leaf in leaves if not any(are_opposite(sides, leaf, other) for other in chosen)]
            chosen.append(self._one(fitting))
        return tuple(dict.fromkeys(chosen))

    # Every

    def _every(self, pattern: Pattern) -> Every:
        selects = tuple((f"s{number}", self._aggregate(pattern)) for number in range(self._one((1, 2, 3))))
        having = tuple(self._having(pattern, selects) for _ in range(self._one((0, 0, 1, 2))))
        return Every(selects, having)

    def _aggregate(self, pattern: Pattern) -> Node:
        leaves = self._some(pattern)
        function = self._one(FUNCTIONS)
        kind = self._one(("integer", "float"))
        match function:
            case "count()":
                return Aggregate("count")
            case "count":
                return Aggregate("count", (self._comparison(leaves),))
            case "first" | "last" | "countUnique" | "min" | "max":
                kind = self._one(("integer", "float", "string"))
                return Aggregate(function, (self._value(leaves, kind),))
            case "nth":
                return Aggregate(function, (self._value(leaves, kind), Constant(self._one((0, 1, 2)))))
            case "percentile":
                return Aggregate(function, (self._value(leaves, kind), Constant(self._one(SHARES))))
            case "wavg":
                return Aggregate(function, (self._value(leaves, kind), Name(self._one(leaves).name, "id", "integer")))
        return Aggregate(function, (self._value(leaves, kind),))

    def _value(self, leaves: tuple[Leaf, ...], kind: str) -> Node:
        field = {"integer": ("v", "id"), "float": ("f",), "string": ("s",)}[kind]
        value: Node = self._name(leaves, self._one(field), kind)
        if kind != "string" and self._chance(2):
            return Operation(self._one(("+", "-")), value, self._name(leaves, self._one(field), kind))
        return value

    def _having(self, pattern: Pattern, selects: Sequence[tuple[str, Node]]) -> Node:
        sign = self._one(("<", ">=", ">", "!="))
        name, node = self._one(selects)
        kind = type_of(node)
        if kind == "string":
            return Operation(sign, Selected(name), Constant("a"))
        other: Node = Selected(name)
        if self._chance(2):
            other = Aggregate("count")
            kind = "integer"
        low: Node = Constant(self._one((1, 2, 3))) if kind == "integer" else Constant(self._one((0.5, 1.0, 2.0)))
        return Operation(sign, other, low)


def type_of(node: Node) -> str:
    """The type of an aggregate, or of its argument."""
    match node:
        case Aggregate("count" | "countUnique", _):
            return "integer"
        case Aggregate("sum" | "min" | "max" | "first" | "last" | "nth", arguments):
            return type_of(arguments[0])
        case Aggregate():
            return "float"
        case Name(_, _, type_):
            return type_
        case Operation(_, left, _):
            return type_of(left)
        case Method("toString", _):
            return "string"
    raise AssertionError(node)


def named(pattern: Pattern) -> Pattern:
    """The pattern with its names by place: a1, b2, ..."""
    numbers = iter(range(1, len(leaves_of(pattern)) + 1))

    def renamed(node: Pattern) -> Pattern:
        match node:
            case Leaf(event, _):
                return Leaf(event, f"{event.lower()}{next(numbers)}")
            case Chain(parts):
                return Chain(tuple(map(renamed, parts)))
        return type(node)(*map(renamed, parts_of(node)))

    return renamed(pattern)


def are_opposite(sides: Sequence[tuple[frozenset[str], frozenset[str]]], one: Leaf, other: Leaf) -> bool:
    """Whether two names stand on the two sides of an `or`."""
    pairs = ((one.name, other.name), (other.name, one.name))
    return any(first in left and second in right for left, right in sides for first, second in pairs)


def constructs_of(scenario: Scenario) -> set[str]:
    """What the query is made of, by the words with which a test may leave it out."""

    def operators(pattern: Pattern) -> set[str]:
        word = {Chain: "->", Both: "and", Either: "or", Leaf: "event"}[type(pattern)]
        return {word}.union(*map(operators, parts_of(pattern)))

    found = operators(scenario.pattern)
    if not is_plain(scenario.pattern):
        found.add("nested")
    for clause in scenario.clauses:
        word = type(clause).__name__.lower()
        found.add(word if not getattr(clause, "between", ()) else f"{word} between")
        if isinstance(clause, Without) and clause.condition is not None:
            found.add("without where")
    parts: dict[str, Any] = {name: getattr(scenario, name) for name in ("leading", "trailing", "every")}
    found |= {name for name, part in parts.items() if part is not None}
    found |= {name for name in ("unique", "retain", "filters") if any(getattr(item, name) for item in scenario.inputs)}
    if scenario.every is not None:
        found |= {node.function for _, node in scenario.every.selects if isinstance(node, Aggregate)}
        found |= {"having"} if scenario.every.having else set()
    found |= {"parameters"} if scenario.parameters else set()
    return found | ({"key action"} if "h" in scenario.keys else set())
