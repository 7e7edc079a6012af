"""Whether a column of text is UTF-8 is found out without decoding it where it is ASCII; what is not is found, wherever it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from runtime.reading.formats import encodings

WHOLE = pa.array(["", "abc", "", "defghijklmn", "o" * 40])


def built(data: bytes, *ends: int) -> pa.Array:
    """A column of these bytes, which nobody has looked at."""
    return pa.StringArray.from_buffers(len(ends) - 1, pa.py_buffer(np.array(ends, np.int32)), pa.py_buffer(data))


@pytest.mark.parametrize("column", [WHOLE, WHOLE.slice(1, 3), WHOLE.slice(3), pa.array(["ab"]), pa.array(["12345678"])])
def test_ascii_is_not_decoded(column: pa.Array) -> None:
    assert encodings._is_ascii(column)
    assert encodings._is_sound(pa.chunked_array([column]))


@pytest.mark.parametrize("at", [0, 1, 7, 8, 12, 15, 16, 18])
def test_a_byte_that_is_no_text_is_found_wherever_it_is(at: int) -> None:
    data = bytearray(b"a" * 19)
    data[at] = 0xFF
    assert not encodings._is_sound(pa.chunked_array([built(bytes(data), 0, 3, 3, 19)]))


@pytest.mark.parametrize("ends", [(0, 5, 3, 6), (0, 6, 5, 6), (3, 2, 6, 6)])
def test_texts_that_do_not_follow_each_other_are_damaged(ends: Any) -> None:
    assert not encodings._is_sound(pa.chunked_array([built(b"abcdef", *ends)]))


@pytest.mark.parametrize("column", [["é", "a"], ["a" * 9 + "é"], ["a", None], [None], []])
def test_other_text_is_decoded(column: list[str | None]) -> None:
    own = pa.array(column, pa.string())
    assert not encodings._is_ascii(own)
    assert encodings._is_sound(pa.chunked_array([own]))
