"""Whether the driver's own logs in a checkpoint can be read.

Spark reports a damaged one without its name, or as a mistake in JSON.
"""

from __future__ import annotations

from job_engine.document.setting_keys import Engine
from job_engine.places.place import Place, names_in
from job_engine.sources.listing.batch_log import driver_files
from runtime.json_reader import DamagedJson, json_of_text, part_of

_LATEST = 2
"""So many of the newest entries of a log are read when a job starts."""

_RESTORE = "restore the whole checkpoint from a copy, or choose another one"


def refuse_damaged_logs(checkpoint: Place, engine: Engine) -> None:
    """Raise InputError for a file of the driver's logs that a restart reads and that is damaged."""
    files = driver_files(checkpoint)
    _refuse_damaged(files.folder / "metadata", 0, _RESTORE)
    for file in _newest(files.offsets):
        _refuse_damaged(file, 1, _RESTORE)
    # only Spark keeps the states of the micro-batches before
    repeated = "delete it, and its micro-batch is repeated" if engine is Engine.SPARK else _RESTORE
    for file in _newest(files.commits):
        _refuse_damaged(file, 1, repeated)


def _newest(log: Place) -> list[Place]:
    entries = [name for name in names_in(log) if name.isdecimal()]
    return [log / name for name in sorted(entries, key=int)[-_LATEST:]]


def _refuse_damaged(file: Place, first: int, way_out: str) -> None:
    """The lines of an entry from `first` on are JSON, or `-` for a source without an offset."""
    try:
        with part_of(file, f"To continue, {way_out}"):
            _parse(_lines(file)[first:])
    except FileNotFoundError:
        return


def _lines(file: Place) -> list[str]:
    try:
        return file.read_text("utf-8").splitlines()
    except (FileNotFoundError, ConnectionError):
        raise
    except OSError as error:
        raise DamagedJson(f"it cannot be read: {error.strerror or error}") from error


def _parse(lines: list[str]) -> None:
    if not lines:
        raise ValueError("it ends too early")
    for line in lines:
        if line != "-":
            json_of_text(line, object)
