"""Read the values of parameters: a mapping, a YAML file, or YAML text.

`querylang.parameters` says how values are nested.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from querylang.errors import InputError
from querylang.parameters import NOTHING, Given

Parameters = Mapping[str, Any] | str | Path | Given | None
SUFFIXES = (".yaml", ".yml", ".json")


def read_parameters(given: Parameters) -> Given:
    """Values by query and instance; a mistake is a FileErrors with its line.

    A text is a path if it ends with `SUFFIXES` or names a file or a pipe. What was read stays it.
    """
    match given:
        case None:
            return NOTHING
        case Given():
            return given
        case Mapping():
            return Given(given)
        case str() if not given.endswith(SUFFIXES) and not _is_file(given):
            return _read_text(given, NOTHING.origin)
        case str() | Path():
            pass
        case _:
            raise InputError(f"parameters: {type(given).__name__} is neither a mapping nor a path nor text")
    from runtime.yaml_reader import file_text

    return _read_text(file_text(Path(given), may_be_pipe=True), str(given))


def _read_text(text: str, origin: str) -> Given:
    from job_engine.document.yaml_document import Mistakes, read_document, read_given

    mistakes = Mistakes(origin, os.environ)
    found = read_given(read_document(text, mistakes, NOTHING.origin, "values are written like `{least: 10.0}`"))
    mistakes.raise_if_any()
    return found


def _is_file(text: str) -> bool:
    try:
        return Path(text).exists() and not Path(text).is_dir()
    except (OSError, ValueError):  # too long for a path, or not a path
        return False
