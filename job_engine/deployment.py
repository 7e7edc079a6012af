"""What a deployment file says, once it is read: plain data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from job_engine.durable_files import JobFile
from job_engine.place import Place, asked_again, place_of
from job_engine.setting_keys import Engine, FixedValues
from job_engine.sinks.kinds import Sink, sink_kind
from job_engine.sources.kinds import kind_of
from job_engine.sources.source import Source
from job_engine.wire.clock_sources import Clock
from querylang.dataclass import dataclass, field, replace
from querylang.errors import FileErrors, InputError
from querylang.parameters import NOTHING, Given
from querylang.printable import LogForm
from querylang.source import Source as QueryText
from runtime.policies.settings_text import USUAL_TIMES, TimeForm

if TYPE_CHECKING:
    import yaml

    from job_engine.yaml_document import Node


# The settings of what can be watched of a job: its metrics and its log.

LOOPBACK = "127.0.0.1"

_ADDRESS = re.compile(r"(?:(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[\w.-]+)):)?(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True)
class Address:
    """Where metrics can be fetched."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_metrics(found: Mapping[str, Node]) -> Address | None:
    """The address for metrics; None = there are none, or a mistake was reported."""
    if "metrics" not in found:
        return None
    return found["metrics"].parsed(_address, "a port such as `9108`, or `HOST:PORT` such as `0.0.0.0:9108`")


def _address(text: str) -> Address | None:
    match = _ADDRESS.fullmatch(text)
    if match is None or not 1 <= int(match["port"]) <= 65_535:
        return None
    return Address(match["six"] or match["host"] or LOOPBACK, int(match["port"]))


def read_log(found: Mapping[str, Node]) -> LogForm:
    """The form of the log."""
    if "log" not in found:
        return LogForm.TEXT
    return found["log"].one_of({str(form): form for form in LogForm}) or LogForm.TEXT


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """A table of records from before those that the job itself reads.

    format: `parquet` or `delta`
    path: a folder
    source: the source whose records these are; None = event types say it
    event, type_field, source_time, arrival, times: as in `Source`
    outside_files: as in `DeltaSource`
    """

    format: str
    path: Place
    source: str | None = None
    event: str | None = None
    type_field: str | None = None
    source_time: str | None = None
    arrival: str | None = None
    times: TimeForm = USUAL_TIMES
    outside_files: bool = False


@dataclass(frozen=True, slots=True)
class LookupFile:
    """The file of a table beside the stream, or the folder of one of Delta.

    format: `csv`, `json`, `parquet`, `arrow` or `delta`; None = its name says it
    refresh: µs between two looks whether it has changed; None = it is looked at when the job starts
    outside_files: Delta: whether data files that are not in the table's folder are read
    """

    path: Place
    format: str | None = None
    refresh: int | None = None
    outside_files: bool = False


