"""Spark's settings in a private file: every user of a machine sees command lines."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from job_engine.durable_files import new_file

SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
"""The variable with what users want `spark-submit` to be given."""

_OPTION = "--properties-file"
_DEFAULTS = "spark-defaults.conf"


def submit_arguments(settings: Mapping[str, str], file: Path) -> list[str]:
    """Arguments of `spark-submit`, which reads the settings from this file.

    It reads one such file, so that a user's own, or Spark's defaults, come first in it; settings
    that `PYSPARK_SUBMIT_ARGS` has as options still win.
    """
    submitted = shlex.split(os.environ.get(SUBMIT_ARGS, "pyspark-shell"))
    users = Path(submitted[submitted.index(_OPTION) + 1]) if _OPTION in submitted[:-1] else _defaults()
    if _OPTION in submitted[:-1]:
        at = submitted.index(_OPTION)
        del submitted[at : at + 2]
    before = users.read_bytes() if users is not None and users.is_file() else b""
    own = "".join(f"{_escaped(key, ' :=')}={_escaped(value)}\n" for key, value in settings.items())
    with new_file(file, 0o600) as written:
        written.write(before.rstrip(b"\n") + b"\n" + own.encode("ascii"))
    return [_OPTION, str(file), *submitted]


def _defaults() -> Path | None:
    """Where Spark has its defaults; None = it is not known."""
    folder, home = os.environ.get("SPARK_CONF_DIR"), os.environ.get("SPARK_HOME")
    if folder:
        return Path(folder) / _DEFAULTS
    if home:
        return Path(home) / "conf" / _DEFAULTS
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).parent / "conf" / _DEFAULTS


def _escaped(text: str, more: str = "") -> str:
    """A text as Java's property files have it; a space at its beginning is escaped."""
    found = "".join(map(_letter, text))
    for sign in more:
        found = found.replace(sign, f"\\{sign}")
    return f"\\{found}" if found.startswith(" ") and not more else found


_NAMED = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def _letter(letter: str) -> str:
    if letter in _NAMED:
        return _NAMED[letter]
    if " " <= letter <= "~":
        return letter
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
