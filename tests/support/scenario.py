"""A random stream and the query it is for, as plain data whose `repr` is Python that makes it again.

Gives the query's text and the engine's columns; the oracles read the same data without either.
Three event types A, B and C have the same fields (B calls its first key field `kk`), HA, HB and HC are their keyed
heartbeats, H is one without keys for all, U is an event that no query takes. `half()` is an action of A, B and C.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from querylang.plan.expression import Type
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals, RecordKind, arrivals_schema, column_name
from runtime.instants import NO_TIME
from tests.support.conditions import Short, to_query
from tests.support.patterns import (
    SECOND,
    Clause,
    Every,
    Leaf,
    Pattern,
    Wait,
    Where,
    Within,
    Without,
    clause_text,
    leaves_of,
    opposites,
    pattern_text,
    seconds_text,
    wait_text,
)

__all__ = ["SECOND"]  # of `patterns`, for those who write scenarios

EVENTS = ("A", "B", "C")
FIELDS: dict[str, str] = {
    "id": "integer",
    "k": "integer",
    "c": "string",
    "v": "integer",
    "f": "float",
    "s": "string",
    "g": "boolean",
    "ts": "float",
}
PAYLOAD = ("k", "c", "v", "f", "s", "g")


@dataclass(frozen=True, repr=False)
class Row(Short):
    """A record. `kind`: an event type, `tick`, `control`, `malformed` or `unknown`. Times in microseconds."""

    at: int
    kind: str
    time: int | None = None
    k: int | None = None
    c: str | None = None
    v: int | None = None
    f: float | None = None
    s: str | None = None
    g: bool | None = None
    text: str | None = None
    leeway: tuple[float, float] | None = None
    source: str = "t"
    partition: int = 0


@dataclass(frozen=True, repr=False)
class Filter(Short):
    """`field operator value`, or `field in [low:high]`: then `value` is both ends and `operator` the two brackets."""

    field: str
    operator: str
    value: Any

    def takes(self, value: Any) -> bool:
        """Whether an event with this value of the field is one of the input's; a null is not."""
        if value is None:
            return False
        match self.operator:
            case "=":
                return bool(value == self.value)
            case "<":
                return bool(value < self.value)
            case "<=":
                return bool(value <= self.value)
            case ">":
                return bool(value > self.value)
            case ">=":
                return bool(value >= self.value)
        low, high = self.value
        above = value >= low if self.operator[0] == "[" else value > low
        below = value <= high if self.operator[1] == "]" else value < high
        return bool(above and below)

    def text(self) -> str:
        """In the query language."""
        if self.operator[0] in "[(":
            low, high = map(_literal, self.value)
            return f"{self.field} in {self.operator[0]}{low}:{high}{self.operator[1]}"
        return f"{self.field} {self.operator} {_literal(self.value)}"


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


