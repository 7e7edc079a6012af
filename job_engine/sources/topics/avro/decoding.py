"""Decode messages in Avro, as columns where fastavro and Arrow have them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from job_engine.sources.topics.avro.budgets import WrongSchema
from job_engine.sources.topics.avro.registry import SchemaRegistry, UnknownSchema
from job_engine.sources.topics.avro.schemas import MessageSchema, RecordSchema, message_schema, read_as
from job_engine.sources.topics.settings import AvroForm
from querylang.dataclass import dataclass, field
from querylang.errors import InputError
from runtime.file_forms import Asked
from runtime.json_reader import json_of_text
from runtime.reading import Decoded, Describe, PythonCells, RawTable, Unreadable, cells_of, joined_parts, of_rows

_SINGLE = b"\xc3\x01"
"""What messages with a fingerprint of their schema begin with; 8 bytes of it follow."""

_FILE = b"Obj\x01"

_ALONE, _FINGERPRINT = -1, -2
"""In place of a schema's number: the one of the file, without and with its fingerprint."""

_STARTS = {0: 5, _ALONE: 0, _FINGERPRINT: 10}
"""Where a record begins. In front of one of a registry are a zero and the schema's number."""


@dataclass(frozen=True, slots=True)
class AvroDecoder:
    """Decodes the messages of a range, as a `Decode`.

    patience: seconds that a registry is asked again
    unknown: by number of a schema: why messages of it cannot be read
    """

    form: AvroForm
    patience: float
    unknown: dict[int, str] = field(default_factory=dict)

    def __call__(self, values: Sequence[bytes | None], name: str, describe: Describe, asked: Asked) -> Decoded:
        """The records; what cannot be read makes only itself unreadable."""
        rows: dict[int, list[int]] = {}
        problems: dict[int, str] = {}
        for row, value in enumerate(values):
            found = self._schema_of(value, asked)
            if isinstance(found, str):
                problems[row] = found
            else:
                rows.setdefault(found, []).append(row)
        parts = [
            part
            for number, chosen in sorted(rows.items())
            for part in self._parts(number, values, chosen, problems, asked)
        ]
        return _together(parts, problems, name, describe, asked)

    def _schema_of(self, value: bytes | None, asked: Asked) -> int | str:
        """The schema's number; or why the message cannot be read."""
        if value is None:
            return "a message without a value"
        if len(value) > asked.max_record:
            return asked.too_long
        if self.form.registry is not None:
            if value[:1] == b"\0" and len(value) >= _STARTS[0]:
                return int.from_bytes(value[1:5], "big")
            return "does not begin with a zero and the number of a schema, as a registry's serializer writes it"
        if value[:2] != _SINGLE:
            return "a file of Avro, and not a record" if value[:4] == _FILE else _ALONE
        assert self.form.schema is not None, "there is a registry or a file"
        is_same = value[2:10] == _fingerprint(self.form.schema)
        return _FINGERPRINT if is_same else "its schema has another fingerprint than that of `avro.schema`"

    def _parts(
        self,
        number: int,
        values: Sequence[bytes | None],
        chosen: Sequence[int],
        problems: dict[int, str],
        asked: Asked,
    ) -> list[_Part]:
        """The records of one schema, a part per record type; what is wrong goes to `problems`."""
        found, start = self._schema(number), _STARTS[min(number, 0)]
        if isinstance(found, str):
            problems.update(dict.fromkeys(chosen, found))
            return []
        own = None if self.form.registry is None or self.form.schema is None else _of_file(self.form.schema)
        reader = None if own is None else own.records[0].schema
        branches: Mapping[int, Sequence[int]] = {0: chosen}
        if found.is_union:
            branches = _branches(values, chosen, start, found, problems)
            start += 1
        parts = []
        for at, rows in sorted(branches.items()):
            record = found.records[at]
            if record.problem is None:
                parts.append(_part(record, *_read(values, rows, start, record, reader, problems), asked))
            else:
                problems.update(dict.fromkeys(rows, record.problem))
        return parts

    def _schema(self, number: int) -> MessageSchema | str:
        if number < 0:
            assert self.form.schema is not None, "there is a registry or a file"
            return _of_file(self.form.schema)
        if number not in self.unknown:
            try:
                return _registered(self.form, number, self.patience)
            except UnknownSchema as error:
                self.unknown[number] = str(error)
        return self.unknown[number]


@dataclass(frozen=True, slots=True)
class _Part:
    """Records of one type; `rows`: numbers of their messages; `nested` as in `RawTable`."""

    name: str
    rows: NDArray[np.int64]
    columns: Mapping[str, pa.Array]
    nested: Mapping[str, list[int]]


def _branches(
    values: Sequence[bytes | None],
    chosen: Sequence[int],
    start: int,
    schema: MessageSchema,
    problems: dict[int, str],
) -> dict[int, list[int]]:
    """By number of a record in a union: its messages."""
    found: dict[int, list[int]] = {}
    for row in chosen:
        number = (values[row] or b"")[start : start + 1]
        at = number[0] >> 1 if number and not number[0] & 0x81 else len(schema.records)
        if at < len(schema.records):
            found.setdefault(at, []).append(row)
        else:
            problems[row] = "names a record that its schema does not have"
    return found


