"""A kind of source that Ensue does not have, in a real job: one line names it, and it is read like the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import querylang
from runtime.reading.tables import read_arrivals
from spark_backend.sources.kinds import FORMATS
from tests.support.embedded import embedded, match_ids
from tests.support.killed_runs import RUN, kill_when, start
from tests.support.sensors import project, streamed, table

PACKAGE = "tests.support.journal_source"

WITH_JOURNAL = f"from spark_backend.sources.kinds import FORMATS\nFORMATS['journal'] = '{PACKAGE}'\n{RUN}"

LINES = 500
"""Of a micro-batch."""


@pytest.fixture
def journals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setitem(FORMATS, "journal", PACKAGE)
        yield


def journaled(folder: Path) -> Path:
    """A job of six micro-batches that reads a journal; its control stream is a folder."""
    file = project(folder)
    source = f"{{format: journal, file: readings.jsonl, lines: {LINES}}}"
    text = file.read_text().replace("{format: parquet, path: data, options: {maxFilesPerTrigger: 1}}", source)
    assert source in text
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


def test_a_killed_job_finds_what_a_replay_finds(tmp_path: Path) -> None:
    path = journaled(tmp_path)
    process = start(path, "-c", WITH_JOURNAL)
    kill_when(process, (tmp_path / "state" / "commits" / "1").exists)
    again = start(path, "-c", WITH_JOURNAL)
    output, errors = again.communicate(timeout=240)
    assert again.returncode == 0, errors
    assert "batch 0" not in output
    assert "batch 5" in output
    assert streamed(tmp_path) == expected(tmp_path)