@dataclass(frozen=True, repr=False)
class InputSetup(Short):
    """An input of the query. `time`: column, field or annotation says the source time; `unique`: fields, or `half`.

    `missing`: the keys whose null is a value.
    """

    event: str
    within: int | None = None
    retain: int | None = None
    wait: int | None = None
    out_of_order: bool = False
    heartbeat: str | None = None
    time: str = "column"
    filters: tuple[Filter, ...] = ()
    unique: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class Scenario(Short):
    """A query and its stream. `keys`: `k`, `c`, or `h`, which is what `half()` gives.

    `parameters`: its numbers of seconds and of events are parameters with a default.
    """

    inputs: tuple[InputSetup, ...]
    pattern: Pattern
    rows: tuple[Row, ...]
    keys: tuple[str, ...] = ()
    clauses: tuple[Clause, ...] = ()
    leading: Wait | None = None
    trailing: Wait | None = None
    every: Every | None = None
    prints: bool = False
    parameters: bool = False
    name: str = "Q"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The pattern's named events in text order."""
        return leaves_of(self.pattern)

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(leaf.name for leaf in self.leaves)

    @property
    def within(self) -> int | None:
        """The length of the `within` over the whole pattern."""
        return next((item.length for item in self.clauses if isinstance(item, Within) and not item.between), None)

    def event_of(self, name: str) -> str:
        """The event type behind a name, of the pattern or of a `without`."""
        named = {item.name: item.event for item in self.clauses if isinstance(item, Without)}
        return (named | {leaf.name: leaf.event for leaf in self.leaves})[name]

    def ordered(self) -> list[tuple[int, Row]]:
        """Offsets and rows in order of arrival."""
        return sorted(
            enumerate(self.rows, 1), key=lambda item: (item[1].at, item[1].source, item[1].partition, item[0])
        )

    def input_of(self, event: str) -> int | None:
        """The input that takes an event type."""
        return next((index for index, item in enumerate(self.inputs) if item.event == event), None)

    def query(self) -> str:
        """The query's text, definitions included."""
        return query_text([self])

    def query_lines(self) -> list[str]:
        """`query Q { ... }`."""
        inputs = [f"    {self._input(item)};" for item in self.inputs]
        lines = ["  inputs {", *inputs, "  }", *self._find(), "}"]
        return [f"query {self.name} {{", *(with_parameters(lines) if self.parameters else lines)]

    def _input(self, item: InputSetup) -> str:
        text = f"{item.event}({', '.join(rule.text() for rule in item.filters)})"
        if self.keys:
            text += " key " + ", ".join(_key_text(item, name) for name in self.keys)
        text += "" if item.within is None else f" within {seconds_text(item.within)}"
        text += "" if item.retain is None else f" retain {item.retain}"
        if item.unique:
            named = (f"{name}()" if name == "half" else field_name(item.event, name) for name in item.unique)
            text += f" with unique {', '.join(named)}"
        if item.wait is not None:
            text += " time from ts" if item.time == "field" else ""
            text += f" wait {seconds_text(item.wait)}"
            text += "" if item.heartbeat is None else f" or {item.heartbeat}"
        return text

    def _find(self) -> list[str]:
        pattern = [pattern_text(self.pattern)]
        pattern = pattern if self.leading is None else [wait_text(self.leading), *pattern]
        pattern = pattern if self.trailing is None else [*pattern, wait_text(self.trailing)]
        every = "" if self.every is None else "every "
        first = [item for item in self.clauses if isinstance(item, Where)]
        later = [item for item in self.clauses if not isinstance(item, Where)]
        lines = [f"  find {every}{' -> '.join(pattern)}"]
        lines += [f"    {clause_text(item, self._field)}" for item in (*first, *later)]
        if self.every is not None:
            lines += [f"    select {to_query(node, self._field)} as {name}" for name, node in self.every.selects]
            lines += [f"    having {to_query(node, self._field)}" for node in self.every.having]
        texts = ' + "|" + '.join(f"{name}.toString()" for name in self.printed) or '""'
        return [*lines, f"    {{ print {texts}; }}" if self.prints else "    ;"]

    @property
    def printed(self) -> tuple[str, ...]:
        """What the block prints: what was selected, or the names that are always set."""
        if self.every is not None:
            return tuple(name for name, _ in self.every.selects)
        optional = {name for sides in opposites(self.pattern) for side in sides for name in side}
        return tuple(name for name in self.names if name not in optional)

    def _field(self, name: str, field: str) -> str:
        return field_name(self.event_of(name), field)


def with_parameters(lines: Sequence[str]) -> list[str]:
    """The lines with a parameter for each number of seconds and of retained events, and the block that declares them."""
    declared: list[str] = []

    def parameter(found: re.Match[str]) -> str:
        is_count = found[1] is not None
        name = f"p{len(declared)}"
        declared.append(f"    {'integer' if is_count else 'float'} {name} := {found[2]}{'' if is_count else '.0'};")
        return f"{found[1] or ''}{name}"

    body = [re.sub(r"(retain )?\b(\d+)(?(1)| seconds)", parameter, line) for line in lines]
    return ["  parameters {", *declared, "  }", *body] if declared else body


# Texts and columns of several scenarios over the same stream


def query_text(scenarios: Sequence[Scenario]) -> str:
    """One text of all their queries."""
    queries = [line for scenario in scenarios for line in scenario.query_lines()]
    return "\n".join([*definitions(setups(scenarios)), *queries]) + "\n"


def setups(scenarios: Sequence[Scenario]) -> dict[str, InputSetup]:
    """For each event type what its definition and its records depend on: `time` and `out_of_order`."""
    found: dict[str, InputSetup] = {}
    for item in (item for scenario in scenarios for item in scenario.inputs):
        known = found.setdefault(item.event, item)
        assert (known.time, known.out_of_order) == (item.time, item.out_of_order), "one definition serves all queries"
    return {event: found.get(event, InputSetup(event)) for event in EVENTS}


