"""A job on folders whose micro-batches are planned, read and processed here, and logged as Spark does."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from job_engine.deployment_file import load_deployment
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.compilation import source_readings, told_sources
from job_engine.job.preflight import checked
from job_engine.operator.step import run_step
from job_engine.sources.folder.listing import watch_of
from job_engine.sources.folder.settings import ListedSource
from job_engine.sources.listing.lister import InputPlanner, RunSettings
from job_engine.sources.listing.manifests import Manifest, reading_options, tasks_of
from job_engine.sources.task_reading import read_task
from job_engine.wire.packed_rows import Signal
from job_engine.wire.tagged_rows import Tag, TaggedRow
from tests.support.buckets import rows_of

Answer = tuple[list[str], list[tuple[str, str]], dict[tuple[str, str, str], int]]
"""Match ids, sources and reasons of discarded records, and the account."""


class FolderJob:
    """One whose source folders are `sources`, each of a format with settings of its own.

    It may be stopped at any moment: what Spark did not log is planned anew.
    """

    def __init__(self, path: Path, text: str, sources: Mapping[str, Mapping[str, object]], **settings: object) -> None:
        self.path = path
        for name in sources:
            (path / name).mkdir(exist_ok=True)
        (path / "q.query").write_text(text, "utf-8")
        deployment = {
            "name": "folders",
            "queries": "q.query",
            "sources": {name: {"format": "csv", "path": name, **own} for name, own in sources.items()},
            "sinks": {"matches": {"path": "out", "format": "json"}},
            "checkpoint": "state",
            "buckets": 2,
            **settings,
        }
        (path / "job.yaml").write_text(json.dumps(deployment), "utf-8")
        self.deployment = load_deployment(path / "job.yaml")
        self.ready = checked(self.deployment)
        self.program = self.ready.program
        self.told = told_sources(self.deployment)
        self.options = self._options()
        self.states: dict[int, bytes] = {}
        self.tagged: list[TaggedRow] = []
        self.batch = -1
        self.planner: InputPlanner | None = None

    def _options(self) -> dict[str, str]:
        readings = source_readings(self.deployment, self.ready.record.schemas)
        return reading_options(self.told, readings, self.program)

    @property
    def folder(self) -> JobFolder:
        return JobFolder(self.deployment.checkpoint)

    def start(self) -> None:
        """Begin a run, which knows nothing but what is in the checkpoint."""
        self.planner = InputPlanner(self.told, RunSettings(str(self.deployment.checkpoint)), firsts=self.options)

    def plan(self) -> Manifest | None:
        """What the next micro-batch reads; Spark has not logged it yet."""
        if self.planner is None:
            self.start()
        assert self.planner is not None
        number = self.planner.latest(self.batch + 1)
        return None if number == self.batch + 1 else self.planner.read(number)

    def step(self, signal: Signal | None = None) -> Manifest | None:
        """A micro-batch; None = there was nothing to read."""
        manifest = self.plan()
        if manifest is None and signal is None:
            return None
        packed = []
        if manifest is not None:
            self.batch += 1
            tasks = tasks_of(manifest, 2, self.told)
            packed = [part for task in tasks[::-1] for part in read_task(self.options, task.to_text())]
        for bucket in range(2):
            rows = [part.column(1)[bucket].as_py() for part in packed if len(part) > bucket]
            step = run_step(self.program, bucket, self.states.get(bucket), rows, 1000 + self.batch, signal=signal)
            self.states[bucket] = step.state
            self.tagged += step.rows
        if manifest is not None:
            self._log(manifest)
        return manifest

    def _log(self, manifest: Manifest) -> None:
        for name, text in (("offsets", f'v1\n{{}}\n{{"manifest": {manifest.number}}}'), ("commits", "v1\n{}")):
            (self.deployment.checkpoint / name).mkdir(exist_ok=True, parents=True)
            (self.deployment.checkpoint / name / str(self.batch)).write_text(text, "utf-8")

    def run(self) -> list[Manifest]:
        """All micro-batches of what is there."""
        found = []
        while (manifest := self.step()) is not None:
            found.append(manifest)
        return found

    def answer(self) -> Answer:
        """After the end."""
        account: Counter[tuple[str, str, str]] = Counter()
        for row in rows_of(self.tagged, Tag.LEDGER):
            account[str(row["query"]), str(row["source"]), str(row["what"])] += row["count"]  # type: ignore[operator]
        discarded = [(str(row["source"]), str(row["reason"])) for row in rows_of(self.tagged, Tag.DISCARDED)]
        ids = sorted(str(row["match_id"]) for row in rows_of(self.tagged, Tag.MATCH))
        return ids, sorted(discarded), dict(+account)


def files_of(folder: Path) -> list[Path]:
    """The files of a source in the order that a job numbers them."""
    (source,) = (ListedSource(folder.name, str(folder), (".csv", ".json", ".parquet")),)
    found = watch_of(source).new_files(lambda _: False, 0).files
    return [folder / path for path in sorted(found, key=lambda path: (found[path].modified, path))]


def written(file: Path, text: str, modified: int = 1) -> Path:
    """A file that was written at a moment."""
    file.write_text(text, "utf-8")
    os.utime(file, (modified, modified))
    return file
