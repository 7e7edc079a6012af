"""What queries say of themselves in the results of a job: in files of each format, and on an old checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from job_engine.job import preflight
from job_engine.job.compilation import Compiled
from job_engine.job.job import run as run_once
from job_engine.job.preflight import plan_of
from tests.support.local_jobs import local
from tests.support.sensors import QUERY, add_files, project, table

EVENT, _, _ = QUERY.partition("query")
METADATA = {"severity": "high", "technique": "T1110"}
RULES = """
query Rise {
    metadata { "severity": "high", "technique": "T1110" }
    inputs { Reading() key sensor within 20.0 wait 5.0; }
    find Reading as first -> Reading as second where second.value > first.value + 50.0 {
        send Reading(second.sensor, second.value - first.value, second.ts) to "rises";
    }
}
query Plain {
    inputs { Reading(value > 80.0) within 3.0 wait 5.0; }
    find Reading as first -> Reading as second { print first.sensor + second.sensor; }
}
"""


def job(folder: Path, sink: str, rules: str = RULES) -> Path:
    path = local(project(folder, sink=sink))
    (folder / "sensors.query").write_text(EVENT + rules)
    add_files(folder, table(300), 2)
    return path


def rows(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The rows of a folder of results, whose values are as JSON has them."""
    found: list[dict[str, Any]] = []
    for path in sorted(path for path in (folder / "out" / kind).rglob("*.*") if path.is_file()):
        match path.suffix:
            case ".json":
                found += map(json.loads, path.read_text().splitlines())
            case ".csv":
                text = pd.read_csv(path).astype(object)
                found += text.where(text.notna(), None).to_dict("records")
            case ".parquet":
                found += pq.read_table(path).to_pylist(maps_as_pydicts="lossy")
    for row in found:
        if isinstance(row.get("metadata"), str):
            row["metadata"] = json.loads(row["metadata"])
    return found


def told(found: list[dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
    """By query what its rows say of it; "-" = there is no such column."""
    said: dict[str, tuple[Any, Any]] = {}
    for row in found:
        own = row.get("metadata", "-"), row.get("severity", "-")
        assert said.setdefault(row["query"], own) == own
    return said


def found(folder: Path, kind: str) -> set[tuple[str, str | None]]:
    """The severity that rows of each query have; None = they say nothing of it."""
    return {(row["query"], row.get("severity")) for row in rows(folder, kind)}


def test_results_of_a_job_say_what_their_query_says(tmp_path: Path) -> None:
    path = job(tmp_path, "parquet")
    path.write_text(path.read_text().replace("parquet, path: out/output", "csv, path: out/output"))
    run_once(path, once=True)
    assert told(rows(tmp_path, "matches")) == {"Rise": (METADATA, "high"), "Plain": ("-", "-")}
    assert told(rows(tmp_path, "output")) == {"Rise": (METADATA, "high"), "Plain": (None, None)}


def test_a_checkpoint_of_before_has_no_columns_until_files_are_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = job(tmp_path, "json")
    compiled = preflight.compiled_as_kept

    def earlier(*given: Any) -> Compiled:
        today = compiled(*given)
        return today.by_rules_of({query.name: query for query in today.template.without_told().queries})

    with monkeypatch.context() as patch:
        patch.setattr(preflight, "compiled_as_kept", earlier)
        run_once(path, once=True)
    none, said = {("Rise", None), ("Plain", None)}, {("Rise", "high"), ("Plain", None)}
    assert found(tmp_path, "matches") == found(tmp_path, "output") == none
    assert plan_of(path).changes == ("replace 'Rise': metadata in results; it keeps all state",)
    assert not plan_of(path).is_needed
    for hours, is_applied in ((1, False), (2, True)):
        later = table(300, seed=hours)
        later["at"] += pd.Timedelta(hours=hours)
        later["ts"] += hours * 3600
        add_files(tmp_path, later, 1, 1 + hours)
        run_once(path, once=True, apply=is_applied)
        expected = none | said if is_applied else none
        assert found(tmp_path, "matches") == found(tmp_path, "output") == expected
    assert plan_of(path).changes == ()
