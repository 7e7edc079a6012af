"""Messages in Avro as records: schemas of a file and of a registry, types, evolution, what cannot be read."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import querylang
from job_engine.errors import Unreachable
from job_engine.kafka_broker import TopicChoice
from job_engine.sources.reading import Reading
from job_engine.sources.topics import reading
from job_engine.sources.topics.avro.registry import SchemaRegistry
from job_engine.sources.topics.consuming import Chunk
from job_engine.sources.topics.pieces import OffsetRange
from job_engine.sources.topics.reading import RangeReader
from job_engine.sources.topics.settings import AvroForm, KafkaSource, RegistryAddress
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.packed_rows import unpack_row
from job_engine.wire.program import Program
from querylang.errors import InputError
from runtime.columns.arrivals import Arrivals, RecordKind
from runtime.json_reader import json_of_text
from tests.support.kafka.keys import made_keys
from tests.support.kafka.registry import Registry, encoded, record, running_registry

PLAN = querylang.compile_text(
    """event Place { string town; float north; }
    event A { string k; float v; integer n; decimal d; boolean b; string colour; float at_time; string id;
              Place place; sequence<integer> numbers; dictionary<string, float> sizes; }
    event B { string k; }
    query Rise { inputs { A() key k within 100.0; B() key k within 100.0; } find A as a -> B as b }"""
).plan
PROGRAM = Program.of(PLAN, buckets=1, sources=[ClockSource("s", by_topic=True)])

FIELDS: dict[str, object] = {
    "k": "string",
    "v": ["null", "double"],
    "n": ["null", "int", "long"],
    "d": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
    "b": "boolean",
    "colour": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]},
    "at_time": {"type": "long", "logicalType": "timestamp-millis"},
    "id": {"type": "string", "logicalType": "uuid"},
    "place": ["null", record("Place", {"town": "string", "north": "float"})],
    "numbers": {"type": "array", "items": "long"},
    "sizes": {"type": "map", "values": "double"},
    "unread": {"type": "int", "logicalType": "date"},
}
SCHEMA = record("A", FIELDS) | {"namespace": "com.example"}
SMALL = record("A", {"k": "string", "v": "double"})
OLD = record("A", {"k": "string", "v": "int"})


def value(**changes: object) -> dict[str, object]:
    return {
        "k": "x",
        "v": 1.5,
        "n": 3,
        "d": decimal.Decimal("12.34"),
        "b": True,
        "colour": "BLUE",
        "at_time": datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC),
        "id": uuid.UUID(int=7),
        "place": {"town": "Cork", "north": 51.5},
        "numbers": [1, 2],
        "sizes": {"a": 0.5},
        "unread": datetime.date(2024, 1, 1),
    } | changes


def packed(
    monkeypatch: pytest.MonkeyPatch, form: AvroForm, values: Sequence[bytes | None], chunk: int = 100, **settings: str
) -> list[dict[str, object]]:
    def consumed(*_: object) -> list[Chunk]:
        return [
            Chunk(np.arange(at, at + len(part)), np.arange(at, at + len(part)) * 1_000_000, list(part))
            for at in range(0, len(values), chunk)
            for part in (values[at : at + chunk],)
        ]

    monkeypatch.setattr(reading, "consumed", consumed)
    source = KafkaSource("s", TopicChoice(("t",)), {}, avro=form, retry=0.0)
    source = json_of_text(json.dumps(asdict(source)), KafkaSource)
    reader = RangeReader(PROGRAM, source, Reading(name="s", **settings), accepts_loss=False)  # type: ignore[arg-type]
    rows = [
        row
        for batch in reader.packed(OffsetRange("s", "t", 0, 0, 0, len(values)))
        for row in batch.column(1).to_pylist()
    ]
    arrivals = Arrivals.concat([part.arrivals for row in rows for part in unpack_row(row, PLAN).records])
    return sorted(arrivals.table.to_pylist(), key=lambda row: int(row["_offset"]))


def texts(rows: Sequence[dict[str, object]]) -> dict[object, str]:
    return {row["_offset"]: str(row["_text"]) for row in rows if row["_kind"] == RecordKind.MALFORMED}


@pytest.mark.parametrize("is_recursive", [False, True])
def test_all_types_become_fields(monkeypatch: pytest.MonkeyPatch, is_recursive: bool) -> None:
    """A schema that contains itself has no Arrow type: its values decide."""
    schema = dict(SCHEMA)
    if is_recursive:
        schema["fields"] = [*SCHEMA["fields"], {"name": "next", "type": ["null", "com.example.A"], "default": None}]
    form = AvroForm(json.dumps(schema))
    nothing = value(v=None, n=None, d=None, place=None, numbers=[], sizes={}, k="y")
    rows = packed(monkeypatch, form, [encoded(schema, value()), encoded(schema, nothing)], event="A")
    first, second = rows
    assert not texts(rows)
    assert {name: first[name] for name in first if name[0] != "_" and first[name] is not None} == {
        "k:string": "x",
        "v:float": 1.5,
        "n:integer": 3,
        "d:decimal": decimal.Decimal("12.34"),
        "b:boolean": True,
        "colour:string": "BLUE",
        "at_time:float": 1704067200.0,
        "id:string": "00000000-0000-0000-0000-000000000007",
        "place:Place": {"town": "Cork", "north": 51.5},
        "numbers:sequence<integer>": [1, 2],
        "sizes:dictionary<string,float>": [("a", 0.5)],
    }
    assert [second[name] for name in ("k:string", "v:float", "n:integer", "d:decimal", "place:Place")] == ["y"] + [
        None
    ] * 4


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_each_message_is_read_with_its_own_schema(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    other = record("B", {"k": "string"})
    with running_registry() as registry:
        for number, schema in enumerate((OLD, SMALL, [SMALL, other]), 1):
            registry.add(number, schema)
        registry.add(9, "string")
        registry.add(8, {}, schemaType="PROTOBUF")
        values = [
            encoded(SMALL, {"k": "x", "v": 1.5}, 2),
            encoded(OLD, {"k": "x", "v": 2}, 1),
            b"\0\0\0\0\3\2" + encoded(other, {"k": "y"}),
            b"\0\0\0\0\3\0" + encoded(SMALL, {"k": "y", "v": 3.5}),
            b"\0\0\0\0\3\4",
            b"\0\0\0\0\7\0",
            b"{}",
            None,
            encoded(SMALL, {"k": "x", "v": 1.5}, 2)[:-1],
            encoded(SMALL, {"k": "x", "v": 1.5}, 2) + b"!",
            b"\0\0\0\0\2\4\xff\xff" + bytes(8),
            b"\0\0\0\0\x09\2x",
            b"\0\0\0\0\x08\2x",
            encoded(SMALL, {"k": "z", "v": 4.5}, 2),
        ]
        form = AvroForm(registry=RegistryAddress((registry.url,)))
        rows = packed(monkeypatch, form, values, chunk)
        assert len(registry.asked) == len(set(registry.asked)) or chunk == 1
    good = [row for row in rows if row["_kind"] != RecordKind.MALFORMED]
    assert [(row["_offset"], row["_kind"], row["k:string"], row["v:float"]) for row in good] == [
        (0, 1, "x", 1.5),
        (1, 1, "x", 2.0),
        (2, 2, "y", None),
        (3, 1, "y", 3.5),
        (13, 1, "z", 4.5),
    ]
    begins = "does not begin with a zero and the number of a schema, as a registry's serializer writes it"
    broken = "not a record of its schema"
    assert texts(rows) == {
        4: "offset 4: names a record that its schema does not have: b'\\x00\\x00\\x00\\x00\\x03\\x04'",
        5: "offset 5: the schema registry has no schema 7: b'\\x00\\x00\\x00\\x00\\x07\\x00'",
        6: f"offset 6: {begins}: b'{{}}'",
        7: "offset 7: a message without a value: b''",
        8: f"offset 8: {broken}: it ends too early, or has a wrong number of a branch: {values[8]!r}",
        9: f"offset 9: {broken}: 1 bytes follow its end: {values[9]!r}",
        10: f"offset 10: {broken}: a text is not UTF-8: {values[10]!r}",
        11: f"offset 11: its schema is 'string', and not a record: {values[11]!r}",
        12: f"offset 12: schema 8 is of PROTOBUF, and not of Avro: {values[12]!r}",
    }


def test_a_schema_of_a_file_beside_a_registry_gives_defaults_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    old = record("A", {"key": "string"})
    new = record("A", {"k": "string", "v": "double"})
    new["fields"][0]["aliases"] = ["key"]
    new["fields"][1]["default"] = 9.5
    with running_registry() as registry:
        registry.add(1, old)
        registry.add(2, record("A", {"key": "long"}))
        form = AvroForm(json.dumps(new), RegistryAddress((registry.url,)))
        rows = packed(monkeypatch, form, [encoded(old, {"key": "x"}, 1), b"\0\0\0\0\2\2"], event="A")
    assert [(row["k:string"], row["v:float"]) for row in rows] == [("x", 9.5), (None, None)]
    assert texts(rows)[1].startswith("offset 1: its schema cannot be read with that of `avro.schema`: ")


def test_schemas_may_name_others(monkeypatch: pytest.MonkeyPatch) -> None:
    place = record("Place", {"town": "string", "north": "float"}) | {"namespace": "geo"}
    schema = record("A", {"k": "string", "place": "geo.Place"})
    with running_registry() as registry:
        registry.versions["places/2"] = {"schema": json.dumps(place)}
        registry.add(1, schema, references=[{"name": "geo.Place", "subject": "places", "version": 2}])
        body = encoded(
            record("A", {"k": "string", "place": place}), {"k": "x", "place": {"town": "Cork", "north": 1}}, 1
        )
        rows = packed(monkeypatch, AvroForm(registry=RegistryAddress((registry.url,))), [body], event="A")
    assert rows[0]["place:Place"] == {"town": "Cork", "north": 1.0}


def test_a_fingerprint_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one of `"int"` is published: 0x7275d51a3f395c8f."""
    from job_engine.sources.topics.avro.decoding import _fingerprint

    assert _fingerprint('"int"') == 0x7275D51A3F395C8F.to_bytes(8, "little")
    form, body = AvroForm(json.dumps(SMALL)), encoded(SMALL, {"k": "x", "v": 1.5})
    header = b"\xc3\x01" + _fingerprint(json.dumps(SMALL))
    values = [header + body, b"\xc3\x01" + bytes(8) + body, b"Obj\x01...", b"\0\0\0\0\7" + body]
    rows = packed(monkeypatch, form, values, event="A")
    assert rows[0]["k:string"] == "x"
    assert list(texts(rows)) == [1, 2, 3]
    assert "does it need a registry (`schema.registry.url`)?" in texts(rows)[3]


