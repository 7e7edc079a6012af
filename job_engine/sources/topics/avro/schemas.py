"""Schemas of Avro, prepared for fastavro and Arrow.

fastavro makes a Python object of each timestamp and date. Arrow makes a column of all of them at
once, so fastavro is given a schema in which they are numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from job_engine.sources.topics.avro.budgets import Bounds, WrongSchema, bounds_of, refuse_text
from querylang.dataclass import dataclass, replace
from runtime.file_forms import shortened
from runtime.json_reader import json_of_text

_PRIMITIVES: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}

_TIMES: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{("long", f"timestamp-{name}"): pa.timestamp(unit, "UTC") for name, unit in (("millis", "ms"), ("micros", "us"))},
    **{("long", f"local-timestamp-{name}"): pa.timestamp(unit) for name, unit in (("millis", "ms"), ("micros", "us"))},
    ("long", "timestamp-nanos"): pa.timestamp("ns", "UTC"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
"""Logical types that are numbers for fastavro, and times for Arrow."""

_NUMBERS = ("int", "long", "float", "double")
_MOST_DIGITS = 76


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """A schema of records.

    name: of the record, without its namespace
    schema: what fastavro reads with
    columns: by field: its Arrow type; None = it depends on the values
    bounds: of its messages; None = they are not read
    problem: why its messages cannot be read; None = they can
    """

    name: str
    schema: Any
    columns: Mapping[str, pa.DataType | None]
    bounds: Bounds | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """A schema of messages: a record, or a union of records.

    is_union: whether a message begins with the number of its record
    """

    records: tuple[RecordSchema, ...]
    is_union: bool


def message_schema(text: str, references: Sequence[str] = ()) -> MessageSchema:
    """The schema that a JSON text has; raises WrongSchema.

    references: texts of the schemas that it names, each behind those that it names itself
    """
    from fastavro import parse_schema

    for part in (*references, text):
        refuse_text(part)
    named: dict[str, Any] = {}
    try:
        for reference in references:
            parse_schema(_json(reference), named_schemas=named)
        parsed = parse_schema(_json(text), named_schemas=named)
        is_union = isinstance(parsed, list)
        records = tuple(_record(branch, named) for branch in (parsed if is_union else [parsed]))
    except WrongSchema:
        raise
    except Exception as error:  # fastavro raises whatever a schema that is not one causes
        raise WrongSchema(f"not a schema of Avro: {_line(error)}") from error
    return MessageSchema(records, is_union)


def _json(text: str) -> Any:
    return json_of_text(text, object)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _record(parsed: Any, named: Mapping[str, Any]) -> RecordSchema:
    from fastavro import parse_schema

    found = named.get(parsed, parsed) if isinstance(parsed, str) else parsed
    if not isinstance(found, dict) or found.get("type") not in ("record", "error"):
        kind = found.get("type") if isinstance(found, dict) else found
        return RecordSchema("", "null", {}, problem=f"its schema is {shortened(repr(kind))}, and not a record")
    bounds = bounds_of(found, named)
    types = _ArrowTypes(named)
    columns = {item["name"]: types.of(item["type"]) for item in found["fields"]}
    has_numbers = None not in columns.values()
    schema = parse_schema(_closed(found, named, set(), has_numbers=has_numbers))
    return RecordSchema(found["name"].rpartition(".")[2], schema, columns, bounds)


def read_as(writer: MessageSchema, reader: RecordSchema) -> MessageSchema:
    """The same messages, whose columns are those of the reader's schema."""
    records = tuple(item if item.problem else replace(item, columns=reader.columns) for item in writer.records)
    return replace(writer, records=records)


class _ArrowTypes:
    """Arrow types of schemas.

    known: by name; None while it is looked at, and for what contains itself
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.named = named
        self.known: dict[str, pa.DataType | None] = {}

    def of(self, schema: Any) -> pa.DataType | None:
        """The type of all values of a schema; None = there is none, or it cannot be said."""
        if isinstance(schema, list):
            return self._union([item for item in schema if item != "null"])
        if isinstance(schema, str):
            if schema in self.known:
                return self.known[schema]
            return self.of(self.named[schema]) if schema in self.named else _PRIMITIVES[schema]
        kind, logical = schema["type"], schema.get("logicalType")
        match kind:
            case "record" | "error":
                return self._struct(schema)
            case "array" | "map":
                inner = self.of(schema["items" if kind == "array" else "values"])
                if inner is None:
                    return None
                return pa.list_(inner) if kind == "array" else pa.map_(pa.string(), inner)
            case "enum":
                return pa.string()
            case "bytes" | "fixed" if logical == "decimal":
                return _decimal(schema)
            case "fixed":
                return None if logical == "uuid" else pa.binary()
            case str():
                return _TIMES.get((kind, logical)) or self.of(kind)
            case _:
                return self.of(kind)

    def _union(self, others: Sequence[Any]) -> pa.DataType | None:
        if not others:
            return pa.null()
        if len(others) == 1:
            return self.of(others[0])
        if all(item in _NUMBERS for item in others if isinstance(item, str)) and all(map(_is_word, others)):
            return pa.float64() if {"float", "double"} & set(others) else pa.int64()
        return None

    def _struct(self, schema: Mapping[str, Any]) -> pa.DataType | None:
        name = schema["name"]
        if name not in self.known:
            self.known[name] = None
            parts = [(item["name"], self.of(item["type"])) for item in schema["fields"]]
            self.known[name] = None if any(kind is None for _, kind in parts) else pa.struct(parts)
        return self.known[name]


def _is_word(schema: Any) -> bool:
    return isinstance(schema, str)


def _decimal(schema: Mapping[str, Any]) -> pa.DataType | None:
    digits, scale = schema.get("precision", 0), schema.get("scale", 0)
    if not 0 < digits <= _MOST_DIGITS:
        return None
    return pa.decimal128(digits, scale) if digits <= 38 else pa.decimal256(digits, scale)


def _closed(schema: Any, named: Mapping[str, Any], seen: set[str], *, has_numbers: bool) -> Any:
    """The schema with the definitions of all names that it uses.

    has_numbers: whether times are numbers
    seen: names that are defined already
    """
    if isinstance(schema, list):
        return [_closed(item, named, seen, has_numbers=has_numbers) for item in schema]
    if isinstance(schema, str):
        is_new = schema in named and schema not in seen
        return _closed(named[schema], named, seen, has_numbers=has_numbers) if is_new else schema
    kind = schema["type"]
    plain = {key: value for key, value in schema.items() if not key.startswith("__")}
    if kind in ("record", "error"):
        seen.add(schema["name"])
        inner = [
            item | {"type": _closed(item["type"], named, seen, has_numbers=has_numbers)} for item in schema["fields"]
        ]
        return plain | {"fields": inner}
    if kind in ("enum", "fixed"):
        if schema["name"] in seen:
            return schema["name"]
        seen.add(schema["name"])
        return plain
    for part in ("items", "values"):
        if part in schema:
            return plain | {part: _closed(schema[part], named, seen, has_numbers=has_numbers)}
    if isinstance(kind, str) and kind in _PRIMITIVES:
        return plain if not has_numbers or plain.get("logicalType") == "decimal" else kind
    return _closed(kind, named, seen, has_numbers=has_numbers)
