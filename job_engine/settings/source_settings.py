"""The sources of a deployment file, its control stream, and the table of its history."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from job_engine.document.fixed_settings import FixedValue, fixed_value, fixed_values
from job_engine.document.ordering_settings import ordering_text, read_ordering
from job_engine.document.setting_keys import HISTORY_KEYS, SOURCE_KEYS, Change
from job_engine.document.setting_values import UNSUPPORTED, Folders, duration, idle, is_true, size, value_of
from job_engine.document.store_settings import store_options
from job_engine.document.yaml_document import Node
from job_engine.settings.deployment import HistoryTable
from job_engine.sources.kinds import FORMATS as SOURCE_FORMATS
from job_engine.sources.kinds import (
    KindSettings,
    SourceEntry,
    SourceKind,
    control_keys,
    kind_of,
    kinds,
    source_keys,
)
from job_engine.sources.source import Source
from querylang.errors import did_you_mean, listed
from runtime.policies.settings_text import PER_SECOND, USUAL_TIMES, TimeForm, read_pattern
from runtime.reading.formats.csv_form import USUAL_CSV


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
    found = node.mapping(HISTORY_KEYS)
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


def _source(name: str, node: Node, folders: Folders) -> Source:
    found = node.mapping(source_keys())
    _refuse_two_types(name, found)
    format_ = _format(name, node, found, SOURCE_FORMATS)
    entry = None if format_ is None else SourceEntry(name, format_, node, found, folders)
    source = replace(
        Source(name, "", None) if entry is None else _of_kind(entry),
        idle=idle(found),
        ahead=duration(found, "ahead", None),
        max_record=size(found, "max_record"),
        times=_times(found),
        infers=is_true(found, "infer"),
    )
    if "ordering" not in found:
        return source
    ordering = read_ordering(found["ordering"])
    fixed = {**source.fixed, "ordering": fixed_value(found["ordering"], ordering_text(ordering))}
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
    _refuse_keys_of_others(kind, found)
    own = kind.read(entry)
    columns = ("event", *TYPE_KEYS, "source_time", "partition", "offset", *(() if kind.tells_arrival else ("arrival",)))
    words = {key: found[key].text() for key in columns if key in found and key in (*SOURCE_KEYS, *kind.keys)}
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


def _refuse_keys_of_others(kind: SourceKind, found: Mapping[str, Node]) -> None:
    for key in found:
        if key not in SOURCE_KEYS and key not in kind.keys:
            owners = listed(other.title for other in kinds() if key in other.keys)
            found[key].wrong(f"'{key}' is not a setting of {kind.title}; {owners} have it")


def _fixed(found: Mapping[str, Node], kind: SourceKind, own: KindSettings) -> dict[str, FixedValue]:
    """The fixed settings of a source, with its options that choose records."""
    fixed = fixed_values(found, source_keys())
    if "type" in fixed:
        fixed["type_field"] = fixed.pop("type")  # two words for one setting
    for key, usual in kind.usual.items():
        if key in fixed and fixed[key].text == usual:
            del fixed[key]  # the same as none
    if "path" in fixed and own.place is not None:
        fixed["path"] = fixed_value(found["path"], str(own.place.resolve()))
    if "options" not in found:
        return fixed
    options = found["options"].mapping()
    chosen = {key for key, change in kind.options.items() if change is Change.FIXED}
    return fixed | {f"options.{key}": fixed_value(node) for key, node in options.items() if key in chosen}


def _times(found: Mapping[str, Node]) -> TimeForm:
    unit = found["time_unit"].one_of({name: name for name in PER_SECOND}) if "time_unit" in found else None
    pattern = value_of(found["time_format"], read_pattern) if "time_format" in found else None
    return TimeForm(unit or USUAL_TIMES.unit, pattern)