def test_a_registry_is_asked_again_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    registry.start()
    registry.stop()
    form = AvroForm(registry=RegistryAddress((registry.url,)))
    with pytest.raises(Unreachable, match=r"the schema registry at http://127.0.0.1:.*: it cannot be reached"):
        packed(monkeypatch, form, [b"\0\0\0\0\1\0"], event="A")
    lines: list[str] = []

    def tell(line: str) -> None:
        lines.append(line)
        if not registry.server:
            registry.start()

    registry.add(1, SMALL)
    try:
        assert SchemaRegistry(RegistryAddress((registry.url,)), 60.0, tell).schema(1)[1] == ()
    finally:
        registry.stop()
    assert [line.split(registry.url)[1].split(",")[0] for line in lines] == [
        ": it cannot be reached (Connection refused); it is asked again for 60 s",
        " answers again",
    ]


def test_a_login_and_certificates_are_used(tmp_path: Path) -> None:
    certificate, keys = made_keys(tmp_path)
    with running_registry(login="me:secret", certificate=keys) as registry:
        registry.add(1, SMALL)
        trusted = {"authorities": str(certificate)}
        SchemaRegistry(RegistryAddress((registry.url,), "me:secret", **trusted)).check()  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"it refuses the login \(HTTP 401\)"):
            SchemaRegistry(RegistryAddress((registry.url,), "me:wrong", **trusted)).check()  # type: ignore[arg-type]
        with pytest.raises(InputError, match=r"TLS fails \(.*certificate verify failed"):
            SchemaRegistry(RegistryAddress((registry.url,), "me:secret")).check()


