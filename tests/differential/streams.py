"""Random scenarios: small queries, streams with many ties, boundary times and nulls.

Times come from tiny ranges, so that equal times and times exactly at a bound are frequent.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.support.conditions import Constant, Method, Name, Negative, Node, Not, Operation
from tests.support.patterns import Clause, Leaf, Where, Within, chain, leaves_of
from tests.support.scenario import SECOND, Filter, InputSetup, Row, Scenario

T = TypeVar("T")

START = 36_000 * SECOND

PATTERNS = (*("AB", "AB", "AB", "AB", "AA", "AA", "AA", "ABC", "ABC", "ABC"), "ABA", "AAA", "BAB", "A", "ABAC", "AABB")
KEYS: tuple[tuple[str, ...], ...] = ((), (), ("k",), ("k",), ("c",), ("k", "c"), ("c", "k"))
WAITS = (*(seconds * SECOND for seconds in (5, 12, 20, 3, 2, 1)), 2_500_000)
WITHINS = (*(seconds * SECOND for seconds in (30, 8, 5, 3, 60, 15, 2, 1)), 1_500_000)
DELAYS = (
    (0, 0, 0, 1, 1, 2, 2, 3),
    (0, 0, 0, 1, 1, 2, 3, 4, 5, -1),
    (0, 1, 2, 10, 11, 12, 3),
    (0, 0, 1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 15, 20, 21, -1, -3),
)
"""How old events are when they arrive, in seconds; negative: ahead of the clock. A stream has one of these jitters."""
PACES = ((0, 0, 0, 1), (0, 0, 0, 0, 1, 1, 1, 1, 2), (0, 1, 1, 2, 3, 7))
NUDGES = (0, 0, 0, 0, 0, 0, -1, 1)
"""Microseconds beside a whole second: the smallest step over a bound."""
LENGTHS = (0.0, 1.0, 2.0, 3.0, 10.0, 60.0, math.inf)

INTEGERS = (-2, -1, 0, 1, 1, 2, 2, 3)
FLOATS = (-1.5, 0.0, -0.0, 0.5, 1.0, 1.0, 2.0, 2.5)
STRINGS = ("", "a", "a", "b", "b", "Z", "é", "ab", "\U0001f600", "\uffff")
ODD_INTEGERS = (2**63 - 1, -(2**63), 2**31, 7)
ODD_FLOATS = (math.inf, -math.inf, math.nan, 1e300, 5e-324, 1e21)


@st.composite
def scenarios(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Scenario:
    """A query and its stream, drawn by hypothesis: it likes small and strange ones."""
    return Drawing(lambda values: draw(st.sampled_from(values))).scenario()


def random_scenario(seed: int, *, length: int | None = None, spread: int = 2) -> Scenario:
    """A query and its stream by number: evenly spread, so that most streams bring matches.

    `length`: about how many records; `spread`: how many values a key has.
    """
    return Drawing(random.Random(seed).choice, length, spread).scenario()


class Drawing:
    """Draws the parts of one scenario, each with its own liberties; `choice` takes one of a sequence."""

    def __init__(self, choice: Callable[[Sequence[Any]], Any], length: int | None = None, spread: int = 2) -> None:
        self._choice = choice
        self._length = length
        self._integer_keys = (0, *range(spread))
        self._string_keys = ("x", *(f"x{number}" if number else "y" for number in range(spread)))
        self._calm = self._chance(2)
        """Every event is admitted: then SQL can answer too."""
        self._delays = self._one(DELAYS)
        self._paces = self._one(PACES)
        self._nulls = self._chance(4)
        self._odd = self._chance(6)

    def _one(self, values: Sequence[T]) -> T:
        drawn: T = self._choice(values)
        return drawn

    def _chance(self, of_: int) -> bool:
        return self._one(range(of_)) == of_ - 1

    def scenario(self) -> Scenario:
        pattern = chain(*self._one(PATTERNS))
        leaves = leaves_of(pattern)
        events = sorted({leaf.event for leaf in leaves} | ({"C"} if self._chance(5) else set()))
        keys = self._one(KEYS)
        inputs = tuple(self._input(event, keys) for event in events)
        clauses: list[Clause] = [Where(self._condition(leaves)) for _ in range(self._one((0, 1, 1)))]
        length = self._one((8, 30, 40, 50) if len(leaves) > 3 else (6, 15, 30, 50, 80, 100))
        rows = self._rows(inputs, self._length or length)
        within = self._one((None, None, None, None, *WITHINS))
        clauses += [] if within is None else [Within(within)]
        return Scenario(inputs, pattern, rows, keys, tuple(clauses), prints=self._chance(4))

    def _input(self, event: str, keys: tuple[str, ...]) -> InputSetup:
        retain = self._one((None, None, 3, 2, 5, 1))
        within = self._one(WITHINS if retain is None else (None, *WITHINS))
        filters = (Filter("v", ">=", self._one((0, 1))),) if self._chance(8) else ()
        if self._chance(5):
            return InputSetup(event, within, retain, filters=filters)
        time = self._one(("column", "field", "annotation"))
        heartbeats = (f"H{event}", "H") if keys else (f"H{event}",)
        heartbeat = None if time != "field" and self._chance(2) else self._one(heartbeats)
        wait = 100 * SECOND if self._calm else self._one(WAITS)
        out_of_order = self._calm or self._chance(3)
        return InputSetup(event, within, retain, wait, out_of_order, heartbeat, time, filters)

    def _rows(self, inputs: tuple[InputSetup, ...], length: int) -> tuple[Row, ...]:
        events = [item.event for item in inputs]
        heartbeats = [] if self._calm else [item.heartbeat for item in inputs if item.heartbeat]
        others = [] if self._calm else ["tick", "control", "U", "malformed", "unknown", "HC"]
        kinds = events * 12 + heartbeats * 2 + ["tick", *others]
        at = START
        rows: list[Row] = []
        if not self._calm and self._chance(2):
            rows.append(Row(at, "control", leeway=(self._one(LENGTHS), self._one(LENGTHS))))
        for _ in range(length):
            at += self._one(self._paces) * SECOND + self._one(NUDGES) * (self._one((0, 1)))
            at = max(at, rows[-1].at) if rows else at
            row = self._row(at, self._one(kinds))
            rows.append(replace(row, partition=1) if self._chance(8) else row)
        return tuple(rows)

    def _row(self, at: int, kind: str) -> Row:
        source = "u" if self._chance(8) else "t"
        match kind:
            case "tick" | "U":
                return Row(at, kind, source=source)
            case "malformed" | "unknown":
                return Row(at, kind, text="?", source=source)
            case "control":
                return self._control(at, source)
        time = None if self._null() else at - self._one(self._delays) * SECOND + self._one(NUDGES)
        key: dict[str, Any] = {"k": self._maybe(self._integer_keys), "c": self._maybe(self._string_keys)}
        if kind == "H":
            return Row(at, kind, time, source=source)
        if kind.startswith("H"):
            return Row(at, kind, time, **key, source=source)
        integers = INTEGERS + (ODD_INTEGERS if self._odd else ())
        floats = FLOATS + (ODD_FLOATS if self._odd else ())
        values: dict[str, Any] = {"v": self._maybe(integers), "f": self._maybe(floats), "s": self._maybe(STRINGS)}
        return Row(at, kind, time, **key, **values, g=self._maybe((False, True)), source=source)

    def _control(self, at: int, source: str) -> Row:
        if self._chance(6):
            return Row(at, "control", text="com.apama.queries.SetDelayedEventsLeeway(-1.0)", source=source)
        return Row(at, "control", leeway=(self._one(LENGTHS), self._one(LENGTHS)), source=source)

    def _null(self) -> bool:
        return self._nulls and self._chance(12)

    def _maybe(self, values: Sequence[T]) -> T | None:
        return None if self._null() else self._one(values)

    def _condition(self, leaves: tuple[Leaf, ...]) -> Node:
        match self._one(("compare", "compare", "compare", "and", "or", "xor", "not", "field")):
            case "compare":
                return self._comparison(leaves)
            case "not":
                return Not(self._comparison(leaves))
            case "field":
                return self._name(leaves, "g", "boolean")
            case sign:
                return Operation(sign, self._comparison(leaves), self._comparison(leaves))

    def _comparison(self, leaves: tuple[Leaf, ...]) -> Node:
        kind = self._one(("integer", "integer", "float", "string", "boolean"))
        sign = self._one(("!=", "=") if kind == "boolean" else ("!=", "!=", ">=", "<=", ">", "<", "="))
        field = {"integer": "v", "float": "f", "string": "s", "boolean": "g"}[kind]
        if self._chance(2):
            left = self._one(range(len(leaves)))
            right = (left + 1 + self._one((0, 1))) % len(leaves)
            names = (Name(leaves[place].name, field, kind) for place in (left, right))
            return Operation(sign, *names)
        return Operation(sign, self._operand(leaves, kind), self._operand(leaves, kind))

    def _operand(self, leaves: tuple[Leaf, ...], kind: str, depth: int = 0) -> Node:
        choice = self._one(("name", "name", "name", "constant", "operation", "method")) if depth < 2 else "name"
        match kind, choice:
            case "boolean", "constant":
                return Constant(self._one((True, False)))
            case "boolean", _:
                return self._name(leaves, "g", "boolean")
            case "integer", "constant":
                value = self._one((1, 0, 2, 3))
                return Negative(Constant(value)) if self._chance(4) else Constant(value)
            case "float", "constant":
                return Constant(self._one((1.0, 0.0, 0.5, 2.5)))
            case "string", "constant":
                return Constant(self._one(("a", "", "b", "ab", "é")))
            case "string", "operation":
                return Operation("+", self._operand(leaves, kind, 2), self._operand(leaves, kind, 2))
            case "string", "method":
                return Method("toString", self._name(leaves, *self._one((("v", "integer"), ("s", "string")))))
            case _, "operation":
                sign = self._one(("+", "-", "*", "/") if kind == "float" else ("+", "-", "*", "/", "%"))
                inner = depth + 1
                return Operation(sign, self._operand(leaves, kind, inner), self._operand(leaves, kind, inner))
            case "float", "method":
                return Method("toFloat", self._name(leaves, "v", "integer"))
            case "integer", "method":
                return Method("toInteger", self._name(leaves, "f", "float"))
        field = {"integer": ("v", "v", "k", "id"), "float": ("f",), "string": ("s", "s", "c")}[kind]
        return self._name(leaves, self._one(field), kind)

    def _name(self, leaves: tuple[Leaf, ...], field: str, kind: str) -> Name:
        return Name(self._one(leaves).name, field, kind)
