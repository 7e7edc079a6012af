"""The sources of a deployment file, its control stream, and the table of its history."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from querylang.errors import InputError, did_you_mean, near_file
from querylang.paths import exists, is_folder
from runtime.policies.time_forms import UNITS, USUAL_TIMES, TimeForm, read_pattern
from runtime.reading.formats.csv_form import CSV_KEYS, CSV_LISTS, USUAL_CSV, CsvForm, csv_form, read_csv_setting
from spark_backend.document.fixed_settings import FixedValue, fixed_value, fixed_values
from spark_backend.document.folder_overlaps import FolderKind
from spark_backend.document.setting_keys import CONTROL_KEYS, HISTORY_KEYS, SOURCE_KEYS
from spark_backend.document.setting_values import Folders, duration, idle, is_true, read_table_name, size, value_of
from spark_backend.document.store_settings import option_names, store_options
from spark_backend.document.yaml_document import Node
from spark_backend.places.place import Place, is_same_system, place_of
from spark_backend.places.remote_path import RemotePath
from spark_backend.settings.delta_settings import KEYS as DELTA_KEYS
from spark_backend.settings.delta_settings import read_delta
from spark_backend.settings.deployment import HistoryTable, Source
from spark_backend.settings.file_settings import FileSettings, read_file_settings
from spark_backend.settings.kafka_settings import KEYS as KAFKA_KEYS
from spark_backend.settings.kafka_settings import read_kafka
from spark_backend.settings.ordering_settings import ordering_text, read_ordering
from spark_backend.sources.formats import FILE_FORMATS, FORMATS

UNSUPPORTED = ("rate", "orc", "avro", "text", "console", "memory", "noop", "iceberg")
"""Formats of Spark that are refused by name."""


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
    found = node.mapping(CONTROL_KEYS)
    is_kafka = "format" in found and found["format"].plain() == "kafka"
    return (_of_kafka if is_kafka else _of_files)("control", node, found, folders)


HISTORY_FORMATS = ("parquet", "delta")
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
    if "outside_files" in found and format_ == "parquet":
        found["outside_files"].wrong("'outside_files' is a setting of Delta tables")
    outside = is_true(found, "outside_files")
    return HistoryTable(format_ or "", path, **words, times=_times(found), outside_files=outside)


def _source(name: str, node: Node, folders: Folders) -> Source:
    found = node.mapping(SOURCE_KEYS)
    format_ = found["format"].plain() if "format" in found else None
    _refuse_settings_of_others(found, format_)
    _refuse_two_types(name, found)
    source = replace(
        _of_format(name, node, found, folders, format_),
        idle=idle(found),
        ahead=duration(found, "ahead", None),
        max_record=size(found, "max_record"),
        csv=_csv(name, found),
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


def _of_format(name: str, node: Node, found: Mapping[str, Node], folders: Folders, format_: object) -> Source:
    match format_:
        case "kafka":
            return _of_kafka(name, node, found, folders)
        case "delta":
            return _of_delta(name, node, found, folders)
        case _:
            return _of_files(name, node, found, folders)


def _refuse_settings_of_others(found: Mapping[str, Node], format_: object) -> None:
    if format_ != "kafka" and "decode" in found:
        found["decode"].one_of({"columns": "columns"}, unsupported=("json", "avro"))
    kafka = () if format_ == "kafka" else tuple(key for key in KAFKA_KEYS if key != "start" or format_ != "delta")
    for keys, owner in ((kafka, "Kafka sources"), (() if format_ == "delta" else DELTA_KEYS, "Delta sources")):
        for key in keys:
            if key in found:
                found[key].wrong(f"'{key}' is a setting of {owner}")


def _of_delta(name: str, node: Node, found: Mapping[str, Node], folders: Folders) -> Source:
    source = _of_files(name, node, found, folders)
    fixed = dict(source.fixed)
    if "start" in fixed and fixed["start"].text == "earliest":
        del fixed["start"]  # the same as none
    place = None if "table" in found else source.path
    return replace(source, fixed=fixed, delta=read_delta(name, node, found, place, source.options))


def _of_kafka(name: str, node: Node, found: Mapping[str, Node], folders: Folders) -> Source:
    fixed = _fixed(found, Path(), "kafka")
    for key, default in (("start", "earliest"), ("decode", "json")):
        if key in fixed and fixed[key].text == default:
            del fixed[key]  # the same as none
    words = {key: found[key].text() for key in ("event", *TYPE_KEYS, "source_time") if key in found}
    return Source(
        name,
        "kafka",
        Path(),
        event=words.get("event"),
        type_field=words.get("type", words.get("type_field")),
        source_time=words.get("source_time"),
        fixed=fixed,
        kafka=read_kafka(name, node, found, folders.base, is_control=name == "control"),
    )


def _of_files(name: str, node: Node, found: Mapping[str, Node], folders: Folders) -> Source:
    for key in ("format", "path"):
        if key not in found and (key == "format" or ("format" in found and "table" not in found)):
            node.wrong(f"'{name}' has no '{key}'")
    formats = {word: word for word in ((*FILE_FORMATS, "kafka") if name == "control" else FORMATS)}
    unsupported = (*UNSUPPORTED, "delta") if name == "control" else UNSUPPORTED
    format_ = found["format"].one_of(formats, unsupported=unsupported) if "format" in found else None
    options = _options(found, format_)
    path = (
        folders.place(found["path"], store_options(found, FORMATS[format_].options if format_ else ()))
        if "path" in found
        else Path()
    )
    if "path" in found and name != "control" and format_ is not None:
        _refuse_no_folder(name, path, found["path"])
    if "path" in found:
        kind = FolderKind.CONTROL if name == "control" else FolderKind.SOURCE
        is_recursive = options.get("recursiveFileLookup", "").lower() == "true"
        folders.add(kind, name, path, found["path"], is_recursive=is_recursive)
    columns = ("event", *TYPE_KEYS, "source_time", "arrival", "partition", "offset")
    words = {key: found[key].text() for key in columns if key in found}
    return Source(
        name,
        format_ or "",
        path,
        event=words.get("event"),
        type_field=words.get("type", words.get("type_field")),
        source_time=words.get("source_time"),
        arrival=words.get("arrival"),
        partition=words.get("partition"),
        offset=words.get("offset"),
        options=options,
        fixed=_fixed(found, path, format_),
        files=_files(name, found, path, folders),
        table=read_table_name(found, format_),
    )


def _files(name: str, found: Mapping[str, Node], path: Place, folders: Folders) -> FileSettings:
    files = read_file_settings(found, partial(_beside, path, folders.base))
    if files.archive is not None:
        if not is_same_system(files.archive, path):
            found["after"].wrong(f"'{name}' can only archive files in the file system that they are in")
        folders.add(FolderKind.ARCHIVE, name, files.archive, found["after"])
    return files


def _beside(path: Place, base: Path, text: str) -> Place:
    """The place of a text; in a store it is reached like the source's own path."""
    return place_of(text, base, dict(path.options) if isinstance(path, RemotePath) else None)


