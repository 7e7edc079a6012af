"""Sinks as a deployment file would give them, with what is usual in each kind."""

from __future__ import annotations

from typing import Any

from job_engine.place import Place
from job_engine.sinks.folder.settings import FolderSink
from job_engine.sinks.kinds import Sink
from job_engine.sinks.table.settings import TableSink


def sink_of(format_: str, place: Place | None, own: Any = None, **common: Any) -> Sink:
    usual = TableSink() if format_ == "delta" else FolderSink()
    return Sink(format_, usual if own is None else own, place, **common)
