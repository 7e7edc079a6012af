"""YAML files: a list of rows, or a mapping with `rows`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from querylang.errors import FileErrors, InputError
from runtime.reading.formats.asked import Asked
from runtime.reading.formats.mappings import of_mappings
from runtime.reading.formats.raw_table import RawTable
from runtime.yaml_reader import YamlError, file_text, read_nodes, value_of


def read_yaml(path: Path, name: str, asked: Asked) -> Iterator[RawTable]:
    """The whole file as one table; raises FileErrors with all values that cannot be read."""
    found: list[tuple[int | None, str]] = []
    try:
        root = read_nodes(file_text(path))
    except YamlError as error:
        raise FileErrors(str(path), [(error.line, error.message)]) from error
    document = None if root is None else value_of(root, lambda line, message: found.append((line, message)))
    if found:
        raise FileErrors(str(path), found)
    rows = document.get("rows") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise InputError(f"{path}: a YAML table is a list of rows, or a mapping with `rows`")
    yield of_mappings(rows, name, asked)