EMPTY = record("Empty", {})
NESTED = record("A", {"k": "string", "next": ["null", "A"]})


def nested(levels: int) -> bytes:
    return b"\2x\2" * levels + b"\2x\0"


def doubled(levels: int) -> dict[str, object]:
    """A record each of whose levels has the one below twice."""
    found: object = "null"
    for number in range(levels):
        again = found if number == 0 else f"R{number - 1}"
        found = record(f"R{number}", {"a": found, "b": again})
    return record("A", {"k": "string", "inner": found})


def packed_list(count: int) -> bytes:
    """The text `x`, and a list of so many items that take no bytes."""
    number, data = count << 1, b""
    while number > 0x7F:
        data, number = data + bytes([number & 0x7F | 0x80]), number >> 7
    return b"\2x" + data + (bytes([number, 0]) if count else b"\0")


@pytest.mark.parametrize(
    "items", ["null", EMPTY, {"type": "fixed", "name": "F", "size": 0}, record("P", {"n": "null"})]
)
def test_a_list_of_items_without_bytes_has_a_limit(monkeypatch: pytest.MonkeyPatch, items: object) -> None:
    schema = record("A", {"k": "string", "numbers": {"type": "array", "items": items}})
    values = [packed_list(count) for count in (0, 1_000_000_000, 1 << 55)]
    rows = packed(monkeypatch, AvroForm(json.dumps(schema)), values, event="A")
    assert rows[0]["k:string"] == "x"
    wrong = texts(rows)
    assert list(wrong) == [1, 2]
    assert "not a record of its schema: a list of 1,000,000,000 items in 8 bytes" in wrong[1]


