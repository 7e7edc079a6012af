"""Jobs whose queries lack definitions: refused where files do not say types, else inferred."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from job_engine.deployment_file import load_deployment
from job_engine.job.compilation import compile_deployment
from querylang.errors import FileErrors

JOB = """\
name: a
queries: [a.query]
sources: {s: {format: FORMAT, path: in}}
sinks: {matches: {format: json, path: out}}
checkpoint: state
"""


def written(folder: Path, form: str, query: str = "query Q { inputs { A() key k within 1 hour; } find A:x }") -> Path:
    (folder / "a.query").write_text(query)
    (folder / "a.yaml").write_text(JOB.replace("FORMAT", form))
    (folder / "in").mkdir()
    (folder / "in" / "1.csv").write_text("at,event,k,v,Net Sum\n1,A,a,20,1.5\n")
    (folder / "in" / "1.json").write_text('{"at": 1, "event": "A", "k": "a", "o": {"v": 20}}\n')
    pa.parquet.write_table(pa.table({"at": [1], "event": ["A"], "k": ["a"], "v": [20]}), folder / "in" / "1.parquet")
    return folder / "a.yaml"


@pytest.mark.parametrize(
    ("form", "definition"),
    [
        ("csv", "event A { string k; integer v; float `Net Sum`; }"),
        ("json", "event A { string k; A_o o; } event A_o { integer v; }"),
    ],
)
def test_files_without_types_need_definitions(tmp_path: Path, form: str, definition: str) -> None:
    file = written(tmp_path, form)
    with pytest.raises(FileErrors) as raised:
        compile_deployment(load_deployment(file), None)
    assert str(raised.value) == (
        f"{file}: the files of 's' do not say the types of their columns, and no definition does; add this one to the"
        " queries and correct its types, or set `infer: true` to take the types of the first files: " + definition
    )


@pytest.mark.parametrize("form", ["csv, infer: true", "json, infer: true", "parquet"])
def test_types_are_inferred_where_files_say_them_or_the_source_allows_it(tmp_path: Path, form: str) -> None:
    compiled = compile_deployment(load_deployment(written(tmp_path, form)), None)
    assert "A" in compiled.schemas
    again = compile_deployment(load_deployment(tmp_path / "a.yaml"), compiled.schemas)
    assert again.plan == compiled.plan


def test_files_without_a_column_of_types_hold_the_only_event_type(tmp_path: Path) -> None:
    file = written(tmp_path, "csv")
    (tmp_path / "in" / "1.csv").write_text("at,k,v\n1,a,20.5\n")
    with pytest.raises(FileErrors, match=r"the first files: event A { string k; float v; }$"):
        compile_deployment(load_deployment(file), None)
    file.write_text(JOB.replace("FORMAT", "csv, infer: true"))
    assert list(compile_deployment(load_deployment(file), None).schemas) == ["A"]


def test_a_job_with_definitions_needs_no_data(tmp_path: Path) -> None:
    query = "event A { string k; } query Q { inputs { A() key k within 1 hour; } find A:x }"
    assert not compile_deployment(load_deployment(written(tmp_path, "csv", query)), None).schemas


def test_the_first_files_together_say_the_types(tmp_path: Path) -> None:
    file = written(tmp_path, "csv, infer: true")
    (tmp_path / "in" / "2.csv").write_text("at,event,k,v,Net Sum\n2,A,007,20.5,1\n")
    assert {
        name: str(type_) for name, type_ in compile_deployment(load_deployment(file), None).schemas["A"].items()
    } == {
        "k": "string",
        "v": "float",
        "Net Sum": "float",
    }