def _fixed(found: Mapping[str, Node], path: Place, format_: str | None) -> dict[str, FixedValue]:
    """The fixed settings of a source, with its options that choose records."""
    own = fixed_values(found, SOURCE_KEYS)
    if "type" in own:
        own["type_field"] = own.pop("type")  # two words for one setting
    if "order" in own and own["order"].text == FileSettings().order:
        del own["order"]  # the same as none
    if "path" in own:
        own["path"] = fixed_value(found["path"], str(path.resolve()))
    if "options" not in found or format_ is None:
        return own
    options = found["options"].mapping()
    chosen = FORMATS[format_].fixed
    return own | {f"options.{key}": fixed_value(node) for key, node in options.items() if key in chosen}


def _refuse_no_folder(name: str, path: Place, node: Node) -> None:
    """Report a local path that is not a folder; a store is asked when the job starts."""
    if isinstance(path, RemotePath) or is_folder(path):
        return
    if exists(path):
        node.wrong(f"'{name}' must be a folder of files; '{node.written()}' is a file")
    else:
        node.wrong(f"no such folder: '{node.written()}'{near_file(path)}")


def _options(found: Mapping[str, Node], format_: str | None) -> dict[str, str]:
    if "options" not in found or format_ is None:
        return {}
    entry = FORMATS[format_]
    options = found["options"].mapping((*entry.options, *option_names(found)))
    for key in entry.counts:
        if key in options:
            options[key].number(least=1, most=2**62)
    return {key: option.text() for key, option in options.items()}


def _csv(name: str, found: Mapping[str, Node]) -> CsvForm:
    """The source's CSV form: a mapping, or text as on the command line."""
    node = found.get("csv")
    if node is None:
        return USUAL_CSV
    if "format" in found and found["format"].written() != "csv":
        node.wrong(f"'csv' is a setting of CSV; '{name}' is {found['format'].written()}")
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


def _times(found: Mapping[str, Node]) -> TimeForm:
    unit = found["time_unit"].one_of({name: name for name in UNITS}) if "time_unit" in found else None
    pattern = value_of(found["time_format"], read_pattern) if "time_format" in found else None
    return TimeForm(unit or USUAL_TIMES.unit, pattern)