def test_a_message_may_be_nested_a_hundred_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [nested(levels) for levels in (0, 1, 90, 101, 5_000, 200_000)]
    rows = packed(monkeypatch, AvroForm(json.dumps(NESTED)), values, event="A")
    assert [row["k:string"] for row in rows[:3]] == ["x"] * 3
    assert {row: text.partition(": ")[2][:51] for row, text in texts(rows).items()} == dict.fromkeys(
        (3, 4, 5), "not a record of its schema: nested more than 100 de"
    )


def test_schemas_have_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    chain: list[object] = [record("R0", {"a": "string"})]
    chain += [record(f"R{number}", {"a": f"R{number - 1}"}) for number in range(1, 400)]
    with running_registry() as registry:
        registry.add(1, doubled(8))
        registry.add(2, doubled(40))
        registry.add(3, chain)
        registry.schemas[4] = {"schema": '{"type":"array","items":' * 5_000 + '"null"' + "}" * 5_000}
        registry.add(5, record("A", {"k": {"type": "fixed", "name": "F", "size": -1}}))
        registry.add(6, record("A", {"k": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": None}}))
        registry.add(7, SMALL)
        values = [b"\0\0\0\0" + bytes([number]) + b"\2x" for number in (1, 2, 3, 4, 5, 6)]
        values.append(encoded(SMALL, {"k": "x", "v": 1.5}, 7))
        rows = packed(monkeypatch, AvroForm(registry=RegistryAddress((registry.url,))), values)
    assert [row["k:string"] for row in (rows[0], rows[6])] == ["x", "x"]
    wrong = {row: text.partition("registry: ")[2].partition(": b'")[0] for row, text in texts(rows).items()}
    assert wrong == {
        1: "has more than 10,000 types, where each name counts as often as it is used",
        2: "nested more than 100 deep",
        3: "nested more than 100 deep",
        4: "not a schema of Avro: the size -1",
        5: "not a schema of Avro: an integer is required",
    }


def test_a_number_of_any_length_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = record("A", {"k": "string", "d": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}})
    long = b"\2x\x80\x80\x80\1" + bytes(1 << 20)
    rows = packed(monkeypatch, AvroForm(json.dumps(schema)), [long, b"\2x\2\7"], event="A")
    assert list(texts(rows)) == [0]
    assert rows[1]["d:decimal"] == decimal.Decimal("0.07")


ODD_ANSWERS: list[dict[str, object]] = [
    {"schema": None},
    {"schema": 5},
    {"schema": json.dumps(SMALL), "schemaType": 7},
    {"schema": json.dumps(SMALL), "references": "x"},
    {"schema": json.dumps(SMALL), "references": [5]},
    {"schema": json.dumps(SMALL), "references": [{"subject": "x"}]},
    {"schema": json.dumps(SMALL), "references": [{"subject": "x", "version": "y"}]},
    {"schema": json.dumps(SMALL), "references": [{"subject": "loop", "version": 1}]},
    {"schema": "[" * 100_000},
    {"schema": "x" * (5 << 20)},
    {"schema": "x" * (20 << 20)},
    {"schema": "\ud800"},
    {"schema": ""},
    [],  # type: ignore[list-item]
    5,  # type: ignore[list-item]
]


@pytest.mark.parametrize("answer", ODD_ANSWERS, ids=lambda answer: str(answer)[:60])
def test_an_odd_answer_makes_its_own_messages_malformed_only(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, object]
) -> None:
    with running_registry() as registry:
        registry.schemas[1] = answer
        registry.versions["loop/1"] = {"schema": '"int"', "references": [{"subject": "loop", "version": 1}]}
        registry.add(2, SMALL)
        values = [b"\0\0\0\0\1\2x", encoded(SMALL, {"k": "x", "v": 1.5}, 2)]
        rows = packed(monkeypatch, AvroForm(registry=RegistryAddress((registry.url,))), values)
    assert list(texts(rows)) == [0]
    assert rows[1]["k:string"] == "x"
