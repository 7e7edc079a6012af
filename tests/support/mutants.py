"""Broken variants of files: bytes flipped, cut, values of other types, deep, large, missing and doubled fields."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

VALUES: tuple[str, ...] = (
    *("null", "true", "0", "-1", "1.5", '""', '"x"', "[]", "{}", "[null]", '{"a": 1}', '[["a"]]'),
    *("1e400", "-1e400", "NaN", "Infinity", "9223372036854775808", "18446744073709551616", "9" * 5_000, "1e300"),
    *('"../../x"', '"/etc/passwd"', '"file:///etc/passwd"', '"s3://other/x"', '"\\ud800"', '"a\\u0000b"', '"²"'),
    *("[" * 3_000 + "]" * 3_000, '{"a":' * 3_000 + "1" + "}" * 3_000, '{"a": 1, "a": 2}', '"' + "x" * 5_000 + '"'),
)
"""What replaces a value."""

_MARK = "\x00mark\x00"


def json_mutants(good: bytes, count: int, seed: int = 1) -> Iterator[bytes]:
    """Variants of a file of one or more lines of JSON; the same call gives the same."""
    chooser = random.Random(seed)
    for _ in range(count):
        yield json_mutant(good, chooser)


def json_mutant(good: bytes, chooser: random.Random) -> bytes:
    """One variant."""
    if chooser.random() < 0.3:
        return _bytes_mutant(good, chooser)
    try:
        values = [json.loads(good)]
    except ValueError:
        values = [json.loads(line) for line in good.splitlines() if line.strip()]
    number = chooser.randrange(len(values))
    texts = [json.dumps(value) for value in values]
    texts[number] = _changed(values[number], chooser)
    return "\n".join(texts).encode("utf-8", "surrogatepass")


def _changed(value: Any, chooser: random.Random) -> str:
    """A value in which one value is replaced, one field is missing, or one is there twice."""
    places = list(_places(value))
    if not places:
        return chooser.choice(VALUES)
    holder, key = chooser.choice(places)
    old = holder[key]
    match chooser.randrange(5):
        case 0:
            del holder[key]
            text = json.dumps(value)
            holder.insert(key, old) if isinstance(holder, list) else holder.update({key: old})
            return text
        case 1 if isinstance(holder, dict):
            holder[f"{key}{_MARK}"] = chooser.choice((None, 1, "x"))
            text = json.dumps(value).replace(json.dumps(_MARK)[1:-1], "")
            del holder[f"{key}{_MARK}"]
            return text
        case _:
            holder[key] = _MARK
            text = json.dumps(value).replace(json.dumps(_MARK), chooser.choice(VALUES), 1)
            holder[key] = old
            return text


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _bytes_mutant(good: bytes, chooser: random.Random) -> bytes:
    start = chooser.randrange(len(good) + 1)
    end = min(len(good), start + chooser.choice((1, 1, 2, 5, 40)))
    match chooser.randrange(4):
        case 0:
            return good[:start]
        case 1:
            return good[:start] + good[end:]
        case 2:
            return good[:start] + chooser.randbytes(end - start) + good[end:]
        case _:
            return good[:start] + bytes(byte ^ 1 << chooser.randrange(8) for byte in good[start:end]) + good[end:]
