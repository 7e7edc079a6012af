"""What the lister of files has to know of a source, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from job_engine.places.place import Place, StoreOptions, below, place_of_plain


@dataclass(frozen=True, slots=True)
class ListedSource:
    """A source of files.

    name: of the source
    folder: its absolute path, or its URI
    store: how the store of a URI is reached
    suffixes: how the names of its files end, in lower case
    pattern: which names are read, `{a,b}` included; None = those with a suffix of the format
    is_recursive: whether files in all folders below are read
    order: what new files are sorted by: `time` of modification, then natural name; or `name`
    min_age: µs since the last modification before a file is read
    max_files, max_bytes: most of a micro-batch; None = all
    after: what happens to a file once its micro-batch is committed: `keep`, `archive`, `delete`
    archive: the folder for `archive`; None = there is none
    stops: whether a file that is not a table stops the job
    must_prove: whether it does so until the source has brought a record
    has_clock: whether time waits for its files, and goes by when their records arrive
    """

    name: str
    folder: str
    suffixes: tuple[str, ...]
    pattern: str | None = None
    is_recursive: bool = False
    order: str = "time"
    min_age: int = 0
    max_files: int | None = None
    max_bytes: int | None = None
    after: str = "keep"
    archive: str | None = None
    stops: bool = False
    must_prove: bool = True
    has_clock: bool = True
    store: StoreOptions = field(default_factory=dict, repr=False)

    @property
    def place(self) -> Place:
        """The folder."""
        return place_of_plain((self.folder, self.store))

    def file(self, path: str) -> Place:
        """A path below the folder in full; raises OutsidePath."""
        return below(self.place, path)

    def archived(self, path: str) -> Place:
        """Where the file of a path is archived."""
        assert self.archive is not None
        return below(place_of_plain((self.archive, self.store)), path)