def definitions(items: Mapping[str, InputSetup]) -> list[str]:
    """The event types."""
    lines: list[str] = []
    for event, item in items.items():
        fields = " ".join(f"{type_} {field_name(event, name)};" for name, type_ in FIELDS.items())
        keys = " ".join(f"{FIELDS[name]} {field_name(event, name)};" for name in ("k", "c"))
        time = " action getTime() returns float { return ts; }" if item.time == "annotation" else ""
        half = " action half() returns integer { return v / 2; }"
        annotation = '@TimeFrom("getTime") ' if item.time == "annotation" else ""
        order = "@OutOfOrder() " if item.out_of_order else ""
        lines.append(f"{annotation}{order}event {event} {{ {fields}{half}{time} }}")
        lines.append(f"{annotation}event H{event} {{ {keys} float ts;{time} }}")
    lines.append('@TimeFrom("getTime") event H { float ts; action getTime() returns float { return ts; } }')
    return [*lines, "event U { integer id; }"]


def arrivals_of(scenarios: Sequence[Scenario], plan: Plan, numbered: Sequence[tuple[int, Row]]) -> Arrivals:
    """These rows as the engine takes them."""
    schema = arrivals_schema(plan)
    kinds = {event.name: index for index, event in enumerate(plan.events)}
    items = setups(scenarios)
    records = [dict.fromkeys(schema.names) | _record(items, kinds, *item) for item in numbered]
    for record in records:
        assert set(record) == set(schema.names), set(record) ^ set(schema.names)
    return Arrivals(pa.Table.from_pylist(records, schema=schema))


def place_of_source(name: str) -> int:
    """A place for the records of a source: sources come in the order of their names."""
    return int.from_bytes(name.encode()[:7].ljust(7, b"\0"))


def _record(items: Mapping[str, InputSetup], kinds: Mapping[str, int], offset: int, row: Row) -> dict[str, Any]:
    special = {
        "tick": RecordKind.TICK,
        "control": RecordKind.CONTROL,
        "malformed": RecordKind.MALFORMED,
        "unknown": RecordKind.UNKNOWN_TYPE,
    }
    kind = special[row.kind] if row.kind in special else kinds[row.kind]
    record: dict[str, Any] = {
        "_kind": int(kind),
        "_arrival": row.at,
        "_source": row.source,
        "_partition": row.partition,
        "_offset": offset,
        "_source_time": NO_TIME,
        "_place": place_of_source(row.source),
        "_text": row.text if row.leeway is None else leeway_text(*row.leeway),
    }
    if row.kind in special or row.kind == "U":
        return record | ({column_name("id", type_of("id")): offset} if row.kind == "U" else {})
    return record | _event_record(items, offset, row)


def _event_record(items: Mapping[str, InputSetup], offset: int, row: Row) -> dict[str, Any]:
    event = row.kind.removeprefix("H")
    has_column = event != "" and items[event].time == "column"
    record: dict[str, Any] = {}
    if row.time is not None:
        place = "_source_time" if has_column else column_name("ts", type_of("ts"))
        record[place] = row.time if has_column else row.time / SECOND
    names = PAYLOAD if row.kind in EVENTS else ("k", "c") if event else ()
    for name in names:
        record[column_name(field_name(event, name), type_of(name))] = getattr(row, name)
    if row.kind in EVENTS:
        record[column_name("id", type_of("id"))] = offset
    return record


def type_of(field: str) -> Type:
    """The type of a field, as `querylang` has it."""
    return Type.parse(FIELDS[field])


def field_name(event: str, field: str) -> str:
    """What an event type calls a field."""
    return "kk" if (event, field) == ("B", "k") else field


def _key_text(item: InputSetup, name: str) -> str:
    sign = "?" if name in item.missing else ""
    if name == "h":
        return f"half(){sign} as h"
    field = field_name(item.event, name)
    return f"{field}{sign}" if field == name else f"{field}{sign} as {name}"


def half_of(row: Row) -> int | None:
    """What `half()` gives: half of `v`, truncated toward zero."""
    return None if row.v is None else (row.v + (row.v < 0)) // 2


def key_of(row: Row, keys: Sequence[str]) -> tuple[Any, ...]:
    """The key of a row's event or heartbeat."""
    return tuple(half_of(row) if name == "h" else getattr(row, name) for name in keys)


def may_be_key(key: Sequence[Any], keys: Sequence[str], missing: Collection[str]) -> bool:
    """Whether it is the key of a partition; `missing`: the parts that may be null."""
    return all(part is not None or name in missing for name, part in zip(keys, key, strict=True))


def null_first(key: Sequence[Any]) -> tuple[tuple[bool, Any], ...]:
    """What keys are sorted by."""
    return tuple((part is not None, 0 if part is None else part) for part in key)


def leeway_text(leeway: float, reorder: float) -> str:
    """The control event that changes both lengths, in seconds."""
    shown = ["infinity" if length == float("inf") else repr(float(length)) for length in (leeway, reorder)]
    return f"com.apama.queries.SetDelayedEventsLeeway({', '.join(shown)})"
