"""Frames: what the driver of a local job and its workers tell each other, over a socket.

A frame is a length, and a container with a header of JSON and byte strings. Nothing is pickled: a
worker runs no code that a frame brings. Each side waits for the other's answer, so that both can
never write at the same time.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from job_engine.wire.packed_rows import pack, unpack
from job_engine.wire.partition_groups import Parcel
from querylang.dataclass import dataclass, field
from runtime.engine import RoutedRecords

_USE = "frame"
_VERSION = 1
_LENGTH = struct.Struct("<Q")


class Word(StrEnum):
    """What a frame asks for, or answers."""

    BEGIN = "begin"
    READ = "read"
    STEP = "step"
    CROSS = "cross"
    SAVE = "save"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Frame:
    """One message.

    header: anything that JSON can hold
    parts: byte strings that belong to it
    """

    word: Word
    header: Mapping[str, Any] = field(default_factory=dict)
    parts: Sequence[bytes | memoryview] = ()


def parcels_frame(parcels: Sequence[Parcel]) -> Frame:
    """What queries have routed to buckets of other workers."""
    header = {"buckets": [item.bucket for item in parcels], "groups": [item.group for item in parcels]}
    return Frame(Word.CROSS, header, [part for item in parcels for part in item.routed.to_parts()])


def parcels_of(frame: Frame) -> list[Parcel]:
    """The inverse of `parcels_frame`."""
    parts = map(bytes, frame.parts)
    places = zip(frame.header["buckets"], frame.header["groups"], parts, parts, strict=True)
    return [Parcel(bucket, group, RoutedRecords.of_parts(table, paths)) for bucket, group, table, paths in places]


def sorted_out(frames: Iterable[Frame], workers: int) -> dict[int, Frame]:
    """Such frames of all workers as those for each worker; their parts are not read."""
    headers: dict[int, dict[str, list[int]]] = {worker: {"buckets": [], "groups": []} for worker in range(workers)}
    parts: dict[int, list[bytes | memoryview]] = {worker: [] for worker in range(workers)}
    for frame in frames:
        for place, (bucket, group) in enumerate(zip(frame.header["buckets"], frame.header["groups"], strict=True)):
            own = headers[bucket % workers]
            own["buckets"].append(bucket)
            own["groups"].append(group)
            parts[bucket % workers] += frame.parts[2 * place : 2 * place + 2]
    return {worker: Frame(Word.CROSS, header, parts[worker]) for worker, header in headers.items()}


class Ended(Exception):
    """The other side has closed the connection."""


def send(connection: socket.socket, frame: Frame) -> None:
    """Send a frame; raises Ended."""
    header = {"word": frame.word, "own": dict(frame.header)}
    data = pack(_USE, _VERSION, header, [bytes(part) for part in frame.parts])
    try:
        connection.sendall(_LENGTH.pack(len(data)))
        connection.sendall(data)
    except (BrokenPipeError, ConnectionResetError) as error:
        raise Ended from error


def receive(connection: socket.socket) -> Frame:
    """The next frame; raises Ended, and ContainerError for other bytes."""
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    header, parts = unpack(_USE, _VERSION, _exactly(connection, length))
    return Frame(Word(header["word"]), header["own"], parts)


def _exactly(connection: socket.socket, length: int) -> bytes:
    data = bytearray(length)
    view = memoryview(data)
    while view:
        try:
            count = connection.recv_into(view)
        except ConnectionResetError as error:
            raise Ended from error
        if not count:
            raise Ended
        view = view[count:]
    return bytes(data)
