"""Where results lie and how CSV has them: folders by query, safe names, formulas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

import querylang
from ensue.cli import main
from job_engine.job.plan_rules import refuse_name_conflicts
from job_engine.sinks.folder.settings import FolderSink, Formulas
from job_engine.sinks.kinds import MicroBatch, Sink, publishing, writing
from job_engine.sinks.names import LONGEST, folder_name, match_folder, same_on_disk
from job_engine.wire.tagged_rows import spread_schema
from querylang.errors import FileErrors
from querylang.plan.model import Plan
from tests.support.sensors import project
from tests.support.sinks import sink_of


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("Rise", "Rise"),
        ("a-b_c.d", "a-b_c.d"),
        ("größe", "größe"),
        ("_Hidden", "%5FHidden"),
        (".hidden", "%2Ehidden"),
        ("..", "%2E%2E"),
        (".", "%2E"),
        ("a.", "a%2E"),
        ("a/b", "a%2Fb"),
        ("k=v", "k%3Dv"),
        ("a b", "a%20b"),
        ("100%", "100%25"),
        ("con", "%63on"),
        ("NUL.x", "%4EUL.x"),
        ("console", "console"),
        ("e\u0301", "e%CC%81"),
        ("\ud800", "%ED%A0%80"),
        ("\x1b[31m", "%1B%5B31m"),
        ("", "%"),
    ],
)
def test_names_are_safe_in_paths(name: str, folder: str) -> None:
    assert folder_name(name) == folder


def test_long_names_are_cut_and_stay_different() -> None:
    folders = {folder_name("é" * 150 + end) for end in "abc"}
    assert len(folders) == 3
    assert max(len(folder.encode()) for folder in folders) <= LONGEST
    assert len({same_on_disk(folder) for folder in folders}) == 3


def plan_of(*names: str) -> Plan:
    text = "event A { float v; }\n" + "".join(
        f"query Q{place} {{ inputs {{ A() within 1.0; }} find A as a }}\n" for place in range(len(names))
    )
    plan = querylang.compile_text(text).plan
    queries = [replace(query, name=name) for query, name in zip(plan.queries, names, strict=True)]
    return replace(plan, queries=tuple(queries))


def test_a_query_has_a_folder_and_each_instance_one_in_it() -> None:
    (query,) = plan_of("_Q").queries
    assert match_folder(query) == "%5FQ"
    assert match_folder(replace(query, instance="eu.1")) == "%5FQ/eu.1"


@pytest.mark.parametrize(("one", "other"), [("Q", "q"), ("Straße", "STRASSE"), ("_Q", "_q")])
def test_names_that_some_disk_takes_for_one_are_refused(one: str, other: str) -> None:
    with pytest.raises(FileErrors, match=r"the queries '.*' and '.*' would be written to one folder; "):
        refuse_name_conflicts(Path("d.yaml"), plan_of(one, other))
    refuse_name_conflicts(Path("d.yaml"), plan_of("Q", "R"))


def test_check_refuses_fields_and_instances_that_differ_in_case_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project(tmp_path)
    path.write_text(path.read_text() + "parameters: {Low: {eu: {n: 1.0}, EU: {n: 2.0}}}\n")
    (tmp_path / "sensors.query").write_text(
        "event Reading { float v; float V; }\n"
        "query Low { parameters { float n; } inputs { Reading() within n; } find Reading as r }"
    )
    with pytest.raises(SystemExit) as caught:
        main_with("check", str(path))
    assert caught.value.code == 1
    lines = capsys.readouterr().err.replace(str(path), "d").splitlines()
    assert [line.partition(";")[0] for line in lines] == [
        "d: the instances 'EU' and 'eu' of query 'Low' would be written to one folder",
        "d: the fields 'V' and 'v' of event 'Reading' would be one column",
    ]


def main_with(*arguments: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["ensue", *arguments])
        main()


def test_names_of_a_pattern_that_sql_takes_for_a_column_get_another_one() -> None:
    text = "event A { float v; }\nquery Q { inputs { A() within 1.0; } find A as Time -> A as time -> A as b }"
    plan = querylang.compile_text(text).plan
    names = spread_schema(plan, plan.queries[0]).names
    assert names[-3:] == ["Time_", "time__", "b"]


def written(sink: Sink, table: pa.Table) -> Path:
    writer = writing(sink).open(sink, MicroBatch("0123456789ab", 1), 0, 0)
    file = writer.write("", table)
    publishing(sink).publish(MicroBatch("0123456789ab", 1), [(sink, writer.finish())])
    return Path(file)


def test_formulas_are_kept_unless_a_sink_escapes_them(tmp_path: Path) -> None:
    texts = ["=1+1", "+1", "-1", "@x", "\tx", "\r", "\uff1d1", "a=1", "", None]
    table = pa.table({"=t": texts, "n": range(-5, 5), "s": [{"f": text} for text in texts]})
    kept = pd.read_csv(written(sink_of("csv", tmp_path / "kept"), table), keep_default_na=False)
    assert list(kept["=t"][:4]) == texts[:4]
    escaped = pd.read_csv(
        written(sink_of("csv", tmp_path / "escaped", FolderSink(Formulas.ESCAPE)), table), keep_default_na=False
    )
    assert list(escaped.columns) == ["'=t", "n", "s.f"]
    assert list(escaped["'=t"][:7]) == [f"'{text}" for text in texts[:7]]
    assert list(escaped["s.f"][7:]) == ["a=1", "", ""]
    assert list(escaped["n"]) == list(range(-5, 5))


@pytest.mark.parametrize("name", ["csv", "json", "parquet"])
def test_matches_with_other_columns_go_to_a_file_of_their_own(tmp_path: Path, name: str) -> None:
    batch = MicroBatch("0123456789ab", 1)
    sink = sink_of(name, tmp_path)
    writer = writing(sink).open(sink, batch, 2, 0)
    old, new = pa.table({"id": ["a"], "low": [1]}), pa.table({"id": ["b"], "high": ["x"]})
    written = [writer.write("Q", table) for table in (old, new, old)]
    publishing(sink).publish(batch, [(sink, writer.finish())])
    names = [f"{batch.name}{number}.{name}" for number in ("00002", "000002", "00002")]
    assert written == [str(tmp_path / "Q" / own) for own in names]
    found = list(publishing(sink).results(sink))
    assert sorted(Path(result.place).name for result in found) == sorted(set(names))
    assert {result.batch for result in found} == {1}