def _read(
    values: Sequence[bytes | None],
    chosen: Sequence[int],
    start: int,
    writer: RecordSchema,
    reader: object,
    problems: dict[int, str],
) -> tuple[list[int], list[Mapping[str, Any]]]:
    """The messages that are records, and these; the others go to `problems`."""
    rows, records, read, schema = [], [], _reader(), writer.schema
    for row in chosen:
        value = values[row]
        assert value is not None, "it has a schema"
        unbounded = None if writer.bounds is None else writer.bounds.problem(value, start)
        if unbounded is not None:
            problems[row] = f"not a record of its schema: {unbounded}"
            continue
        stream = BytesIO(value)
        stream.seek(start)
        try:
            record = read(stream, schema, reader)
        except Exception as error:  # noqa: BLE001 # fastavro raises whatever broken bytes cause
            problems[row] = _reason(error)
            continue
        if stream.tell() == len(value):
            rows.append(row)
            records.append(record)
        else:
            behind = len(value) - stream.tell()
            hint = "; does it need a registry (`schema.registry.url`)?" if start == 0 and value[0] == 0 else ""
            problems[row] = f"not a record of its schema: {behind} bytes follow its end{hint}"
    return rows, records


@functools.cache
def _reader() -> Any:
    from fastavro import schemaless_reader

    return schemaless_reader


def _reason(error: Exception) -> str:
    kind = type(error).__name__
    if kind == "SchemaResolutionError":
        return f"its schema cannot be read with that of `avro.schema`: {' '.join(str(error).split())[:200]}"
    if isinstance(error, UnicodeDecodeError):
        return "not a record of its schema: a text is not UTF-8"
    if isinstance(error, EOFError | IndexError):
        return "not a record of its schema: it ends too early, or has a wrong number of a branch"
    return f"not a record of its schema: {kind}"


@functools.cache
def _of_file(schema: str) -> MessageSchema:
    try:
        return message_schema(schema)
    except WrongSchema as error:
        raise InputError(f"the schema of `avro.schema`: {error}") from error


@functools.cache
def _fingerprint(schema: str) -> bytes:
    """That of messages with a single object: CRC-64 of the canonical form, least byte first."""
    from fastavro.schema import fingerprint, to_parsing_canonical_form

    parsed: Any = json_of_text(schema, object)
    return bytes.fromhex(fingerprint(to_parsing_canonical_form(parsed), "CRC-64-AVRO"))


@functools.lru_cache(maxsize=10_000)
def _registered(form: AvroForm, number: int, patience: float) -> MessageSchema:
    """A schema of a registry. A number is never given to another schema, so a worker keeps it."""
    assert form.registry is not None, "only then messages have numbers of schemas"
    text, references = SchemaRegistry(form.registry, patience).schema(number)
    try:
        found = message_schema(text, references)
    except WrongSchema as error:
        raise UnknownSchema(f"schema {number} of the registry: {error}") from error
    return found if form.schema is None else read_as(found, _of_file(form.schema).records[0])


def _part(schema: RecordSchema, rows: Sequence[int], records: Sequence[Mapping[str, Any]], asked: Asked) -> _Part:
    """The fields that are needed, as columns."""
    columns: dict[str, pa.Array] = {}
    nested: dict[str, list[int]] = {}
    for name, kind in schema.columns.items():
        if asked.wanted is None or name.casefold() in asked.wanted:
            values = [record[name] for record in records]
            cells = _cells(values, kind, name)
            columns[name] = cells.column
            if kind is None and cells.nested:
                nested[name] = [rows[place] for place in cells.nested]
    return _Part(schema.name, np.array(rows, np.int64), columns, nested)


def _cells(values: list[Any], kind: pa.DataType | None, name: str) -> PythonCells:
    if kind is not None:
        try:
            return PythonCells(pa.array(values, kind))
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            pass  # such as a decimal with more digits than its schema says
    return cells_of(values, f"field {name!r}")


def _together(
    parts: Sequence[_Part], problems: Mapping[int, str], name: str, describe: Describe, asked: Asked
) -> Decoded:
    """All records in the order of their messages."""
    unreadable = [Unreadable(row, *_told(describe, row, reason)) for row, reason in sorted(problems.items())]
    tables = [_raw(part, name, describe) for part in parts if len(part.rows)]
    if not tables:
        nothing = of_rows([], name, describe, asked, 0)
        return Decoded(
            RawTable(name, nothing.columns, nothing.numbers, describe, unreadable), pa.array([], pa.string())
        )
    raw = joined_parts(tables)
    events = pa.chunked_array([pa.repeat(part.name, len(part.rows)) for part in parts if len(part.rows)])
    order = np.argsort(raw.numbers, kind="stable")
    in_order = RawTable(
        name, raw.columns.take(pa.array(order)), raw.numbers[order], describe, unreadable, nested=raw.nested
    )
    return Decoded(in_order, events.take(pa.array(order)).combine_chunks().dictionary_encode())


def _told(describe: Describe, row: int, reason: str) -> tuple[str, str, str]:
    place, text = describe(row)
    return place, reason, text


def _raw(part: _Part, name: str, describe: Describe) -> RawTable:
    columns = pa.table(dict(part.columns)) if part.columns else pa.table({"": pa.nulls(len(part.rows))})
    return RawTable(name, columns, part.rows, describe, nested=part.nested)
