"""Read JSON that somebody else may have written or damaged: within limits, and into a shape.

What a checkpoint, a table's log or a service holds is read here and nowhere else, so every such
file is refused in the same words. Imports are few, because the process that lists files has to
start fast.
"""

from __future__ import annotations

import json
import math
import os
import stat
import zlib
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from querylang.errors import InputError, is_passing
from querylang.system_errors import reason_of
from runtime.json_shapes import WrongValue, check_of, shown

DEEPEST = 200
"""How deep lists and objects may be nested."""
LARGEST = 1 << 30
"""Bytes of a file of ours: a list of some million names."""


Shape = TypeVar("Shape")


class DamagedJson(InputError):
    """JSON that cannot be what it has to be; the line says what is wrong, and of which file.

    version: of the file; None = it has none, or cannot say it
    """

    def __init__(self, message: str, version: object = None) -> None:
        super().__init__(message)
        self.version = version


class OtherVersion(DamagedJson):
    """A file of a version that this release does not read."""


class StoredFile(Protocol):
    """A path in a store."""

    def read_bytes(self, most: int) -> bytes:
        """The first bytes of its content, at most so many; raises OSError."""


Readable = Path | StoredFile


def read_json(
    place: Readable,
    shape: type[Shape],
    *,
    way_out: str,
    versions: Collection[int] = (),
    largest: int = LARGEST,
    may_be_packed: bool = False,
) -> Shape:
    """What a file holds, in the form of a shape.

    way_out: a sentence that says what to do about a damaged file
    versions: those of its field `version` that this release reads; () = it has none
    largest: bytes that it may have
    may_be_packed: whether it may be the text of `packed_object`

    Raises DamagedJson, which names file, version and field. FileNotFoundError passes, and so does
    what `is_passing`: a store that is away, or a disk with an error, says nothing about the file.
    """
    with part_of(place, way_out):
        content = _content(place, largest)
        return json_of_text(_unpacked_object(content) if may_be_packed else content, shape, versions=versions)


def read_json_lines(place: Readable, shape: type[Shape], *, way_out: str, largest: int = LARGEST) -> list[Shape]:
    """What each line of a file holds that is not empty; the rest as of `read_json`."""
    with part_of(place, way_out):
        found: list[Shape] = []
        for number, line in enumerate(_content(place, largest).split(b"\n"), 1):
            try:
                found += [json_of_text(line, shape)] if line.strip() else []
            except DamagedJson as error:
                raise DamagedJson(f"line {number}: {error}") from None
        return found


@contextmanager
def part_of(place: object, way_out: str) -> Iterator[None]:
    """What is wrong with a part of a file is said of the file. Raises DamagedJson.

    A ValueError counts, too: that of a value which has the right form, and cannot be.
    """
    try:
        yield
    except OtherVersion as error:
        raise OtherVersion(f"{place}: {error}", error.version) from None
    except DamagedJson as error:
        raise _damaged(place, error, way_out) from None
    except ValueError as error:
        raise _damaged(place, DamagedJson(str(error)), way_out) from error


def json_of_text(
    data: str | bytes | memoryview,
    shape: type[Shape],
    *,
    versions: Collection[int] = (),
    deepest: int = DEEPEST,
) -> Shape:
    """What a text of JSON stands for, in the form of a shape; the rest as of `read_json`.

    The text is UTF-8. A key that an object has twice is refused, because readers differ in which of
    them they take; so are NaN, Infinity and numbers that become infinite.

    Raises DamagedJson, without a file's name.
    """
    value = _parsed(data if isinstance(data, str) else _text(data), deepest)
    version = None
    if versions:
        value, version = _of_version(value, versions)
    try:
        return cast("Shape", check_of(shape)(value))  # type: ignore[arg-type] # types are hashable
    except WrongValue as wrong:
        told = "" if version is None else f" (version {version})"
        raise DamagedJson(f"{wrong.text()}{told}", version) from None


def shaped(value: object, shape: type[Shape]) -> Shape:
    """Plain data, such as `json_of_text` gives, in the form of a shape; raises DamagedJson."""
    try:
        return cast("Shape", check_of(shape)(value))  # type: ignore[arg-type] # types are hashable
    except WrongValue as wrong:
        raise DamagedJson(wrong.text()) from None


def packed(text: str) -> str:
    """A text, compressed, as letters that a string of JSON may have."""
    return b64encode(zlib.compress(text.encode(), level=1)).decode()


def unpacked(letters: str) -> bytes:
    """The inverse of `packed`, as UTF-8; raises DamagedJson."""
    unpacking = zlib.decompressobj()
    try:
        data = unpacking.decompress(b64decode(letters, validate=True), LARGEST)
    except (ValueError, zlib.error) as error:
        raise DamagedJson(f"what is packed in it cannot be read: {error}") from error
    if not unpacking.eof:
        raise DamagedJson("what is packed in it is cut off, or too large")
    return data


