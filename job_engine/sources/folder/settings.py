"""The settings of a source of files: which ones, in which order, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from job_engine.place import (
    Place,
    RemotePath,
    StoreOptions,
    asked_again,
    below,
    is_same_system,
    place_of,
    place_of_plain,
    place_to_plain,
)
from job_engine.setting_keys import Change
from job_engine.setting_values import FolderKind as Overlapping
from job_engine.setting_values import is_true
from job_engine.sources.kinds import KindSettings, SourceEntry, SourceKind
from job_engine.sources.located import LIMITS, limit, read_options, read_place, refuse_no_path, refuse_other_decoding
from job_engine.yaml_document import Node
from querylang.dataclass import dataclass, field, replace
from querylang.errors import InputError
from runtime.file_forms import COMPRESSIONS, CSV_KEYS, CSV_LISTS, USUAL_CSV, CsvForm, csv_form, read_csv_setting
from runtime.policies.settings_text import parse_duration

# What the lister of files has to know of a source, as plain data.


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
    creates: whether the job makes a local folder that does not exist, and warns of an empty one
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
    creates: bool = False
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


_RECURSIVE, _PATTERN = "recursiveFileLookup", "pathGlobFilter"

ENDINGS: Mapping[str, tuple[str, ...]] = {
    "parquet": (".parquet",),
    "csv": (".csv", ".tsv"),
    "json": (".json", ".jsonl", ".ndjson"),
    "arrow": (".arrow", ".feather"),
}
"""By format: how the names of its files end, in lower case, without that of a compression."""


class FolderSourceKind(SourceKind):
    """Folders of files; see `SourceKind`."""

    title = "sources of files"
    keys: Mapping[str, Change] = {
        "path": Change.FIXED,
        "partition": Change.FIXED,
        "offset": Change.FIXED,
        "order": Change.FIXED,
        "min_age": Change.FREE,
        "after": Change.FREE,
        "unreadable": Change.FREE,
        "csv": Change.FIXED,
        "infer": Change.FREE,
        "create": Change.FREE,
    }
    options: Mapping[str, Change] = {
        **dict.fromkeys(LIMITS, Change.FREE),
        _PATTERN: Change.FIXED,
        _RECURSIVE: Change.FIXED,
    }
    usual: Mapping[str, str] = {"order": "time"}
    needed: Mapping[str, Any] = {"required": ["path"]}
    control_keys = ("path", "order", "min_age", "after", "unreadable")

    def read(self, entry: SourceEntry) -> KindSettings:
        """As `SourceKind.read`."""
        found = entry.found
        refuse_other_decoding(entry)
        refuse_no_path(entry)
        options = read_options(entry, self.options)
        is_recursive = options.get(_RECURSIVE, "").lower() == "true"
        creates = is_true(found, "create")
        place = read_place(entry, self.options, is_recursive=is_recursive, may_be_missing=creates)
        words = {word: word for word in ("time", "name")}
        order = found["order"].one_of(words) if "order" in found else None
        age = found["min_age"].parsed(parse_duration, "a length of time such as `5s`") if "min_age" in found else None
        after, archive = _after(found["after"], place, entry) if "after" in found else ("keep", None)
        stops = found["unreadable"].one_of({"discard": False, "stop": True}) if "unreadable" in found else None
        folder, store = ("", {}) if place is None else place_to_plain(place)
        own = ListedSource(
            name=entry.name,
            folder=folder,
            store=store,
            suffixes=tuple(end + packing for end in ENDINGS[entry.format] for packing in ("", *COMPRESSIONS)),
            pattern=options.get(_PATTERN),
            is_recursive=is_recursive,
            order=order or "time",
            min_age=age or 0,
            max_files=limit(options, LIMITS[0]),
            max_bytes=limit(options, LIMITS[1]),
            after=after,
            archive=None if archive is None else str(archive.resolve()),
            stops=stops or False,
            must_prove=not entry.is_control,
            creates=creates,
            has_clock=not entry.is_control,
        )
        return KindSettings(own, place, csv=_csv(entry))

    def placed(self, own: ListedSource, place: Place) -> ListedSource:
        """As `SourceKind.placed`."""
        folder, store = place_to_plain(place)
        return replace(own, folder=folder, store=store)

    def limits(self, own: ListedSource) -> Mapping[str, int | None]:
        """As `SourceKind.limits`."""
        return dict(zip(LIMITS, (own.max_files, own.max_bytes), strict=True))

    def asked_again(self, own: ListedSource, retry: float | None) -> ListedSource:
        """As `SourceKind.asked_again`."""
        return self.placed(own, asked_again(own.place, retry))


KIND = FolderSourceKind()


def _after(node: Node, place: Place | None, entry: SourceEntry) -> tuple[str, Place | None]:
    """What happens to a file that was read, and the archive."""
    word, _, folder = node.text().strip().partition(" ")
    folder = folder.strip()
    if word in ("keep", "delete") and not folder:
        return word, None
    if word != "archive" or not folder:
        node.expected("`keep`, `delete` or `archive FOLDER`")
        return "keep", None
    # in a store it is reached like the source's own path
    options = dict(place.options) if isinstance(place, RemotePath) else None
    archive = place_of(folder, entry.folders.base, options)
    if place is not None and not is_same_system(archive, place):
        node.wrong(f"'{entry.name}' can only archive files in the file system that they are in")
    entry.folders.add(Overlapping.ARCHIVE, entry.name, archive, node)
    return word, archive


def _csv(entry: SourceEntry) -> CsvForm:
    """How CSV files are written: a mapping, or text as on the command line."""
    node = entry.found.get("csv")
    if node is None:
        return USUAL_CSV
    if entry.format != "csv":
        node.wrong(f"'csv' is a setting of CSV; '{entry.name}' is {entry.found['format'].written()}")
        return USUAL_CSV
    settings: dict[str, object] = {}
    for key, own in node.mapping(CSV_KEYS).items():
        is_list = key in CSV_LISTS and own.items() != [own]
        try:
            settings[key] = read_csv_setting(key, [item.text() for item in own.items()] if is_list else own.text())
        except InputError as error:
            own.wrong(str(error))
    try:
        return csv_form(settings)
    except InputError as error:
        node.wrong(str(error))
    return USUAL_CSV
