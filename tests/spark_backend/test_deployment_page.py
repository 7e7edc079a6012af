"""What docs/deployment.yaml says of each key is what the reader of deployment files does."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml

from job_engine.deployment import Deployment
from job_engine.deployment_file import load_deployment
from querylang.errors import InputError
from runtime.reading.column_names import ARRIVAL, SOURCE_TIME, STANDARD, TYPE
from spark_backend.launch.session_settings import AT_START
from tools.deployment_keys import said

FILES = {"format": "csv", "path": "in", "event": "A"}
TOPIC = {"format": "kafka", "event": "A", "options": {"kafka.bootstrap.servers": "host:9092", "subscribe": "a"}}
SINKS = [{"format": name, "path": "results"} for name in ("parquet", "csv", "json", "delta")]
SINKS += [
    {"format": "parquet", "path": "s3://bucket/out"},
    {"format": "kafka", "topic": "a", "options": {"kafka.bootstrap.servers": "host:9092"}},
    {"format": "delta", "layout": "one"},
]
TABLE = {"format": "delta", "arrival": "at"}
SOURCES = (FILES, {"format": "csv", "path": "in"}, TOPIC, FILES | TABLE, TABLE | {"table": "lake.a"})
BASES = [
    {
        "name": "cards",
        "queries": ["cards.query"],
        "sources": {"bank": source},
        "sinks": {"matches": sink},
        "checkpoint": "state",
    }
    for source, sink in (*((source, SINKS[0]) for source in SOURCES), *((FILES, sink) for sink in SINKS[1:]))
]
BASES.append(BASES[0] | {"control": {"format": "json", "path": "control"}})
PAST = (("parquet", "past"), ("parquet", "s3://bucket/past"), ("delta", "past"))
BASES += [BASES[0] | {"history": {"format": kind, "path": path}} for kind, path in PAST]
BASES += [BASES[0] | {"tables": {"Asset": {"path": path}}} for path in ("assets.csv", "s3://bucket/assets.csv")]
"""Files to which a key is added; it has to fit one of them."""

UNSET = {
    "type_field": TYPE,
    "source_time": SOURCE_TIME,
    "arrival": ARRIVAL,
    "driver_memory": AT_START["spark.driver.memory"],
    "max_record": f"{STANDARD.max_record >> 20} MB",
}
"""Defaults that the readers of files know, not that of deployment files."""

LITERAL = re.compile(r"`([\w./-]+)`|(\d+(?: \w+)?)")
"""A default that can be written: `time`, `16`, `1 second`."""


def at(document: dict[str, Any], group: str) -> dict[str, Any]:
    """The mapping that has the keys of a group."""
    match group:
        case "job":
            return document
        case "source":
            return dict.__getitem__(document["sources"], "bank")
        case "sink":
            return dict.__getitem__(document["sinks"], "matches")
        case "table":
            tables: dict[str, dict[str, Any]] = document.get("tables", {"Asset": {}})
            return tables["Asset"]
    return dict.setdefault(document, group, {})


def loaded(folder: Path, base: dict[str, Any], group: str, keys: dict[str, Any]) -> Deployment | InputError:
    document = copy.deepcopy(base)
    at(document, group).update(keys)
    (folder / "job.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    try:
        return load_deployment(folder / "job.yaml", {})
    except InputError as mistake:
        return mistake


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "cards.query").write_text(
        "event A { integer n; }\nquery Least { inputs { A() retain 1; } find A as a }"
    )
    (tmp_path / "own.jar").write_bytes(b"")
    with ZipFile(tmp_path / "kernels.zip", "w") as archive:
        archive.writestr("kernel.nbi", b"")
    return tmp_path


def keys() -> Iterator[tuple[str, str, list[str]]]:
    for group, lines in said().items():
        for key, line in lines.items():
            yield group, key, line


@pytest.mark.parametrize(
    ("group", "key", "line"), list(keys()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_example_of_a_key_is_read_and_its_default_is_that_of_the_reader(
    folder: Path, group: str, key: str, line: list[str]
) -> None:
    type_, default, example, _ = line
    given = yaml.safe_load(example)
    assert list(given) == [key]
    results = (loaded(folder, base, group, given) for base in BASES)
    fitting = [base for base, result in zip(BASES, results, strict=True) if isinstance(result, Deployment)][:1]
    assert fitting
    literal = LITERAL.fullmatch(str(default))
    if literal is None:
        return
    written = yaml.safe_load(literal[1] or literal[2])
    if key in UNSET:
        assert written == UNSET[key]
        return
    for base in fitting:
        without = loaded(folder, base, group, {})
        assert loaded(folder, base, group, {key: written}) == without, f"{key}: {written} is not the default"
    for word in re.findall(r"`([a-z]+)`", str(type_)) if str(type_).startswith("`") else ():
        found = [loaded(folder, base, group, {key: word}) for base in fitting]
        assert any(isinstance(result, Deployment) for result in found) or "FOLDER" in type_, found[0]