def packed_object(text: str, version: int) -> str:
    """A text of JSON that has another one packed; `version`: of that."""
    return f'{_PACKED[0]}{version}{_PACKED[1]}{packed(text)}"}}\n'


_PACKED = '{"version": ', ', "packed": "'


def _unpacked_object(content: bytes) -> bytes:
    """What is packed in a text; the text itself if nothing is."""
    begin, middle = (part.encode() for part in _PACKED)
    place = content.find(middle, len(begin), len(begin) + 20 + len(middle))
    if not content.startswith(begin) or place < 0:
        return content
    letters, end, _ = content[place + len(middle) :].partition(b'"')
    if not end:
        raise DamagedJson("what is packed in it is cut off, or too large")
    return unpacked(_text(letters))


def _damaged(place: object, error: DamagedJson, way_out: str) -> DamagedJson:
    return DamagedJson(f"{place}: is damaged: {error}. {way_out}", error.version)


def _content(place: Readable, largest: int) -> bytes:
    """The bytes of a file, which is neither a pipe nor a device, nor too large."""
    try:
        most = largest + 1
        data = _of_local_file(place, most) if isinstance(place, Path) else place.read_bytes(most)
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:  # what its folder would be is a file
        raise FileNotFoundError(*error.args) from error
    except OSError as error:
        if is_passing(error):  # it says nothing about the file
            error.filename = error.filename or str(place)
            raise
        raise DamagedJson(f"it cannot be read: {reason_of(error)}") from error
    if len(data) > largest:
        raise DamagedJson(f"it has more than {largest} bytes")
    return data


def _of_local_file(path: Path, most: int) -> bytes:
    # a pipe that nobody writes to would block for ever
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise DamagedJson("it is not a file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(handle)


def _text(data: bytes | memoryview) -> str:
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DamagedJson(f"byte {error.start} is not UTF-8") from error


def _parsed(text: str, deepest: int) -> Any:
    refuse_deep(text, deepest)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise DamagedJson(f"it is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except WrongValue as wrong:
        raise DamagedJson(wrong.text()) from None
    except RecursionError as error:  # the caller is deep itself
        raise DamagedJson("it is nested too deep") from error
    except ValueError as error:  # Python's limit of digits
        raise DamagedJson("a number has too many digits") from error


def refuse_deep(text: str, deepest: int) -> None:
    """Raise DamagedJson for lists and objects in more than so many others.

    The parser recurses in C, so this comes before it; all steps are those of `str`, without a loop
    over characters. First what is escaped is removed, then all that is neither a bracket nor a
    quote, then strings. Each removal of empty pairs of brackets takes the innermost level.
    """
    if text.count("[") + text.count("{") <= deepest:
        return
    data = text.encode("utf-8", "surrogatepass").replace(b"\\\\", b"").replace(b'\\"', b"")
    data = data.translate(_BRACKETS, _OTHERS).replace(b'""', b"")
    rest = b"".join(data.split(b'"')[::2])
    for _ in range(deepest):
        before = len(rest)
        rest = rest.replace(b"[]", b"")
        if len(rest) == before:
            break  # what is left does not fit together, which the parser tells
    if rest.count(b"[") > deepest or (rest.startswith(b"[") and rest.endswith(b"]")):
        raise DamagedJson(f"it is nested more than {deepest} levels deep")


_BRACKETS = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(byte for byte in range(256) if chr(byte) not in '"[]{}')


def _of_version(value: Any, versions: Collection[int]) -> tuple[Any, int]:
    """An object without its field `version`, and that."""
    if type(value) is not dict:
        raise DamagedJson(f"expected an object, found {shown(value)}")
    if "version" not in value:
        raise DamagedJson("'version' is missing")
    version = value["version"]
    if type(version) is not int:
        raise DamagedJson(f"'version': expected an integer, found {shown(version)}")
    if version not in versions:
        least, most = min(versions), max(versions)
        reads = f"version {most}" if least == most else f"versions {least} to {most}"
        raise OtherVersion(f"has version {version}; this release reads {reads}", version)
    return {key: item for key, item in value.items() if key != "version"}, version


def _real(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise WrongValue("a number is too large")
    return value


def _no_number(text: str) -> Any:
    raise WrongValue(f"{text} is not a number of JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in made if keys.count(key) > 1)
        raise WrongValue("is there twice").inside(twice)
    return made


_DECODER = json.JSONDecoder(parse_float=_real, parse_constant=_no_number, object_pairs_hook=_object)
