"""What the lister and workers have to know of a Delta source, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from job_engine.places.place import Place, StoreOptions, place_of_plain


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
