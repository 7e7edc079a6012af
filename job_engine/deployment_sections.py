"""The sections of a deployment file: sources, sinks, and what it asks of Spark."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from job_engine import setting_keys
from job_engine.deployment import HistoryTable, LookupFile
from job_engine.setting_values import (
    UNSUPPORTED,
    Folders,
    duration,
    idle,
    is_true,
    limit_ahead,
    ordering_text,
    read_ordering,
    refuse_unknown_settings,
    size,
    store_options,
    value_of,
)
from job_engine.sinks.kinds import FORMATS as SINK_FORMATS
from job_engine.sinks.kinds import MATCHES, SINKS, Layout, Sink, SinkEntry, SinkKind, sink_kind, sink_kinds
from job_engine.sinks.names import channel_sink
from job_engine.sources.kinds import FORMATS as SOURCE_FORMATS
from job_engine.sources.kinds import KindSettings, SourceEntry, SourceKind, control_keys, kind_of, kinds, source_keys
from job_engine.sources.source import Source
from job_engine.yaml_document import Node
from querylang.errors import did_you_mean, listed, near_file
from runtime.file_forms import USUAL_CSV
from runtime.policies.settings_text import PER_SECOND, USUAL_TIMES, TimeForm, read_pattern

# The sources of a deployment file, its control stream, and the table of its history.


def read_sources(node: Node, folders: Folders) -> tuple[Source, ...]:
    """The sources, in the order of their names; mistakes are reported."""
    entries = node.mapping()
    if not entries and not node.mistakes.found:
        node.wrong("'sources' is empty")
    if "control" in entries:
        entries["control"].wrong("a source cannot be named 'control'; the control stream is a setting beside 'sources'")
    return tuple(_source(name, entry, folders) for name, entry in sorted(entries.items()))


def read_control(node: Node, folders: Folders) -> Source:
    """The control stream: files or messages with control events."""
    found = node.mapping(control_keys())
    format_ = _format(
        "control", node, found, [name for name in SOURCE_FORMATS if kind_of(name).control_keys is not None]
    )
    if format_ is None:
        return Source("control", "", None)
    return _of_kind(SourceEntry("control", format_, node, found, folders, is_control=True))


HISTORY_FORMATS: Mapping[str, tuple[str, ...]] = {"parquet": (), "delta": ("outside_files",)}
"""By format of the history: the keys that only such a table has."""

HISTORY_WORDS = ("source", "event", "type_field", "source_time", "arrival")


def read_history(node: Node, folders: Folders, sources: Collection[str]) -> HistoryTable | None:
    """The table of the history; None = mistakes were reported. `sources`: the names of all."""
    found = node.mapping(setting_keys.HISTORY_KEYS)
    for key in ("format", "path"):
        if key not in found:
            node.wrong(f"'history' has no '{key}'")
    if "event" in found and "type_field" in found:
        found["type_field"].wrong("'history' has both 'event' and 'type_field'; expected one of them")
    words = {key: found[key].text() for key in HISTORY_WORDS if key in found}
    if "source" in found and words["source"] not in sources:
        hint = did_you_mean(words["source"], sorted(sources))
        found["source"].wrong(f"there is no source '{words['source']}' whose records these could be{hint}")
    if "format" not in found or "path" not in found:
        return None
    format_ = found["format"].one_of({word: word for word in HISTORY_FORMATS}, unsupported=UNSUPPORTED)
    path = folders.place(found["path"], store_options(found))
    if format_ is not None and "outside_files" in found and "outside_files" not in HISTORY_FORMATS[format_]:
        found["outside_files"].wrong("'outside_files' is a setting of Delta tables")
    outside = is_true(found, "outside_files")
    return HistoryTable(format_ or "", path, **words, times=_times(found), outside_files=outside)


LOOKUP_FORMATS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("csv", "json", "parquet", "arrow"), ()),
    "delta": ("outside_files",),
}
"""Of tables beside the stream, as `HISTORY_FORMATS`."""


def read_tables(node: Node, folders: Folders) -> dict[str, LookupFile]:
    """The files of the tables beside the stream, by name; mistakes are reported."""
    return {name: found for name, entry in node.mapping().items() if (found := _lookup_file(name, entry, folders))}


def _lookup_file(name: str, node: Node, folders: Folders) -> LookupFile | None:
    found = node.mapping(setting_keys.TABLE_KEYS)
    if "path" not in found:
        node.wrong(f"the table '{name}' has no 'path'")
        return None
    words = {word: word for word in LOOKUP_FORMATS}
    format_ = found["format"].one_of(words, unsupported=UNSUPPORTED) if "format" in found else None
    path = folders.place(found["path"], store_options(found))
    own = () if format_ is None else LOOKUP_FORMATS[format_]
    if own:
        refuse_unknown_settings(found, path)
    elif format_ is not None and "outside_files" in found:
        found["outside_files"].wrong("'outside_files' is a setting of Delta tables")
    refresh = duration(found, "refresh", None)
    return LookupFile(path, format_, refresh, outside_files=is_true(found, "outside_files"))


def _source(name: str, node: Node, folders: Folders) -> Source:
    found = node.mapping(source_keys())
    _refuse_two_types(name, found)
    format_ = _format(name, node, found, SOURCE_FORMATS)
    entry = None if format_ is None else SourceEntry(name, format_, node, found, folders)
    source = replace(
        Source(name, "", None) if entry is None else _of_kind(entry),
        idle=idle(found),
        ahead=limit_ahead(found),
        max_record=size(found, "max_record"),
        times=_times(found),
        infers=is_true(found, "infer"),
    )
    if "ordering" not in found:
        return source
    ordering = read_ordering(found["ordering"])
    fixed = {**source.fixed, "ordering": setting_keys.fixed_value(found["ordering"], ordering_text(ordering))}
    return replace(source, ordering=ordering, ordering_line=found["ordering"].line, fixed=fixed)


TYPE_KEYS = ("type", "type_field")
"""Two words for one setting."""


def _refuse_two_types(name: str, found: Mapping[str, Node]) -> None:
    """Report several keys that say the event type of records."""
    first, *others = [key for key in ("event", *TYPE_KEYS) if key in found] or [""]
    for key in others:
        found[key].wrong(f"'{name}' has both '{first}' and '{key}'; expected one of them")


def _format(name: str, node: Node, found: Mapping[str, Node], formats: Collection[str]) -> str | None:
    """The format; None = mistakes were reported."""
    if "format" not in found:
        node.wrong(f"'{name}' has no 'format'")
        return None
    unsupported = (*UNSUPPORTED, *(other for other in SOURCE_FORMATS if other not in formats))
    return found["format"].one_of({word: word for word in formats}, unsupported=unsupported)


def _of_kind(entry: SourceEntry) -> Source:
    """What all sources have in common, and what the kind of this one has read."""
    kind, found = kind_of(entry.format), entry.found
    _refuse_keys_of_other_sources(kind, found)
    own = kind.read(entry)
    columns = ("event", *TYPE_KEYS, "source_time", "partition", "offset", *(() if kind.tells_arrival else ("arrival",)))
    words = {
        key: found[key].text() for key in columns if key in found and key in (*setting_keys.SOURCE_KEYS, *kind.keys)
    }
    return Source(
        entry.name,
        entry.format,
        own.own,
        own.place,
        own.table,
        event=words.get("event"),
        type_field=words.get("type", words.get("type_field")),
        source_time=words.get("source_time"),
        arrival=words.get("arrival"),
        partition=words.get("partition"),
        offset=words.get("offset"),
        csv=own.csv or USUAL_CSV,
        fixed=_fixed(found, kind, own),
    )


def _refuse_keys_of_other_sources(kind: SourceKind, found: Mapping[str, Node]) -> None:
    for key in found:
        if key not in setting_keys.SOURCE_KEYS and key not in kind.keys:
            owners = listed(other.title for other in kinds() if key in other.keys)
            found[key].wrong(f"'{key}' is not a setting of {kind.title}; {owners} have it")


def _fixed(found: Mapping[str, Node], kind: SourceKind, own: KindSettings) -> dict[str, setting_keys.FixedValue]:
    """The fixed settings of a source, with its options that choose records."""
    fixed = setting_keys.fixed_values(found, source_keys())
    if "type" in fixed:
        fixed["type_field"] = fixed.pop("type")  # two words for one setting
    for key, usual in kind.usual.items():
        if key in fixed and fixed[key].text == usual:
            del fixed[key]  # the same as none
    if "path" in fixed and own.place is not None:
        fixed["path"] = setting_keys.fixed_value(found["path"], str(own.place.resolve()))
    if "options" not in found:
        return fixed
    options = found["options"].mapping()
    chosen = {key for key, change in kind.options.items() if change is setting_keys.Change.FIXED}
    return fixed | {f"options.{key}": setting_keys.fixed_value(node) for key, node in options.items() if key in chosen}


def _times(found: Mapping[str, Node]) -> TimeForm:
    unit = found["time_unit"].one_of({name: name for name in PER_SECOND}) if "time_unit" in found else None
    pattern = value_of(found["time_format"], read_pattern) if "time_format" in found else None
    return TimeForm(unit or USUAL_TIMES.unit, pattern)


# The sinks of a deployment file, and the places of its channels.

_SINK_KEYS = ("format", "options")
"""The keys of all sinks."""


def sink_keys() -> dict[str, setting_keys.Change]:
    """All keys that a sink may have, of whatever kind it is."""
    return dict.fromkeys((*_SINK_KEYS, *(key for kind in sink_kinds() for key in kind.keys)), setting_keys.Change.FREE)


def read_sinks(node: Node, folders: Folders) -> dict[str, Sink]:
    """The sinks by name; mistakes are reported."""
    entries = node.mapping(SINKS)
    if not entries and not node.mistakes.found:
        node.wrong(f"'sinks' is empty; expected some of {listed(SINKS)}")
    found = {name: _sink(name, entry, folders) for name, entry in entries.items()}
    return {name: sink for name, sink in found.items() if sink is not None}


def read_channels(node: Node, folders: Folders) -> dict[str, Sink]:
    """The sinks of channels by `channel_sink` of their names; mistakes are reported."""
    entries = node.mapping()
    found = {channel_sink(name): _sink(name, entry, folders, is_channel=True) for name, entry in entries.items()}
    return {name: sink for name, sink in found.items() if sink is not None}


def _sink(name: str, node: Node, folders: Folders, *, is_channel: bool = False) -> Sink | None:
    """The sink; None = mistakes were reported."""
    found = node.mapping(sink_keys())
    if "format" not in found and found:
        node.wrong(f"'{name}' has no 'format'")
    formats = {word: word for word in SINK_FORMATS}
    format_ = found["format"].one_of(formats, unsupported=UNSUPPORTED) if "format" in found else None
    if "layout" in found and (is_channel or name != MATCHES):
        found["layout"].wrong(f"'layout' is a setting of '{MATCHES}'; '{name}' has one table for all queries")
    layout = _layout(found)
    if format_ is None:
        return None
    kind = sink_kind(format_)
    _refuse_keys_of_other_sinks(name, found, kind, format_)
    if kind.needs and not found.keys() & set(kind.needs):
        node.wrong(f"'{name}' has no '{kind.needs[0]}'")
    shared = is_true(found, "shared")
    return kind.read(SinkEntry(name, format_, node, found, folders, layout, shared=shared, is_channel=is_channel))


def _refuse_keys_of_other_sinks(name: str, found: Mapping[str, Node], kind: SinkKind, format_: str) -> None:
    for key, node in found.items():
        if key not in (*_SINK_KEYS, *kind.keys):
            owner = next(other.keys[key] for other in sink_kinds() if key in other.keys)
            node.wrong(f"'{key}' is a setting of {owner}; '{name}' is {kind.in_words(format_)}")


def _layout(found: Mapping[str, Node]) -> Layout:
    if "layout" not in found:
        return Layout.QUERY
    return found["layout"].one_of({str(word): word for word in Layout}) or Layout.QUERY


# The part `spark:` of a deployment file: master, packages, memory and settings of Spark.

MASTER = "spark.master"

SPARKS_NAMES = {
    "master": MASTER,
    "packages": "spark.jars.packages",
    "jars": "spark.jars",
    "executor_memory": "spark.executor.memory",
    "driver_memory": "spark.driver.memory",
}
"""By key of `spark`: the name of the setting in Spark."""

KEPT_BY_JOBS = (
    "spark.sql.session.timeZone",
    "spark.sql.adaptive.enabled",
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.streaming.noDataMicroBatches.enabled",
)
"""Settings that jobs depend on, and have in a session of their own."""

PARTITIONS = "spark.sql.shuffle.partitions"
"""Among how many tasks buckets are divided, where a checkpoint has not fixed it."""

_MASTERS = ("local[2]", "spark://HOST:7077", "yarn", "k8s://https://HOST:443")
_KINDS = ("local", "local-cluster", "spark", "yarn", "k8s")
_LOCAL = re.compile(r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[\d+,\d+,\d+\]")
_REMOTE = re.compile(r"yarn|spark://[\w.-]+:\d+(,[\w.-]+:\d+)*|k8s://\S+")
_COORDINATES = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+")
_MEMORY = re.compile(r"[1-9]\d*[kmgt]b?", re.IGNORECASE)
_URI = re.compile(r"[A-Za-z][\w+.-]*:/")


def read_spark(node: Node, folders: Folders, engine: setting_keys.Engine | None = None) -> dict[str, str]:
    """Spark's settings by their names; mistakes are reported.

    engine: what the file names; only Spark has a cluster
    """
    found = node.mapping(setting_keys.SPARK_KEYS)
    chosen: dict[str, str] = {}
    if "master" in found:
        _note(chosen, "master", _master(found["master"]))
    if "packages" in found:
        _note(chosen, "packages", ",".join(filter(None, map(_package, found["packages"].items()))))
    if "jars" in found:
        _note(chosen, "jars", ",".join(filter(None, (_jar(item, folders) for item in found["jars"].items()))))
    for key in ("executor_memory", "driver_memory"):
        if key in found:
            is_size = "a size such as `512m` or `2g`"
            _note(chosen, key, found[key].parsed(lambda text: text if _MEMORY.fullmatch(text) else None, is_size))
    if "conf" in found:
        chosen |= _conf(found["conf"], found)
    if engine is setting_keys.Engine.LOCAL and not _LOCAL.fullmatch(chosen.get(MASTER, "local")):
        found.get("master", node).wrong(
            f"'{chosen[MASTER]}' is a cluster, and `engine: local` runs on this machine alone; leave the master out, or"
            " choose `engine: spark`"
        )
    return chosen


def unused_settings(file: object, spark: Mapping[str, str], engine: setting_keys.Engine) -> Iterator[str]:
    """A line for settings of Spark where it does not run: a file may be for both engines."""
    if spark and engine is not setting_keys.Engine.SPARK:
        yield f"{file}: what `spark` sets is for `engine: spark`; `engine: {engine}` does not use it"


def _note(chosen: dict[str, str], key: str, value: str | None) -> None:
    if value:
        chosen[SPARKS_NAMES[key]] = value


def _master(node: Node) -> str | None:
    text = node.text()
    if not text or _LOCAL.fullmatch(text) or _REMOTE.fullmatch(text):
        return text
    hint = did_you_mean(re.split(r"[:\[]", text)[0], _KINDS) if text.split(":")[0] not in _KINDS else ""
    node.wrong(f"'master' must be a master of Spark such as {', '.join(_MASTERS)}, not '{node.written()}'{hint}")
    return None


def _package(node: Node) -> str | None:
    what = "group:artifact:version, such as `org.apache.hadoop:hadoop-aws:3.4.1`"
    return node.parsed(lambda text: text if _COORDINATES.fullmatch(text) else None, what)


def _jar(node: Node, folders: Folders) -> str | None:
    text = node.text()
    if not text or _URI.match(text):
        return text
    path = folders.path(node)
    if not path.is_file():
        node.wrong(f"no such file: '{node.written()}'{near_file(path)}")
        return None
    return str(path.resolve())


def _conf(node: Node, beside: Mapping[str, Node]) -> dict[str, str]:
    words = {name: key for key, name in SPARKS_NAMES.items()}
    chosen: dict[str, str] = {}
    for name, value in node.mapping().items():
        text = value.text()
        if not name.startswith("spark."):
            value.wrong(f"settings of Spark begin with 'spark.'; did you mean 'spark.{_without_first(name)}'?")
        elif name in KEPT_BY_JOBS:
            value.wrong(f"'{name}' is set by every job; it cannot be chosen")
        elif words.get(name) in beside:
            value.wrong(f"'{name}' is the same as '{words[name]}' of 'spark'; give one of them")
        elif name == PARTITIONS and not re.fullmatch(r"[1-9]\d{0,5}", text):
            value.expected("a whole number, at least 1")
        elif text:
            chosen[name] = text
    return chosen


def _without_first(name: str) -> str:
    """The name without a first part that seems to stand for `spark`."""
    first, _, others = name.partition(".")
    return others if did_you_mean(first, ["spark"]) and others else name
