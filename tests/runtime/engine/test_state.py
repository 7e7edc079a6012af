"""State as bytes: what comes back, and what is refused."""

import struct

import pyarrow as pa
import pytest

from runtime.engine.snapshot import MAGIC, STATE_VERSION, StateError, decode, encode

TABLE = pa.table({"time": [1, 2], "name": ["a", None]})


def test_what_is_encoded_comes_back() -> None:
    header, tables = decode(encode({"clock": -5, "text": "é"}, {"kept": TABLE, "none": TABLE.slice(0, 0)}))
    assert header == {"clock": -5, "text": "é"}
    assert tables == {"kept": TABLE, "none": TABLE.slice(0, 0)}


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


def test_damage_anywhere_is_noticed() -> None:
    whole = encode({"clock": 1}, {"kept": TABLE})
    for at in range(len(whole)):
        damaged = whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]
        with pytest.raises(StateError):
            decode(damaged)
