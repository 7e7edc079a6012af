"""YAML files: a list of rows, or a mapping with `rows`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from querylang.errors import InputError
from runtime.reading.formats.mappings import of_mappings
from runtime.reading.formats.raw_table import RawTable, one_line


def read_yaml(path: Path, name: str, _few_values: Collection[str]) -> Iterator[RawTable]:
    """The whole file as one table."""
    import yaml

    try:
        document = yaml.safe_load(path.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise InputError(f"{path}: is not YAML: {one_line(error)}") from error
    except RecursionError as error:
        raise InputError(f"{path}: is nested too deeply") from error
    except ValueError as error:
        raise InputError(f"{path}: has a date or number that does not exist: {one_line(error)}") from error
    rows = document.get("rows") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        raise InputError(f"{path}: a YAML table is a list of rows, or a mapping with `rows`")
    yield of_mappings(rows, name)
