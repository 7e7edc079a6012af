"""A job without Spark, on two folders unless told otherwise: micro-batches as its readers and buckets do them, one after another."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from job_engine.deployment_file import load_deployment
from job_engine.job.checkpoint.checkpoint_record import write_record
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.compilation import source_readings, told_sources
from job_engine.job.preflight import Checked, checked
from job_engine.job.stages.between_batches import changed_program
from job_engine.operator.step import run_step
from job_engine.sources.listing.lister import InputPlanner, RunSettings
from job_engine.sources.listing.manifests import reading_options, tasks_of
from job_engine.sources.task_reading import read_task
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag

EVENT = "event Reading { float ts; string sensor; float value; }\n"
RISING = EVENT + (
    "query Rising { inputs { Reading() key sensor within 60.0; } find Reading:a -> Reading:b where b.value > a.value }"
)
FALLING = EVENT + (
    "query Falling { inputs { Reading() key sensor within 60.0; } find Reading:a -> Reading:b where b.value < a.value }"
)

COLUMNS = {"event": "Reading", "arrival": "at", "source_time": "ts"}


def started(ready: Checked) -> Program:
    """What a start runs, with the changes that wait."""
    return changed_program(ready, JobFolder(ready.deployment.checkpoint).reached())


class JobWithoutSpark:
    """A job whose micro-batches are run here, and logged as Spark does.

    limit: most files of a micro-batch
    sources: what is said of them beside `COLUMNS`; None = two folders
    """

    def __init__(
        self,
        path: Path,
        text: str = RISING,
        history: dict[str, str] | None = None,
        limit: int | None = None,
        sources: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        self.path = path
        (path / "q.query").write_text(text, "utf-8")
        if sources is None:
            options = {} if limit is None else {"options": {"maxFilesPerTrigger": limit}}
            sources = {name: {"format": "csv", "path": name, **options} for name in ("slow", "swift")}
        for source in sources.values():
            if "path" in source:
                (path / source["path"]).mkdir(exist_ok=True)
        deployment = {
            "name": "readings",
            "queries": "q.query",
            "sources": {name: {**COLUMNS, **source} for name, source in sources.items()},
            "sinks": {"matches": {"path": "out", "format": "json"}},
            "checkpoint": "state",
            "buckets": 2,
            **({} if history is None else {"history": history}),
        }
        (path / "job.yaml").write_text(json.dumps(deployment), "utf-8")
        self.deployment = load_deployment(path / "job.yaml")
        self.ready = checked(self.deployment)
        write_record(self.deployment.checkpoint, self.ready.record)
        self.program: Program = self.ready.program
        self.states: dict[int, bytes] = {}
        self.matches: list[dict[str, Any]] = []
        self.ledger: Counter[tuple[str, str, str]] = Counter()
        self.batch = -1

    @property
    def folder(self) -> JobFolder:
        return JobFolder(self.deployment.checkpoint)

    def bring(self, source: str, number: int, moments: range) -> None:
        rows = "".join(f"{at}.0,{at}.0,s{at % 3},{(at * 7 + at // 9) % 10}.0\n" for at in moments)
        (self.path / source / f"{number}.csv").write_text(f"at,ts,sensor,value\n{rows}", "utf-8")

    def start(self) -> None:
        self.program = started(self.ready)

    def run(self) -> None:
        """A micro-batch of what there is."""
        self.batch += 1
        sources = told_sources(self.deployment)
        options = reading_options(sources, source_readings(self.deployment), self.program)
        planner = InputPlanner(sources, RunSettings(str(self.deployment.checkpoint)), firsts=options)
        manifest = planner.read(planner.latest(self.batch))
        packed = [part for task in tasks_of(manifest, 1, sources) for part in read_task(options, task.to_text())]
        tables = []
        for bucket in range(2):
            rows = [part.column(1)[bucket].as_py() for part in packed if len(part) > bucket]
            step = run_step(self.program, bucket, self.states.get(bucket), rows, self.batch)
            self.states[bucket] = step.state
            tables += [(row.tag, row.table) for row in step.rows]
            self.matches += [row for item in step.rows if item.tag is Tag.MATCH for row in item.table.to_pylist()]
            for row in (row for item in step.rows if item.tag is Tag.LEDGER for row in item.table.to_pylist()):
                self.ledger[row["query"], row["source"], row["what"]] += row["count"]
        measured = [item for item in tables if item[0] in (Tag.METRIC, Tag.SOURCE, Tag.TIMELINE)]
        progress = self.folder.last_progress().after(measured, records=0, matches=0)
        self.folder.progress.write(self.batch, {"queries": {}, "progress": progress.to_plain()})
        for name, text in (("offsets", f'v1\n{{}}\n{{"manifest": {manifest.number}}}'), ("commits", "v1\n{}")):
            (self.deployment.checkpoint / name).mkdir(exist_ok=True)
            (self.deployment.checkpoint / name / str(self.batch)).write_text(text, "utf-8")

    def found(self, query: str) -> list[tuple[str, Any]]:
        return sorted((row["match_id"], row["emitted"]) for row in self.matches if row["query"] == query)

    def account(self, query: str) -> dict[tuple[str, str], int]:
        """By source and word, how many records the query has counted."""
        own = {(source, what): count for (name, source, what), count in self.ledger.items() if name == query}
        return {place: count for place, count in own.items() if count}

    def refused(self, number: int) -> list[str]:
        outcome = self.folder.commands.outcome(number)
        assert outcome is not None
        return outcome.errors
