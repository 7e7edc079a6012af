# ruff: noqa: INP001 # Python finds it by its folder and its name
"""Python imports this at the start of every process of a measured run: it notes when the functions below begin and end.

A line per call goes to a file per process in the folder ENSUE_STAGES. Nothing in the program itself knows of it.
"""

from __future__ import annotations

import atexit
import functools
import importlib.abc
import importlib.machinery
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

STAGES = {
    "pyspark.java_gateway": {"launch_gateway": "start the JVM"},
    "pyspark.core.context": {"SparkContext._do_init": "start Spark"},
    "job_engine.job.stages.prepare": {
        "load_deployment": "read the deployment file",
        "checked": "check the deployment",
    },
    "spark_backend.spark_machine": {"job_session": "session", "sync": "sync Spark's log"},
    "job_engine.job.job": {"start": "start the query"},
    "job_engine.job.batch_writer": {
        "BatchWriter.write": "our part of the driver",
        "publish_batch": "tasks and publishing",
        "BatchWriter.save": "write ledger and progress",
    },
    "job_engine.job.checkpoint.job_folder": {"LedgerFiles.add": "write the ledger"},
    "job_engine.sinks.run_sinks": {"publish": "publish files"},
    "job_engine.sources.task_reading": {"read_task": "read and pack"},
    "job_engine.sources.reading": {"pack_arrivals": "pack"},
    "spark_backend.worker_functions": {"run_and_write": "bucket", "run_step": "step"},
    "job_engine.operator.reading": {"unpack_row": "unpack"},
    "job_engine.operator.step": {
        "open_state": "open state",
        "close_state": "close state",
        "measures": "measures",
        "tagged_rows": "split results",
    },
    "runtime.engine.engine": {"Engine.process": "engine"},
    "job_engine.sinks.bucket_results": {"write_results": "write results", "TaskFiles.finish": "finish files"},
    "spark_backend.source_stream": {
        "FileStreamReader.end_of_next": "plan the input",
        "FileStreamReader.partitions": "divide the input",
        "FileStreamReader.prepareForTriggerAvailableNow": "list the input",
    },
}
"""By module: the functions that are timed, and what they are called."""

_lines: list[str] = []


def _note(name: str, start: float, processor: float) -> None:
    _lines.append(json.dumps([name, start, time.time(), processor]))
    _flush()


def _flush() -> None:
    with Path(os.environ["ENSUE_STAGES"], f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in _lines))
    _lines.clear()


def _timed(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*arguments: Any, **named: Any) -> Any:
        start, processor = time.time(), time.thread_time()
        try:
            result = function(*arguments, **named)
            if isinstance(result, Iterator):
                return _timed_items(result, name)
        finally:
            _note(name, start, time.thread_time() - processor)
        return result

    return run


def _timed_items(items: Iterator[Any], name: str) -> Iterator[Any]:
    while True:
        start, processor = time.time(), time.thread_time()
        try:
            item = next(items)
        except StopIteration:
            return
        finally:
            _note(name, start, time.thread_time() - processor)
        yield item


class _Wrapping(importlib.abc.Loader):
    def __init__(self, loader: importlib.abc.Loader, stages: dict[str, str]) -> None:
        self._loader = loader
        self._stages = stages

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        start, processor = time.time(), time.thread_time()
        self._loader.exec_module(module)
        _note(f"import {module.__name__}", start, time.thread_time() - processor)
        for path, name in self._stages.items():
            owner: Any = module
            *parents, last = path.split(".")
            for parent in parents:
                owner = getattr(owner, parent)
            found = owner.__dict__[last]
            if isinstance(found, staticmethod):
                setattr(owner, last, staticmethod(_timed(found.__func__, name)))
            else:
                setattr(owner, last, _timed(found, name))


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in STAGES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Wrapping(spec.loader, STAGES[name])
        return spec


if "ENSUE_STAGES" in os.environ:
    sys.meta_path.insert(0, _Finder())
    _note(f"process {' '.join(sys.orig_argv[1:4])[-90:]}", time.time(), time.process_time())
    atexit.register(_flush)
