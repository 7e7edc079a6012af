"""`ensue replay --out`: the matches as a file."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.ensue.command import Run

QUERY = """
event W { string card; float v; sequence<integer> parts; }
query Q { inputs { W() key card within 1 minute; } find W as low -> W as high where high.v > low.v }
"""
ROWS = [
    {"at": at, "card": card, "v": v, "parts": [at]}
    for at, card, v in [(1, "b", 1.0), (2, "a", 5.5), (3, "b", 2.0), (4, "a", 6.5), (5, "b", 3.0), (6, "", 1.0)]
]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a query and a table."""
    monkeypatch.chdir(tmp_path)
    Path("q.query").write_text(QUERY, "utf-8")
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS), "utf-8")
    return tmp_path


def test_json_lines_are_what_format_matches_prints(ensue: Run) -> None:
    printed = ensue("replay", "q.query", "rows.jsonl", "--format", "matches").stdout
    done = ensue("replay", "q.query", "rows.jsonl", "--out", "found.jsonl")
    assert (done.returncode, Path("found.jsonl").read_text("utf-8")) == (0, printed)
    assert done.stdout == "6 rows, 3 matches in found.jsonl\n6 received = 6 used\n"
    assert sorted(path.name for path in Path().iterdir()) == ["found.jsonl", "q.query", "rows.jsonl"]


def test_many_late_records_are_told_as_without_a_file(ensue: Run) -> None:
    Path("q.query").write_text(QUERY.replace("1 minute", "1 minute wait 1.0"), "utf-8")
    rows = [{"at": at, "ts": at if at < 80 else 1, "card": "a", "v": 1.0, "parts": []} for at in range(1, 100)]
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    told = ensue("replay", "q.query", "rows.jsonl").stderr
    assert "20 of 99 records are late for query 'Q': a longer `wait`" in told
    assert ensue("replay", "q.query", "rows.jsonl", "--out", "found.jsonl").stderr == told


def test_a_table_in_another_order_gives_the_same_file(ensue: Run) -> None:
    ensue("replay", "q.query", "rows.jsonl", "--out", "one.jsonl")
    lines = Path("rows.jsonl").read_text("utf-8").splitlines(keepends=True)
    Path("rows.jsonl").write_text("".join(reversed(lines)), "utf-8")
    ensue("replay", "q.query", "rows.jsonl", "--out", "two.jsonl")
    one, two = (Path(name).read_text("utf-8").splitlines() for name in ("one.jsonl", "two.jsonl"))
    fields = [[json.loads(line)["members"]["low"]["fields"] for line in lines] for lines in (one, two)]
    assert fields[0] == fields[1]


def test_parquet_has_the_nested_matches(ensue: Run) -> None:
    ensue("replay", "q.query", "rows.jsonl", "--out", "found.parquet")
    found = pq.read_table("found.parquet")
    assert found.column_names == [
        *("match_id", "query", "instance", "key", "time", "definitive", "emitted", "waited", "members")
    ]
    assert [key["card"] for key in found["key"].to_pylist()] == ["b", "a", "b"]


