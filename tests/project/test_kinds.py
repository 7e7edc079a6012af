"""A kind of sink is known in its own package, and hardly anywhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from spark_backend.sinks.kinds import FORMATS
from tests.project.modules import FILES, IMPORTS

TABLE = "spark_backend.sinks.kinds"

MOST = 3
"""Modules outside that may know a kind."""

KNOWN = {
    "spark_backend.sinks.folder": set[str](),
    "spark_backend.sinks.table": {"spark_backend.frames.delta_batch"},
    "spark_backend.sinks.topics": {"spark_backend.frames.kafka_batch"},
}
"""Modules outside of each kind that import from it, or ask for its formats by name: methods for users' own DataFrames."""


def branches(source: str, formats: set[str]) -> Iterator[str]:
    """Where a module asks whether a sink has one of these formats."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare | ast.Match):
            asked = ast.unparse(node.left if isinstance(node, ast.Compare) else node.subject)
            words = {item.value for item in ast.walk(node) if isinstance(item, ast.Constant)}
            if re.search(r"sink|^(?:format_?|kind)$", asked) and words & formats:
                yield asked


def knowing(package: str) -> set[str]:
    formats = {name for name, own in FORMATS.items() if own == package}
    outside = {name: path for name, path in FILES.items() if not f"{name}.".startswith(f"{package}.")}
    importing = {name for name in outside if any(target.startswith(f"{package}.") for target in IMPORTS[name])}
    seeing = {name: path for name, path in outside.items() if name != TABLE and TABLE in IMPORTS[name]}
    return importing | {name for name, path in seeing.items() if any(branches(path.read_text(), formats))}


def test_every_kind_is_counted() -> None:
    assert set(FORMATS.values()) == set(KNOWN)


@pytest.mark.parametrize("package", KNOWN)
def test_a_kind_of_sink_is_known_in_few_files_outside_of_its_package(package: str) -> None:
    assert knowing(package) == KNOWN[package]
    assert len(KNOWN[package]) <= MOST


def test_branches_are_noticed() -> None:
    assert list(branches('if sink.format == "kafka":\n    pass\n', {"kafka"})) == ["sink.format"]
    assert list(branches('x = found.sinks[a].format in ("csv", "kafka")', {"kafka"})) == ["found.sinks[a].format"]
    assert list(branches('match sink.format:\n    case "kafka":\n        pass\n', {"kafka"})) == ["sink.format"]
    assert not list(branches('if source.format == "kafka":\n    pass\n', {"kafka"}))
