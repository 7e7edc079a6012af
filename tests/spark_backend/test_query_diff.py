"""The matches of two queries of a job, read from its sink and compared."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import write_deltalake

from job_engine.job.upkeep.results import compare_queries
from querylang.errors import InputError
from runtime.timestamps import parse_time

QUERY = "event A {{ integer v; }}\nquery {} {{ inputs {{ A() within 5.0; }} find A as a -> A as b; }}\n"


def _job(folder: Path, kind: str) -> Path:
    (folder / "q.query").write_text(QUERY.format("Rise") + QUERY.format("Fall").split("\n", 1)[1])
    (folder / "in").mkdir()
    file = folder / "job.yaml"
    file.write_text(
        f"name: j\nqueries: q.query\nsources: {{main: {{format: csv, path: in}}}}\ncheckpoint: ck\n"
        f"sinks: {{matches: {{format: {kind}, path: out}}}}\n"
    )
    return file


def _write(folder: Path, kind: str, rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows)
    if kind == "delta":
        write_deltalake(folder, table)
        return
    folder.mkdir(parents=True)
    file = folder / f"0123456789ab-00000001-00000.{kind}"
    (folder / f".{file.name}.draft").write_text("half of a file")
    if kind == "parquet":
        pyarrow.parquet.write_table(table, file)
    elif kind == "json":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with file.open("w", newline="") as lines:
            writer = csv.DictWriter(lines, rows[0])
            writer.writeheader()
            writer.writerows(rows)


def _match(query: str, second: int, v: int) -> dict[str, Any]:
    return {"match_id": f"{query}{second}", "query": query, "time": f"2024-03-01T10:00:{second:02}.000000Z", "v": v}


@pytest.mark.parametrize("kind", ["parquet", "json", "csv", "delta"])
def test_matches_are_compared_whatever_the_sink_holds(tmp_path: Path, kind: str) -> None:
    file = _job(tmp_path, kind)
    _write(tmp_path / "out" / "Rise", kind, [_match("Rise", second, 1) for second in (1, 2, 3)])
    _write(tmp_path / "out" / "Fall", kind, [_match("Fall", 2, 1), _match("Fall", 3, 2)])
    found = compare_queries(file, "Rise", "Fall").found
    assert found.both == 1
    assert [parse_time(row["time"]) % 60_000_000 for row in found.only_first] == [1_000_000, 3_000_000]
    assert [str(row["v"]) for row in found.only_second] == ["2"]
    with pytest.raises(InputError, match=r"no matches of a query .Ris. .*; did you mean .Rise."):
        compare_queries(file, "Ris", "Fall")


def test_a_job_without_matches_is_refused(tmp_path: Path) -> None:
    file = _job(tmp_path, "csv")
    file.write_text(file.read_text().replace("matches:", "output:"))
    with pytest.raises(InputError, match="has no sink 'matches'"):
        compare_queries(file, "Rise", "Fall")


def test_a_log_that_names_a_file_outside_of_the_results_is_refused(tmp_path: Path) -> None:
    file = _job(tmp_path, "delta")
    for query in ("Rise", "Fall"):
        _write(tmp_path / "out" / query, "delta", [_match(query, 1, 1)])
    (commit,) = (tmp_path / "out/Rise/_delta_log").glob("*.json")
    commit.write_text(re.sub(r'"path":"[^"]*"', '"path":"../private.parquet"', commit.read_text()))
    with pytest.raises(InputError, match=r"out/Rise: its log names a data file outside of the table: '../private"):
        compare_queries(file, "Rise", "Fall")
