"""Deployments that a program gives as a mapping: read like files, with keys in place of lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from job_engine.deployment_file import load_deployment
from querylang.errors import InputError
from querylang.source import Source

OF_A_FILE = """\
name: cards
queries: [queries/*.query]
sources:
  withdrawals: {format: parquet, path: data, event: Withdrawal, ordering: apama, options: {maxFilesPerTrigger: 2}}
control: {format: json, path: control/}
sinks:
  discarded: {format: json, path: "${OUT}/discarded", shared: true}
buckets: 8
trigger: 500ms
checkpoint: state/cards
spark: {executor_memory: 1g}
"""

TEXT = "event A { float v; }\nquery Q { inputs { A() within 3 seconds; } find A as a -> A as b }"

SMALL: dict[str, Any] = {
    "name": "small",
    "queries": TEXT,
    "sources": {"data": {"format": "csv", "path": Path("in")}},
    "sinks": {"matches": {"format": "csv", "path": "out"}},
    "checkpoint": "state",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def mistakes(changes: dict[str, Any]) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_deployment({**SMALL, **changes}, {})
    return str(caught.value).replace("the deployment: ", "").split("\n")


def test_a_mapping_means_what_a_file_does(folder: Path) -> None:
    import yaml

    for name in ("data", "queries"):
        (folder / name).mkdir()
    (folder / "queries" / "cards.query").write_text("")
    (folder / "deploy.yaml").write_text(OF_A_FILE)
    environment = {"OUT": "/secret/place"}
    of_file = load_deployment(folder / "deploy.yaml", environment)
    given = load_deployment(yaml.safe_load(OF_A_FILE), environment)
    for name in (
        "name",
        "queries",
        "sources",
        "control",
        "sinks",
        "buckets",
        "trigger",
        "checkpoint",
        "environment",
        "spark",
    ):
        assert getattr(given, name) == getattr(of_file, name)
    assert given.fixed == of_file.fixed


def test_queries_may_be_texts_and_paths_are_relative_to_the_working_folder(folder: Path) -> None:
    (folder / "a.query").write_text("")
    assert load_deployment(SMALL, {}).queries == (Source("query", TEXT),)
    assert load_deployment({**SMALL, "queries": [TEXT, "*.query", f"{TEXT}\n"]}, {}).queries == (
        Source("query", TEXT),
        folder / "a.query",
        Source("query2", f"{TEXT}\n"),
    )
    assert load_deployment(SMALL, {}).sources[0].place == folder / "in"


def test_mistakes_name_the_keys_that_lead_to_them(folder: Path) -> None:
    sources = {
        "data": {"formt": "csv", "path": "in"},
        "b": {"format": "cvs", "path": "no", "ordering": {"policy": "x"}},
    }
    assert mistakes({"bukets": 3, "sources": sources, "spark": {"conf": {"a.b": True}}, "queries": ["no.query"]}) == [
        "queries[0]: no such query file: 'no.query'",
        "sources.data: 'data' has no 'format'",
        "sources.data.formt: unknown key 'formt' in 'data'; did you mean 'format'?",
        "sources.b.format: 'format' must be parquet, csv, json, arrow, kafka or delta, not 'cvs'; did you mean 'csv'?",
        "sources.b.ordering.policy: 'policy' must be apama, stream_analytics or streaminsight, not 'x'",
        "bukets: unknown key 'bukets' in 'the deployment'; did you mean 'buckets'?",
        "spark.conf.a.b: settings of Spark begin with 'spark.'; did you mean 'spark.a.b'?",
    ]


def test_values_that_no_file_could_have_are_refused(folder: Path) -> None:
    assert mistakes({"checkpoint": object(), "buckets": {1, 2}}) == [
        "checkpoint: is of the type object; expected text, a number, a list or a mapping",
        "buckets: is of the type set; expected text, a number, a list or a mapping",
    ]
    endless: dict[str, Any] = {}
    endless["again"] = endless
    assert mistakes({"parameters": endless})[0].endswith("again: is nested more than 100 deep")
    assert mistakes({"buckets": float("-inf")}) == [
        "buckets: 'buckets' must be a whole number from 1 to 10000, not '-.inf'"
    ]
