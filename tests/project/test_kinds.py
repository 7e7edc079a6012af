"""A kind of source or sink is known in its own package, and hardly anywhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

import pytest

from job_engine.sinks.kinds import FORMATS as SINKS
from job_engine.sources.kinds import FORMATS as SOURCES
from tests.project.modules import FILES, imports

MOST = 4
"""Modules outside that may know a kind."""

TABLES: Mapping[str, Mapping[str, str]] = {
    "job_engine.sources.kinds": SOURCES,
    "job_engine.sinks.kinds": SINKS,
}
"""By module: which packages read or write which formats."""

OLD_LISTS = "job_engine.sources.old_lists"
"""It reads what releases wrote that had a key for each kind."""

HISTORY = "job_engine.job.history.table_run"
"""A history table is a folder or a table of Delta that no job reads as a stream: its files are found in the same way."""

PUT_BACK = "job_engine.job.upkeep.results"
"""It puts records back into files, as two formats of sources have them."""

LOOKUPS = {"job_engine.job.lookup_files", "ensue.event_tables"}
"""A table beside the stream may be one of Delta, of which one version is read."""

KNOWN = {
    "job_engine.sources.folder": {
        OLD_LISTS,
        HISTORY,
        PUT_BACK,
    },
    "job_engine.sources.table": {OLD_LISTS, HISTORY, *LOOKUPS},
    "job_engine.sources.topics": {OLD_LISTS},
    "job_engine.sinks.folder": {PUT_BACK},  # sinks have formats of the same names
    "job_engine.sinks.table": {"spark_backend.batch_drafts"},  # a method for users' own DataFrames
    "job_engine.sinks.topics": {"spark_backend.batch_drafts"},  # likewise
}
LIBRARIES = {
    "job_engine.kafka_": ("job_engine.sources.topics", "job_engine.sinks.topics", "spark_backend.batch_drafts"),
}
"""Beginnings of names of modules that several kinds have in common, and who may import them."""
"""Modules outside of each kind that import from it, or ask for its formats by name."""


def branches(source: str, formats: set[str]) -> Iterator[str]:
    """Where a module asks whether a source or sink has one of these formats."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare | ast.Match):
            asked = ast.unparse(node.left if isinstance(node, ast.Compare) else node.subject)
            words = {item.value for item in ast.walk(node) if isinstance(item, ast.Constant)}
            if re.search(r"source|sink|^(?:format_?|kind)$", asked) and words & formats:
                yield asked


def knowing(package: str) -> set[str]:
    table = next(name for name, formats in TABLES.items() if package in formats.values())
    formats = {name for name, own in TABLES[table].items() if own == package}
    outside = {name: path for name, path in FILES.items() if not f"{name}.".startswith(f"{package}.")}
    importing = {name for name in outside if any(target.startswith(f"{package}.") for target in imports()[name])}
    seeing = {name: path for name, path in outside.items() if name != table and table in imports()[name]}
    return importing | {name for name, path in seeing.items() if any(branches(path.read_text(), formats))}


def test_every_kind_is_counted() -> None:
    assert {*SOURCES.values(), *SINKS.values()} == set(KNOWN)


@pytest.mark.parametrize("package", KNOWN)
def test_a_kind_is_known_in_few_files_outside_of_its_package(package: str) -> None:
    assert knowing(package) == KNOWN[package]
    assert len(KNOWN[package]) <= MOST


def test_branches_are_noticed() -> None:
    assert list(branches('if sink.format == "kafka":\n    pass\n', {"kafka"})) == ["sink.format"]
    assert list(branches('x = found.sinks[a].format in ("csv", "kafka")', {"kafka"})) == ["found.sinks[a].format"]
    assert list(branches('match source.format:\n    case "kafka":\n        pass\n', {"kafka"})) == ["source.format"]
    assert not list(branches('if table.format == "kafka":\n    pass\n', {"kafka"}))


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_kinds_have_in_common_is_known_to_them_alone(library: str) -> None:
    importing = {name for name in FILES if any(target.startswith(library) for target in imports()[name])}
    assert [name for name in importing if not name.startswith((library, *LIBRARIES[library]))] == []
