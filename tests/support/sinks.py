"""Sinks as a deployment file would give them, with what is usual in each kind."""

from __future__ import annotations

from typing import Any

from spark_backend.places.place import Place
from spark_backend.sinks.folder.settings import FolderSink
from spark_backend.sinks.kinds import Sink
from spark_backend.sinks.table.settings import TableSink


def sink_of(format_: str, place: Place | None, own: Any = None, **common: Any) -> Sink:
    usual = TableSink() if format_ == "delta" else FolderSink()
    return Sink(format_, usual if own is None else own, place, **common)