@pytest.mark.parametrize("file", ["found.parquet", "found.csv", "found.jsonl"])
@pytest.mark.parametrize(
    "query",
    [
        "inputs { W() within 9.0; Empty() within 9.0; } find W as w -> Empty as e;",
        "inputs { Empty() within 9.0; } find Empty as e {1,3};",
        "inputs { W() key card within 9.0; } find every W as w select count() as n;",
        "inputs { W() within 9.0; } find every W as w select sum(w.v) as total having count() > 1;",
        "inputs { Empty() within 9.0; } find every Empty as e select last(e) as newest;",
        "inputs { Empty() within 9.0; } find every Empty as e having count() > 1;",
    ],
    ids=["no key", "no fields", "every by key", "every without a key", "every selects an event", "every having"],
)
def test_what_has_no_fields_is_no_column_of_parquet(ensue: Run, query: str, file: str) -> None:
    Path("q.query").write_text(f"event W {{ string card; float v; }} event Empty {{ }} query Q {{ {query} }}", "utf-8")
    rows = [{"at": at, "event": "W", "card": "b", "v": 1.0} for at in range(3)]
    rows += [{"at": at, "event": "Empty"} for at in range(3, 6)]
    Path("rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    done = ensue("replay", "q.query", "rows.jsonl", "--out", file)
    assert done.returncode == 0, done.stderr
    written = pq.read_table(file).num_rows if file.endswith("parquet") else len(Path(file).read_text().splitlines())
    printed = ensue("replay", "q.query", "rows.jsonl", "--format", "matches").stdout.splitlines()
    assert written - file.endswith("csv") == len(printed) >= 1


def test_csv_has_a_column_for_each_field(ensue: Run) -> None:
    ensue("replay", "q.query", "rows.jsonl", "--out", "found.csv")
    found = pd.read_csv("found.csv")
    assert list(found)[3:] == [
        *("card", "time", "definitive", "emitted", "waited"),
        *("low.card", "low.v", "low.parts", "low.event", "low.time", "low.source_time", "low.arrival", "low.row"),
        *("high.card", "high.v", "high.parts", "high.event", "high.time", "high.source_time", "high.arrival"),
        "high.row",
    ]
    assert found["low.row"].tolist() == [1, 2, 3]
    assert found["low.parts"].tolist() == ["[1]", "[2]", "[3]"]
    assert found["high.time"].tolist()[0] == "1970-01-01T00:00:03.000000Z"


def test_several_queries_need_json_lines(ensue: Run) -> None:
    Path("q.query").write_text(QUERY + QUERY.partition("query")[1] + QUERY.partition("query")[2].replace("Q", "P"))
    done = ensue("replay", "q.query", "rows.jsonl", "--out", "found.csv")
    assert (done.returncode, done.stderr) == (
        1,
        "found.csv: 2 queries (Q, P) have matches of their own columns; write them as .jsonl, or replay one query\n",
    )
    printed = ensue("replay", "q.query", "rows.jsonl", "--format", "matches").stdout
    ensue("replay", "q.query", "rows.jsonl", "--out", "found.jsonl")
    assert Path("found.jsonl").read_text("utf-8") == printed


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("rows.jsonl", "rows.jsonl: exists already; matches are written to a new file"),
        ("found.xml", "found.xml: unknown format .xml; matches are written as .parquet .csv .jsonl .ndjson"),
        ("found", "found: no suffix that names a format; matches are written as .parquet .csv .jsonl .ndjson"),
        ("no/found.csv", "no/found.csv: there is no folder no"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused(ensue: Run, path: str, message: str) -> None:
    done = ensue("replay", "q.query", "rows.jsonl", "--out", path)
    assert (done.returncode, done.stderr) == (1, f"{message}\n")


def test_a_replay_that_fails_leaves_no_file(ensue: Run) -> None:
    Path("other.parquet").write_text("not a table", "utf-8")
    done = ensue("replay", "q.query", "rows.jsonl", "other.parquet", "--out", "found.parquet")
    assert done.returncode == 1
    assert sorted(path.name for path in Path().iterdir()) == ["other.parquet", "q.query", "rows.jsonl"]


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("name", ["found.parquet", "found.csv", "found.jsonl"])
def test_a_file_that_cannot_grow_is_told(ensue: Run, monkeypatch: pytest.MonkeyPatch, name: str, threads: str) -> None:
    monkeypatch.setenv("ENSUE_THREADS", threads)
    lines = [json.dumps({"at": at, "card": str(at % 7), "v": at, "parts": []}) for at in range(5_000)]
    Path("rows.jsonl").write_text("\n".join(lines), "utf-8")
    most, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        done = ensue("replay", "q.query", "rows.jsonl", "--out", name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    assert (done.returncode, done.stderr) == (1, f"{name}: cannot be written: File too large\n")
    assert sorted(path.name for path in Path().iterdir()) == ["q.query", "rows.jsonl"]


def test_rows_that_cannot_be_read_are_told(ensue: Run) -> None:
    with Path("rows.jsonl").open("a", encoding="utf-8") as file:
        file.write("nonsense\n")
    done = ensue("replay", "q.query", "rows.jsonl", "--out", "found.parquet")
    assert "7 received = 6 used + 1 discarded (malformed)" in done.stdout
    assert "rows.jsonl: line 7: " in done.stderr


def test_out_is_for_matches_only(ensue: Run) -> None:
    done = ensue("replay", "q.query", "rows.jsonl", "--format", "steps", "--out", "found.jsonl")
    assert done.returncode == 2


def test_what_is_left_is_told_as_without_a_file(ensue: Run) -> None:
    waits = "query Q { inputs { W() key card within 1 hour; } find W as low -> wait(2.0) }"
    Path("q.query").write_text(QUERY.partition("query")[0] + waits, "utf-8")
    command = ["replay", "q.query", "rows.jsonl", "--no-flush"]
    printed = ensue(*command).stdout.splitlines()[-2:]
    done = ensue(*command, "--out", "found.jsonl")
    assert done.stdout.splitlines()[1:] == printed
    assert printed == [
        "6 received = 6 used",
        "2 matches wait; the next is due at 1970-01-01T00:00:07.000000Z",
    ]


@pytest.mark.parametrize("format_", ["matches", "outputs", "steps"])
def test_what_is_left_is_told_beside_results_for_programs(ensue: Run, format_: str) -> None:
    waits = "query Q { inputs { W() key card within 1 hour; } find W as low -> wait(2.0) }"
    Path("q.query").write_text(QUERY.partition("query")[0] + waits, "utf-8")
    command = ["replay", "q.query", "rows.jsonl", "--format", format_]
    told = "2 matches wait; the next is due at 1970-01-01T00:00:07.000000Z"
    done = ensue(*command, "--no-flush")
    assert done.stderr.splitlines()[-1:] == [told]
    assert all(json.loads(line) for line in done.stdout.splitlines())
    assert "wait" not in ensue(*command).stderr


def test_what_waits_is_in_the_object_for_programs(ensue: Run) -> None:
    waits = "query Q { inputs { W() key card within 1 hour; } find W as low -> wait(2.0) }"
    Path("q.query").write_text(QUERY.partition("query")[0] + waits, "utf-8")
    command = ["replay", "q.query", "rows.jsonl", "--no-flush", "--json"]
    for more in ([], ["--out", "found.jsonl"]):
        found = json.loads(ensue(*command, *more).stdout)
        assert (found["waiting"], found["next_due"]) == (2, "1970-01-01T00:00:07.000000Z")


def test_more_files_than_may_be_open_are_replayed(ensue: Run) -> None:
    Path("many.query").write_text(
        "event E { integer n; }\nquery Q { inputs { E() within 3.0; } find E as a -> E as b { } }"
    )
    Path("many").mkdir()
    for number in range(300):
        Path(f"many/{number}.csv").write_text(f"at,event,n\n{number},E,{number}\n{number + 0.5},E,{number}\n")
    whole = ensue("replay", "many.query", "many", "--format", "matches")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        done = ensue("replay", "many.query", "many", "--out", "many.jsonl")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert (whole.returncode, done.returncode) == (0, 0), done.stderr
    found = Path("many.jsonl").read_text().splitlines()
    assert len(found) == 599
    assert found == whole.stdout.splitlines()