def _nobody_knows(written: str) -> Any:
    raise InputError(f"nobody knows what '{written}' stands for")


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment file without mistakes.

    file: its path; of a mapping that a program gave, a name for messages
    queries: query files and folders; of a mapping texts, too
    control: the control stream; None = there is none
    live: whether the control stream may change the queries
    history: the table that queries can begin with; None = there is none
    tables: by name, those beside the stream
    sinks: by name, of those in SINKS; those of channels by `channel_sink`
    buckets: number of parts that the keys are spread over
    trigger: µs between the starts of micro-batches
    checkpoint: the folder, or the place in a store, that the job continues from
    engine: which driver runs it
    forget_keys: µs without records after which a key is forgotten; None = never
    hide: fields that answers about the job do not show, `FIELD` or `TYPE.FIELD`
    kernels: an archive of compiled kernels for the executors; None = they compile their own
    spark: settings of Spark by their names there
    metrics: where its metrics can be fetched; None = it has none
    log: how a run writes its log
    parameters: values by query and instance, not yet compared with the queries
    mode: permissions of the checkpoint; None = 0700 for a new one
    retry: seconds that a broker or a store which does not answer is asked again; None = as is usual
    fixed: the settings beside its sources that may not change on a checkpoint
    environment: the variables that values were read from, and their values
    places: of a mapping, the keys that lead to what would be a line
    value_of: gives the value of a text with variables; raises InputError if one is not set
    """

    file: Path
    name: str
    queries: tuple[Path | QueryText, ...]
    sources: tuple[Source, ...]
    control: Source | None
    sinks: Mapping[str, Sink]
    clock: Clock
    buckets: int
    trigger: int
    checkpoint: Place
    engine: Engine = Engine.SPARK
    parameters: Given = NOTHING
    forget_keys: int | None = None
    hide: tuple[str, ...] = ()
    kernels: Path | None = None
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    metrics: Address | None = None
    log: LogForm = LogForm.TEXT
    mode: int | None = None
    retry: float | None = None
    live: bool = False
    history: HistoryTable | None = None
    tables: Mapping[str, LookupFile] = field(default_factory=dict)
    fixed: FixedValues = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    places: Mapping[int, str] = field(default_factory=dict, repr=False)
    value_of: Callable[[str], Any] = field(default=_nobody_knows, repr=False, compare=False)

    @property
    def all_sources(self) -> list[Source]:
        """The sources in the order of the union, for good: by name, the control stream last."""
        control = [] if self.control is None else [self.control]
        return [*sorted(self.sources, key=lambda source: source.name), *control]


def shared_streams(deployment: Deployment, *, asks: bool) -> Iterator[tuple[str, str]]:
    """The name of each sink whose messages a source reads, and what to say of it.

    A job that reads what it writes would feed itself, and never end with `--once`.

    asks: as of `Stream.shared`
    """
    for source in deployment.all_sources:
        read = kind_of(source.format).stream(source.own) if source.own is not None else None
        reader = "the control stream" if source is deployment.control else f"the source '{source.name}'"
        for name, sink in deployment.sinks.items():
            written = sink_kind(sink.format).stream(sink.own)
            for what in read.shared(written, asks=asks) if read is not None and written is not None else ():
                yield (
                    name,
                    (
                        f"{what} is read by {reader} and written by the sink '{name}': the job would read its own"
                        " results. Let the sink write to another one"
                    ),
                )


# Delta tables that a deployment calls by their names in a catalog, and where they are.
#
# Spark's catalog is asked when a job starts. Its answer is kept in the checkpoint, so that other
# commands need no Spark.


def named_tables(deployment: Deployment) -> dict[str, str]:
    """Names of tables by what they are for."""
    return {what: item.table for what, item in _tables(deployment).items()}


def _tables(deployment: Deployment) -> dict[str, Source | Sink]:
    """What has the name of a table, by what it is for."""
    found: dict[str, Source | Sink] = {f"the source '{source.name}'": source for source in deployment.sources}
    found |= {f"the sink '{name}'": sink for name, sink in deployment.sinks.items()}
    return {what: item for what, item in found.items() if item.table}


def with_places(deployment: Deployment, places: Mapping[str, str]) -> Deployment:
    """The deployment with the places of tables that are known, by their names."""
    found = {name: asked_again(place_of(text), deployment.retry) for name, text in places.items()}
    return replace(
        deployment,
        sources=tuple(
            _placed(source, found[source.table]) if source.table in found else source for source in deployment.sources
        ),
        sinks={
            name: replace(sink, place=found[sink.table]) if sink.table in found else sink
            for name, sink in deployment.sinks.items()
        },
    )


def _placed(source: Source, place: Place) -> Source:
    return replace(source, place=place, own=kind_of(source.format).placed(source.own, place))


def unplaced(deployment: Deployment) -> list[str]:
    """The names of tables whose places are not known."""
    return [item.table for item in _tables(deployment).values() if item.place is None]


def kept_places(deployment: Deployment) -> dict[str, str]:
    """What the catalog answered when the job last ran."""
    if not named_tables(deployment):
        return {}
    try:
        return _file(deployment).readable() or {}
    except ConnectionError:
        return {}


def keep_places(deployment: Deployment) -> None:
    """Keep in the checkpoint where its tables are."""
    places = {item.table: item.place for item in _tables(deployment).values() if item.place is not None}
    if places:
        _file(deployment).write({name: str(place.resolve()) for name, place in places.items()})


def _file(deployment: Deployment) -> JobFile[dict[str, str]]:
    return JobFile(deployment.checkpoint / "ensue" / "tables.json", dict[str, str], text=_text)


def _text(places: Mapping[str, str]) -> str:
    return json.dumps(places, indent=1, sort_keys=True)


# A deployment that a program gives as a mapping: read like a file, with places that are keys.
#
# Each value gets a line of its own, as if it were written in a file. Messages then name the keys
# that lead to that line, such as `sources.cards.format`.

NAME = "the deployment"
"""Its name in messages, where a file has its path."""

DEEPEST = 100
"""How deep lists and mappings may be nested."""

_FLOATS = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}

_TAG = "tag:yaml.org,2002:"


@dataclass(slots=True)
class GivenMapping:
    """A mapping of a program as a document.

    places: by line, from 1, the keys that lead to the value
    """

    root: yaml.Node
    places: Mapping[int, str]


def document_of(given: Mapping[str, Any]) -> GivenMapping:
    """The document. Raises FileErrors for values that no file could have."""
    reader = _Reader()
    root = reader.node(given, "", 0)
    with places_in_words(reader.places):
        if reader.wrong:
            raise FileErrors(NAME, reader.wrong)
    return GivenMapping(root, reader.places)


@contextmanager
def places_in_words(places: Mapping[int, str]) -> Iterator[None]:
    """Raise mistakes in the mapping with keys in place of lines."""
    try:
        yield
    except FileErrors as error:
        if error.path != NAME or not places:
            raise
        raise FileErrors(
            NAME, [(None, _with_place(places.get(line or 0, ""), text)) for line, text in error.found]
        ) from (error.__cause__)


def _with_place(place: str, text: str) -> str:
    return f"{place}: {text}" if place else text


@dataclass(slots=True)
class _Reader:
    places: dict[int, str] = field(default_factory=dict)
    wrong: list[tuple[int | None, str]] = field(default_factory=list)

    def node(self, value: Any, place: str, depth: int) -> yaml.Node:
        """The node of a value at a place."""
        import yaml

        line = len(self.places) + 1
        self.places[line] = place
        mark = yaml.Mark(NAME, 0, line - 1, 0, None, 0)
        if depth > DEEPEST:
            self.wrong.append((line, f"is nested more than {DEEPEST} deep"))
            return _scalar("null", "", mark)
        match value:
            case Mapping():
                entries = [
                    (_scalar("str", str(key), mark), self.node(inner, f"{place}.{key}".lstrip("."), depth + 1))
                    for key, inner in value.items()
                ]
                for key, inner in entries:
                    key.start_mark = inner.start_mark
                return yaml.MappingNode(f"{_TAG}map", entries, mark, mark)
            case list() | tuple():
                items = [self.node(inner, f"{place}[{number}]", depth + 1) for number, inner in enumerate(value)]
                return yaml.SequenceNode(f"{_TAG}seq", items, mark, mark)
            case None:
                return _scalar("null", "", mark)
            case bool():
                return _scalar("bool", str(value).lower(), mark)
            case int():
                return _scalar("int", str(value), mark)
            case float():
                return _scalar("float", _FLOATS.get(repr(value), repr(value)), mark)
            case str():
                return _scalar("str", value, mark)
            case PathLike():
                return _scalar("str", str(fspath(value)), mark)
        self.wrong.append(
            (line, f"is of the type {type(value).__name__}; expected text, a number, a list or a mapping")
        )
        return _scalar("null", "", mark)


def _scalar(kind: str, value: str, mark: yaml.Mark) -> yaml.ScalarNode:
    import yaml

    return yaml.ScalarNode(f"{_TAG}{kind}", value, mark, mark)
