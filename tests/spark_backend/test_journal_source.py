"""A kind of source that Ensue does not have, in a real job: one line names it, and it is read like the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import querylang
from job_engine.deployment_file import load_deployment
from job_engine.job.compilation import told_sources
from job_engine.job.history.running import send_with_history
from job_engine.job.status import backlog_of
from job_engine.setting_keys import Engine
from job_engine.sources.kinds import FORMATS
from job_engine.sources.listing import manifests as kept_manifests
from job_engine.sources.listing.batch_log import DamagedManifest
from job_engine.sources.listing.manifests import sources_of_text, sources_to_text, what_was_read
from job_engine.sources.source import SourceBacklog
from querylang.errors import FileErrors
from runtime.reading.tables import read_arrivals
from tests.support.embedded import embedded, match_ids
from tests.support.job_without_spark import EVENT, FALLING, RISING, JobWithoutSpark
from tests.support.journal_source.planning import LinesRead
from tests.support.killed_runs import RUN, kill_when, restarted, start
from tests.support.sensors import project, streamed, table

PACKAGE = "tests.support.journal_source"

WITH_JOURNAL = f"from job_engine.sources.kinds import FORMATS\nFORMATS['journal'] = '{PACKAGE}'\n{RUN}"

SOURCE = "{format: journal, file: readings.jsonl, lines: 500}"


@pytest.fixture(autouse=True)
def one_line(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setitem(FORMATS, "journal", PACKAGE)
        yield


def journaled(folder: Path) -> Path:
    """A job of six micro-batches that reads a journal; its control stream is a folder."""
    file = project(folder)
    text = file.read_text().replace("{format: parquet, path: data, options: {maxFilesPerTrigger: 1}}", SOURCE)
    assert SOURCE in text
    file.write_text(text)
    append(folder, 0, 3000)
    return file


def append(folder: Path, first: int, until: int) -> None:
    with (folder / "readings.jsonl").open("a") as journal:
        table().iloc[first:until].to_json(
            journal, orient="records", lines=True, date_format="iso", date_unit="us", double_precision=15
        )


def expected(folder: Path) -> dict[str, list[str]]:
    plan = querylang.compile_paths([folder / "sensors.query"]).plan
    return match_ids(embedded(plan, read_arrivals(folder / "readings.jsonl", plan, source="readings.jsonl")))


def test_a_killed_job_finds_what_a_replay_finds(tmp_path: Path, engine_of_processes: Engine) -> None:
    path = journaled(tmp_path)
    process = start(path, "-c", WITH_JOURNAL)
    kill_when(process, lambda: any((tmp_path / "out").rglob("*-00000002-*")))
    batches, _ = restarted(path)
    assert 5 in batches
    assert streamed(tmp_path) == expected(tmp_path)


def journal_job(folder: Path, text: str = RISING, lines: int = 7, **more: dict[str, Any]) -> JobWithoutSpark:
    """A job on a journal `a`, and on other sources; `lines`: most of a micro-batch."""
    folder.mkdir(exist_ok=True)
    (folder / "a.jsonl").touch()
    sources = {"a": {"format": "journal", "file": "a.jsonl", "lines": lines}, **more}
    return JobWithoutSpark(folder, text, sources=sources)


def lines(moments: range) -> str:
    rows = [
        {"at": at, "ts": float(at), "sensor": f"s{at % 3}", "value": float((at * 7 + at // 9) % 10)} for at in moments
    ]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def write(job: JobWithoutSpark, moments: range, name: str = "a") -> None:
    with (job.path / f"{name}.jsonl").open("a") as journal:
        journal.write(lines(moments))


def test_a_query_can_begin_with_what_was_read(tmp_path: Path) -> None:
    job, always = journal_job(tmp_path / "job"), journal_job(tmp_path / "always", RISING + FALLING.removeprefix(EVENT))
    for own in (job, always):
        write(own, range(10, 24))
        own.run()
        own.run()
    send_with_history(job.deployment, FALLING, "start")
    job.start()
    for own in (job, always):
        write(own, range(24, 31))
        own.run()
    assert job.found("Falling") == [row for row in always.found("Falling") if row[1].timestamp() > 23]
    assert len(job.found("Falling")) > 3


def test_what_is_not_read_is_counted(tmp_path: Path) -> None:
    job = journal_job(tmp_path)
    write(job, range(10, 30))
    job.run()
    assert backlog_of(job.deployment) == (SourceBacklog("a", messages=13),)


def test_the_list_of_what_was_read_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_manifests, "KEPT", 2)
    job = journal_job(tmp_path)
    write(job, range(10, 80))
    for _ in range(10):
        job.run()
    plain = json.loads((job.deployment.checkpoint / "ensue" / "inputs" / "read.json").read_text())
    assert plain["sources"] == {"a": {"format": "journal", "memory": 7 * plain["number"]}}
    assert plain["number"] >= 4
    whole = journal_job(tmp_path / "whole", lines=70)
    write(whole, range(10, 80))
    whole.run()
    assert job.found("Rising") == whole.found("Rising")


def test_two_journals_a_folder_and_a_table_are_read_in_one_job(tmp_path: Path) -> None:
    parts = {name: range(first, 50, 4) for first, name in enumerate(("a", "b", "files", "table"), 10)}
    (tmp_path / "b.jsonl").write_text(lines(parts["b"]))
    write_deltalake(tmp_path / "table", rows(parts["table"]))
    job = journal_job(
        tmp_path,
        b={"format": "journal", "file": "b.jsonl"},
        files={"format": "parquet", "path": "files"},
        table={"format": "delta", "path": "table"},
    )
    pq.write_table(rows(parts["files"]), tmp_path / "files" / "1.parquet")
    write(job, parts["a"])
    read = [what_was_read(job.deployment.checkpoint).by_source for _ in range(2) if job.run() is None][-1]
    assert {name: part.format for name, part in read.items()} == {
        "a": "journal",
        "b": "journal",
        "files": "parquet",
        "table": "delta",
    }
    assert (read["a"].memory, read["b"].memory) == (LinesRead(10), LinesRead(10))
    whole = journal_job(tmp_path / "whole")
    write(whole, range(10, 47))  # the journal `a` has nothing behind 46, so the others wait there
    for _ in range(6):
        whole.run()
    moments = [sorted(moment for _, moment in own.found("Rising")) for own in (job, whole)]
    assert moments[0] == moments[1]
    assert len(moments[0]) > 10


def rows(moments: range) -> pa.Table:
    return pa.Table.from_pylist([json.loads(line) for line in lines(moments).splitlines()])


def test_a_process_learns_of_it_by_the_sources_of_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = told_sources(journal_job(tmp_path).deployment)
    text = sources_to_text(sources)
    with monkeypatch.context() as patched:
        patched.delitem(FORMATS, "journal")
        assert sources_of_text(text) == sources
        assert FORMATS["journal"] == PACKAGE


@pytest.mark.parametrize("file", ["manifests/0000000001.json", "read.json"])
def test_what_was_read_of_a_kind_that_is_not_known_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    monkeypatch.setattr(kept_manifests, "KEPT", 1)
    job = journal_job(tmp_path)
    write(job, range(10, 80))
    for _ in range(1 if "manifests" in file else 6):
        job.run()
    with monkeypatch.context() as patched:
        patched.delitem(FORMATS, "journal")
        with pytest.raises(DamagedManifest) as caught:
            what_was_read(job.deployment.checkpoint)
    path = job.deployment.checkpoint / "ensue" / "inputs" / file
    assert str(caught.value) == (
        f"{path}: is damaged: 'a' has the format 'journal', which this release does not know."
        " Restore the whole checkpoint from a copy"
    )


def test_its_mistakes_are_told_like_those_of_others(tmp_path: Path) -> None:
    path = journaled(tmp_path)
    wrong = [
        "readings: {format: journal, lines: 5}",
        "files: {format: csv, path: data, lines: 3}",
        "more: {format: journal, after: keep, file: x, fil: y}",
    ]
    path.write_text(path.read_text().replace(f"readings: {SOURCE}", "\n  ".join(wrong)))
    with pytest.raises(FileErrors) as caught:
        load_deployment(path)
    assert [text for _, text in caught.value.found] == [
        "'readings' has no 'file'",
        "'lines' is not a setting of sources of files; journals have it",
        "'after' is not a setting of journals; sources of files have it",
        "unknown key 'fil' in 'more'; did you mean 'file'?",
    ]
