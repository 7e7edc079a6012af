"""The settings of a Delta source; what is wrong with them is reported, with its line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from job_engine.place import Place, StoreOptions, asked_again, place_of_plain, place_to_plain
from job_engine.setting_keys import Change
from job_engine.setting_values import is_true, read_table_name, refuse_unknown_settings
from job_engine.sources.kinds import KindSettings, SourceEntry, SourceKind
from job_engine.sources.located import LIMITS, limit, read_options, read_place, refuse_no_path, refuse_other_decoding
from querylang.dataclass import dataclass, field, replace
from runtime.instants import parse_moment

# What the lister and workers have to know of a Delta source, as plain data.


@dataclass(frozen=True, slots=True)
class DeltaSource:
    """A table that is read.

    name: of the source
    folder: the table's absolute path, or its URI
    arrival: the column of arrival times
    start: where a new job begins: `earliest`, `latest`, a version, or a time in µs as `@123`
    adds_columns: whether the table may get new columns
    skips_changes: whether commits that change or delete rows are passed over
    outside_files: whether data files that are not in the table's folder are read
    max_files, max_bytes: most of a micro-batch; None = all
    store: how its store is reached
    """

    name: str
    folder: str
    arrival: str
    start: str = "earliest"
    adds_columns: bool = False
    skips_changes: bool = False
    outside_files: bool = False
    max_files: int | None = None
    max_bytes: int | None = None
    store: StoreOptions = field(default_factory=dict, repr=False)

    @property
    def place(self) -> Place:
        """The folder."""
        return place_of_plain((self.folder, self.store))


_LONGEST_VERSION = 18
"""Digits."""


class TableSourceKind(SourceKind):
    """Tables of Delta; see `SourceKind`."""

    title = "Delta sources"
    keys: Mapping[str, Change] = {
        "path": Change.FIXED,
        "table": Change.FIXED,
        "partition": Change.FIXED,
        "offset": Change.FIXED,
        "start": Change.FIXED,
        "schema_changes": Change.FREE,
        "skip_changes": Change.FREE,
        "outside_files": Change.FREE,
    }
    options: Mapping[str, Change] = dict.fromkeys(LIMITS, Change.FREE)
    usual: Mapping[str, str] = {"start": "earliest"}
    needed: Mapping[str, Any] = {"oneOf": [{"required": ["path"]}, {"required": ["table"]}]}

    def read(self, entry: SourceEntry) -> KindSettings:
        """As `SourceKind.read`."""
        found, name = entry.found, entry.name
        refuse_other_decoding(entry)
        refuse_no_path(entry)
        options = read_options(entry, self.options)
        place, table = read_place(entry, self.options), read_table_name(found)
        if place is not None:
            refuse_unknown_settings(found, place)
        if "arrival" not in found:
            entry.node.wrong(f"'{name}' has no 'arrival': the column that says when a record arrived")
            return KindSettings(None, place, table)
        words = {"refuse": False, "add_columns": True}
        changes = found["schema_changes"].one_of(words) if "schema_changes" in found else None
        start = found["start"].parsed(_start, "`earliest`, `latest`, a version or a time") if "start" in found else None
        own = DeltaSource(
            name,
            "",
            found["arrival"].text(),
            start=start or "earliest",
            adds_columns=changes or False,
            skips_changes=is_true(found, "skip_changes"),
            outside_files=is_true(found, "outside_files"),
            max_files=limit(options, LIMITS[0]),
            max_bytes=limit(options, LIMITS[1]),
        )
        return KindSettings(own if place is None or table else self.placed(own, place), place, table)

    def placed(self, own: DeltaSource, place: Place) -> DeltaSource:
        """As `SourceKind.placed`."""
        folder, store = place_to_plain(place)
        return replace(own, folder=folder, store=store)

    def limits(self, own: DeltaSource) -> Mapping[str, int | None]:
        """As `SourceKind.limits`."""
        return dict(zip(LIMITS, (own.max_files, own.max_bytes), strict=True))

    def asked_again(self, own: DeltaSource, retry: float | None) -> DeltaSource:
        """As `SourceKind.asked_again`."""
        return self.placed(own, asked_again(own.place, retry)) if own.folder else own


KIND = TableSourceKind()


def _start(text: str) -> str | None:
    if text in ("earliest", "latest") or (text.isascii() and text.isdigit() and len(text) <= _LONGEST_VERSION):
        return text
    moment = parse_moment(text)
    return None if moment is None else f"@{moment}"
