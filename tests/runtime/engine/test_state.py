"""State as bytes: what comes back, and what is refused."""

import struct

import pyarrow as pa
import pytest

from runtime.engine import snapshot
from runtime.engine.snapshot import MAGIC, MANY, STATE_VERSION, StateError, decode, encode

TABLE = pa.table({"time": [1, 2], "name": ["a", None]})


def test_what_is_encoded_comes_back() -> None:
    header, tables = decode(encode({"clock": -5, "text": "é"}, {"kept": TABLE, "none": TABLE.slice(0, 0)}))
    assert header == {"clock": -5, "text": "é"}
    assert tables == {"kept": TABLE, "none": TABLE.slice(0, 0)}


def _many(count: int) -> dict[str, pa.Table]:
    """Tables of two kinds, some without rows, with dictionaries of their own."""
    tables = {}
    for number in range(count):
        sources = pa.array(["a", f"s{number}", None][: number % 4], pa.string()).dictionary_encode()
        tables[f"Q{number}/kept"] = pa.table({"_source": sources, "v": [float(number)] * len(sources)})
        tables[f"Q{number}/bounds"] = TABLE.slice(0, number % 3)
    return tables


def test_many_tables_come_back_and_cost_some_bytes_without_rows() -> None:
    tables = _many(MANY)
    header, found = decode(encode({"clock": -5, "text": "é"}, tables))
    assert header == {"clock": -5, "text": "é"}
    assert {name: table.to_pylist() for name, table in found.items()} == {
        name: table.to_pylist() for name, table in tables.items()
    }
    idle = {f"Q{number}/kept": TABLE.slice(0, 0) for number in range(2_000)}
    assert len(encode({}, idle)) < 20 * len(idle)


def test_few_tables_are_written_as_older_releases_read_them() -> None:
    versions = [
        encode(header, tables)[len(MAGIC)] for header, tables in (({}, {"kept": TABLE}), ({"alike": {"B": "A"}}, {}))
    ]
    assert versions == [1, 2]


def test_another_version_is_refused_by_name() -> None:
    data = bytearray(encode({}, {}))
    struct.pack_into("<H", data, len(MAGIC), STATE_VERSION + 1)
    with pytest.raises(
        StateError, match=f"state of version {STATE_VERSION + 1}; this release reads versions 1 to {STATE_VERSION}"
    ):
        decode(bytes(data))


@pytest.mark.parametrize("data", [b"", b"ENS", b"x" * 100, b"\x80\x04pickle", encode({}, {"kept": TABLE})[:-40]])
def test_what_is_no_state_is_refused(data: bytes) -> None:
    with pytest.raises(StateError):
        decode(data)


@pytest.mark.parametrize("tables", [{"kept": TABLE}, _many(2)])
def test_damage_anywhere_is_noticed(tables: dict[str, pa.Table], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MANY", 2)
    whole = encode({"clock": 1}, tables)
    for at in range(len(whole)):
        damaged = whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]
        with pytest.raises(StateError):
            decode(damaged)
