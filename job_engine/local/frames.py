"""Frames: what the driver of a local job and its workers tell each other, over a socket.

A frame is a length, and a container with a header of JSON and byte strings. Nothing is pickled: a
worker runs no code that a frame brings. Each side waits for the other's answer, so that both can
never write at the same time.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from job_engine.wire.container import pack, unpack

_USE = "frame"
_VERSION = 1
_LENGTH = struct.Struct("<Q")


class Word(StrEnum):
    """What a frame asks for, or answers."""

    BEGIN = "begin"
    READ = "read"
    STEP = "step"
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
