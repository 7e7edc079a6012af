"""State that was damaged or cannot be: refused as one kind of error, which says what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import querylang
from job_engine.operator.bucket_state import STATE_VERSION, open_state
from job_engine.operator.step import run_step
from job_engine.wire.packed_rows import ContainerError, pack, pack_arrivals, unpack
from job_engine.wire.program import Program
from querylang.errors import InputError
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine.snapshot import decode, encode
from runtime.policies.plan_policies import SourceOrdering, parse_ordering, with_ordering
from runtime.reading.column_names import ColumnNames
from runtime.reading.tables import read_table

EVENTS = "event A { string k; float v; }\nevent B { string k; float v; }\n"
WAITS = EVENTS + "query Q { inputs { A() key k within 60.0; } find A as a -> wait(30.0) }"
KEPT = (
    EVENTS
    + """query Q {
    inputs { A() key k within 60.0; B() key k within 60.0; } find A as a -> B as b -> A as c where c.v > a.v
}"""
)
CLOCKED = SourceOrdering(None, parse_ordering("stream_analytics late=5s out_of_order=3s"), None)

PLANS = {
    "waits": querylang.compile_text(WAITS).plan,
    "kept": querylang.compile_text(KEPT).plan,
    "clocks": with_ordering(querylang.compile_text(KEPT).plan, [CLOCKED]),
}

REFUSED = (
    "the state of bucket 0 cannot be read: .* Restore the checkpoint from a copy, or choose a new one and new sinks$"
)


def records(plan: Plan, source: str, first: int, count: int) -> Arrivals:
    rows = [
        {"at": float(at), "event": "AB"[at % 2], "k": f"k{at % 3}", "v": float(at), "ts": float(at)}
        for at in range(first, first + count)
    ]
    return read_table(pd.DataFrame(rows), plan, ColumnNames(), source).arrivals


def state_of(name: str) -> tuple[Program, bytes]:
    """The state of the only bucket, with windows, pending matches or timelines, and held records."""
    program, state = Program.of(PLANS[name], buckets=1), None
    for source, first in (("south", 0), ("north", 10)):
        rows = pack_arrivals(records(PLANS[name], source, first, 12), program.groups(), 1, source=source).to_pylist()
        state = run_step(program, 0, state, [row["data"] for row in rows], 1_000).state
    assert state is not None
    return program, state


def test_a_flipped_bit_anywhere_is_one_error_that_says_what_to_do() -> None:
    program, state = state_of("waits")
    for at in range(len(state)):
        damaged = bytearray(state)
        damaged[at] ^= 1 << (at % 8)
        with pytest.raises(InputError, match=REFUSED):
            open_state(program, 0, bytes(damaged))


@pytest.mark.parametrize("length", [0, 1, 6, 13, 14, 40, -1])
def test_a_part_of_a_state_is_refused(length: int) -> None:
    program, state = state_of("waits")
    with pytest.raises(InputError, match=REFUSED):
        open_state(program, 0, state[:length])
    with pytest.raises(InputError, match=REFUSED):
        open_state(program, 0, state + b"x")


def contents(state: bytes) -> tuple[dict[str, Any], list[bytes], dict[str, Any], dict[str, pa.Table]]:
    header, parts = unpack("state", STATE_VERSION, state)
    return header, [bytes(part) for part in parts], *decode(bytes(parts[0]))


def rewritten(state: bytes, change: Callable[[dict[str, Any], dict[str, Any], dict[str, pa.Table]], None]) -> bytes:
    """The state with other content, and checksums that fit."""
    header, parts, own, tables = contents(state)
    change(header, own, tables)
    return pack("state", STATE_VERSION, header, [encode(own, tables), *parts[1:]], is_stored=True)


def test_state_that_is_written_again_is_the_same() -> None:
    for name in PLANS:
        program, state = state_of(name)
        open_state(program, 0, rewritten(state, lambda *_: None))


def other_columns(tables: dict[str, pa.Table]) -> Iterator[tuple[str, str, pa.Array]]:
    """Columns with a null, and columns with a number that is far away, in their first row."""
    for name, table in tables.items():
        for field in table.schema if len(table) else ():
            plain = table.column(field.name).to_pylist()
            yield name, field.name, pa.array([None, *plain[1:]], field.type)
            if pa.types.is_integer(field.type):
                for value in (-5, 127, np.iinfo(field.type.to_pandas_dtype()).max):
                    yield name, field.name, pa.array([value, *plain[1:]], field.type)


def with_column(state: bytes, name: str, column: str, values: pa.Array) -> bytes:
    def change(_: object, __: object, tables: dict[str, pa.Table]) -> None:
        old = tables[name]
        tables[name] = old.set_column(old.schema.get_field_index(column), pa.field(column, values.type), values)

    return rewritten(state, change)


def outcome(program: Program, state: bytes) -> str:
    """Why a step with this state is refused; "" = it is not."""
    try:
        run_step(program, 0, state, [], 2_000)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("plan", sorted(PLANS))
def test_columns_that_cannot_be_are_refused_or_harmless(plan: str) -> None:
    program, state = state_of(plan)
    refused = []
    for table, column, values in other_columns(contents(state)[3]):
        message = outcome(program, with_column(state, table, column, values))
        if message:
            assert message.startswith("the state of bucket 0 cannot be read: ")
            refused.append((table.rpartition("/")[2], column))
    assert plan == "waits" or {"_kind", "_time", "_arrival", "_offset"} <= {
        column for table, column in refused if table == "kept"
    }
    if plan == "waits":
        assert {"_wait", "_term", "_due", "_is_latest"} <= {column for table, column in refused if table == "waits"}


@pytest.mark.parametrize(
    ("where", "key", "value"),
    [
        ("state", "buckets", "1"),
        ("state", "groups", 7),
        ("state", "clocks", [[1]]),
        ("state", "held", [[9, False, "south", 0]]),
        ("state", "held", 3),
        ("engine", "clock", 2**64),
        ("engine", "clock", None),
        ("engine", "leeway", [1, 2, 3]),
        ("engine", "queries", []),
        ("query", "everywhere", [0, 0]),
        ("query", "everywhere", [2**70]),
        ("query", "next_due", "soon"),
        ("query", "keys", []),
    ],
)
def test_headers_that_cannot_be_are_refused(where: str, key: str, value: object) -> None:
    program, state = state_of("waits")

    def change(header: dict[str, Any], own: dict[str, Any], _: object) -> None:
        target = {"state": header, "engine": own, "query": own["queries"]["Q"]}[where]
        assert key in target
        target[key] = value

    with pytest.raises(InputError, match=REFUSED):
        open_state(program, 0, rewritten(state, change))


def test_packed_rows_have_a_checksum_of_their_header() -> None:
    data = pack("records", 4, {"a": 1}, [b"12345"])
    assert unpack("records", 4, data) == ({"a": 1}, [memoryview(b"12345")])
    for at in range(len(data) - 5):
        with pytest.raises(ContainerError):
            unpack("records", 4, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
