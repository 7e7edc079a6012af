"""A kind of sink that Ensue does not have, in a real job: one line names it, and it is exactly once like the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from job_engine.deployment_file import load_deployment
from job_engine.setting_keys import Engine
from job_engine.sinks.kinds import FORMATS, Sink
from querylang.errors import FileErrors
from tests.support.counting_sink.publishing import counts
from tests.support.killed_runs import RUN, kill_when, restarted, start
from tests.support.sensors import add_files, expected, project, table

PACKAGE = "tests.support.counting_sink"

WITH_COUNTER = f"from job_engine.sinks.kinds import FORMATS\nFORMATS['counter'] = '{PACKAGE}'\n{RUN}"


def counted(folder: Path) -> Path:
    """A job of six micro-batches that counts its matches and its outputs."""
    file = project(folder, files=1)
    text = file.read_text()
    for name in ("matches", "output"):
        text = text.replace(f"path: out/{name}}}", f"file: {name}.json}}")
    lines = [line.replace("parquet", "counter") if ".json}" in line else line for line in text.splitlines()]
    file.write_text("\n".join(lines))
    add_files(folder, table(), 6)
    return file


def total(file: Path) -> dict[str, int]:
    found: dict[str, int] = {}
    for batch in counts(file).values():
        for place, rows in batch.items():
            found[place] = found.get(place, 0) + rows
    return found


def test_a_killed_job_counts_each_row_once(
    tmp_path: Path, engine_of_processes: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = counted(tmp_path)
    process = start(path, "-c", WITH_COUNTER)
    kill_when(process, lambda: len(counts(tmp_path / "matches.json")) > 2)  # published, and not yet committed
    monkeypatch.setitem(FORMATS, "counter", PACKAGE)
    batches, _ = restarted(path)
    assert 5 in batches
    assert total(tmp_path / "matches.json") == {query: len(ids) for query, ids in expected(tmp_path).items()}
    assert total(tmp_path / "output.json").keys() == {""}
    assert list((tmp_path / "out" / "ledger").glob("*.parquet"))


def test_workers_need_no_line_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(FORMATS, "counter", PACKAGE)
        sink = load_deployment(counted(tmp_path)).sinks["matches"]
        plain = sink.to_plain()
    found = Sink.from_plain(plain)
    assert (found.package, found.own) == (PACKAGE, sink.own)


def test_its_mistakes_are_told_like_those_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "counter", PACKAGE)
    path = counted(tmp_path)
    path.write_text(path.read_text().replace("file: matches.json", "topic: t").replace("file: output", "fil: output"))
    with pytest.raises(FileErrors) as caught:
        load_deployment(path)
    assert [text for _, text in caught.value.found] == [
        "'matches' has no 'file'",
        "'topic' is a setting of Kafka; 'matches' is counter",
        "'output' has no 'file'",
        "unknown key 'fil' in 'output'; did you mean 'file'?",
    ]
