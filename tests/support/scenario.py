"""A random stream and the query it is for, as plain data whose `repr` is Python that makes it again.

Gives the query's text and the engine's columns; the oracles read the same data without either.
Three event types A, B and C have the same fields (B calls its first key field `kk`), HA, HB and HC are their keyed
heartbeats, H is one without keys for all, U is an event that no query takes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from querylang.plan import Plan
from runtime.batch import NO_TIME, Arrivals, Kind, arrivals_schema, column_name
from tests.support.conditions import Node, to_query

SECOND = 1_000_000
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


class Short:
    """A dataclass's repr without the fields that have their default."""

    def __repr__(self) -> str:
        shown = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)  # type: ignore[arg-type]
            if getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


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
class InputSetup(Short):
    """An input of the query. `least`: a filter `v >= least`; `time`: column, field or annotation says the source time."""

    event: str
    within: int | None = None
    retain: int | None = None
    wait: int | None = None
    out_of_order: bool = False
    heartbeat: str | None = None
    time: str = "column"
    least: int | None = None


@dataclass(frozen=True, repr=False)
class Scenario(Short):
    """A query and its stream; `pattern` names the event type of each term, in order."""

    inputs: tuple[InputSetup, ...]
    pattern: tuple[str, ...]
    rows: tuple[Row, ...]
    keys: tuple[str, ...] = ()
    conditions: tuple[Node, ...] = ()
    within: int | None = None
    prints: bool = False

    def names(self) -> tuple[str, ...]:
        """The terms' names."""
        return tuple(f"{event.lower()}{number}" for number, event in enumerate(self.pattern, 1))

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
        return "\n".join([*self._definitions(), *self._inputs(), *self._find()]) + "\n"

    def _definitions(self) -> list[str]:
        lines: list[str] = []
        for event in EVENTS:
            item = next((item for item in self.inputs if item.event == event), InputSetup(event))
            fields = " ".join(f"{type_} {field_name(event, name)};" for name, type_ in FIELDS.items())
            keys = " ".join(f"{FIELDS[name]} {field_name(event, name)};" for name in ("k", "c"))
            action = " action getTime() returns float { return ts; }" if item.time == "annotation" else ""
            annotation = '@TimeFrom("getTime") ' if item.time == "annotation" else ""
            order = "@OutOfOrder() " if item.out_of_order else ""
            lines.append(f"{annotation}{order}event {event} {{ {fields}{action} }}")
            lines.append(f"{annotation}event H{event} {{ {keys} float ts;{action} }}")
        lines.append('@TimeFrom("getTime") event H { float ts; action getTime() returns float { return ts; } }')
        return [*lines, "event U { integer id; }"]

    def _inputs(self) -> list[str]:
        lines = ["query Q {", "  inputs {"]
        for item in self.inputs:
            text = f"    {item.event}({'' if item.least is None else f'v >= {item.least}'})"
            if self.keys:
                text += " key " + ", ".join(
                    name if field_name(item.event, name) == name else f"{field_name(item.event, name)} as {name}"
                    for name in self.keys
                )
            text += "" if item.within is None else f" within {seconds_text(item.within)}"
            text += "" if item.retain is None else f" retain {item.retain}"
            if item.wait is not None:
                text += " time from ts" if item.time == "field" else ""
                text += f" wait {seconds_text(item.wait)}"
                text += "" if item.heartbeat is None else f" or {item.heartbeat}"
            lines.append(text + ";")
        return [*lines, "  }"]

    def _find(self) -> list[str]:
        names = self.names()
        terms = " -> ".join(f"{event} as {name}" for event, name in zip(self.pattern, names, strict=True))
        lines = [f"  find {terms}"]
        lines += [
            f"    where {to_query(node, names, lambda term, name: field_name(self.pattern[term], name))}"
            for node in self.conditions
        ]
        lines += [] if self.within is None else [f"    within {seconds_text(self.within)}"]
        texts = ' + "|" + '.join(f"{name}.toString()" for name in names)
        return [*lines, f"    {{ print {texts}; }}" if self.prints else "    ;", "}"]

    def arrivals(self, plan: Plan, numbered: Sequence[tuple[int, Row]]) -> Arrivals:
        """These rows as the engine takes them."""
        schema = arrivals_schema(plan)
        kinds = {event.name: index for index, event in enumerate(plan.events)}
        records = [dict.fromkeys(schema.names) | self._record(kinds, *item) for item in numbered]
        for record in records:
            assert set(record) == set(schema.names), set(record) ^ set(schema.names)
        return Arrivals(pa.Table.from_pylist(records, schema=schema))

    def _record(self, kinds: dict[str, int], offset: int, row: Row) -> dict[str, Any]:
        special = {
            "tick": Kind.TICK,
            "control": Kind.CONTROL,
            "malformed": Kind.MALFORMED,
            "unknown": Kind.UNKNOWN_TYPE,
        }
        kind = special[row.kind] if row.kind in special else kinds[row.kind]
        record: dict[str, Any] = {
            "_kind": int(kind),
            "_arrival": row.at,
            "_source": row.source,
            "_partition": row.partition,
            "_offset": offset,
            "_source_time": NO_TIME,
            "_text": row.text if row.leeway is None else leeway_text(*row.leeway),
        }
        if row.kind in special or row.kind == "U":
            return record | ({column_name("id", type_of("id")): offset} if row.kind == "U" else {})
        return record | self._event_record(offset, row)

    def _event_record(self, offset: int, row: Row) -> dict[str, Any]:
        event = row.kind.removeprefix("H")
        item = next((item for item in self.inputs if item.event == event), InputSetup(event or "H"))
        record: dict[str, Any] = {}
        if item.time == "column" and row.time is not None and event:
            record["_source_time"] = row.time
        if (item.time != "column" or not event) and row.time is not None:
            record[column_name("ts", type_of("ts"))] = row.time / SECOND
        names = PAYLOAD if row.kind in EVENTS else ("k", "c") if event else ()
        for name in names:
            record[column_name(field_name(event, name), type_of(name))] = getattr(row, name)
        if row.kind in EVENTS:
            record[column_name("id", type_of("id"))] = offset
        return record


def type_of(field: str) -> Any:
    """The type of a field, as `querylang` has it."""
    from querylang.expression import Type

    return Type(FIELDS[field])


def field_name(event: str, field: str) -> str:
    """What an event type calls a field."""
    return "kk" if (event, field) == ("B", "k") else field


def seconds_text(microseconds: int) -> str:
    """A duration in the query language."""
    whole, rest = divmod(microseconds, SECOND)
    return f"{whole} seconds" if not rest else f"{microseconds / 1000} milliseconds"


def leeway_text(leeway: float, reorder: float) -> str:
    """The control event that changes both lengths, in seconds."""
    shown = ["infinity" if length == float("inf") else repr(float(length)) for length in (leeway, reorder)]
    return f"com.apama.queries.SetDelayedEventsLeeway({', '.join(shown)})"
