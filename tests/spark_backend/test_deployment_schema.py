"""The JSON schema of deployment files. `same_verdict` compares it with the reader in the tests of the reader."""

from __future__ import annotations

import re
from collections.abc import Iterator

import jsonschema
import pytest

from tests.project.repository import tracked_files
from tests.support.schema_verdicts import SCHEMA, complaints

GOOD = """\
name: cards
queries: [cards.query]
sources: {cards: {format: csv, path: in}}
sinks: {matches: {format: parquet, path: out}}
checkpoint: state
"""


def examples() -> Iterator[str]:
    """The deployment files of the documents."""
    for path in tracked_files():
        if path.suffix == ".md" and path.name != "CHANGELOG.md":
            blocks = re.findall(r"^```yaml[^\n]*\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)
            yield from (text for text in blocks if re.search("^sources:", text, re.MULTILINE))


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("text", list(examples()))
def test_an_example_of_the_documents_is_accepted(text: str) -> None:
    assert complaints(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "trigger: 1 min 30 s",
        "trigger: 0.5S",
        "trigger: '${TRIGGER}'",
        "buckets: '${BUCKETS}'",
        "metrics: 9108",
        "metrics: 0.0.0.0:9108",
        "log: json",
        "idle: none",
    ],
)
def test_values_may_be_short_or_from_the_environment(text: str) -> None:
    assert complaints(f"{GOOD}{text}\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "trigger: soon",
        "trigger: 5",
        "buckets: 0",
        "metrics: 0",
        "log: xml",
        "idle: never",
        "bucket: 4",
        "sinks: {matchs: {format: parquet, path: out}}",
        "sources: {}",
        "sources: {a: {format: parquet}}",
        "sources: {a: {format: xml, path: in}}",
        "sources: {a: {format: kafka, options: {}}}",
        "sources: {a: {format: kafka, path: in, options: {}, event: A}}",
        "sources: {a: {format: csv, path: in, start: latest}}",
        "sources: {a: {format: csv, path: in, event: A, type_field: b}}",
        "control: {format: json, path: in, event: A}",
    ],
)
def test_a_mistake_is_marked(text: str) -> None:
    assert complaints(f"{GOOD}{text}\n") != []


def test_every_key_has_a_description() -> None:
    for group in (SCHEMA, *SCHEMA["$defs"].values()):
        for name, value in group["properties"].items():
            assert value["description"].count("Example: ") == 1, name
