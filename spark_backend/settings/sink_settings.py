"""The sinks of a deployment file, and the places of its channels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from querylang.errors import listed
from spark_backend.document.folder_overlaps import FolderKind
from spark_backend.document.setting_keys import SINK_KEYS
from spark_backend.document.setting_values import Folders, is_true, read_table_name
from spark_backend.document.store_settings import refuse_unknown_settings, store_options
from spark_backend.document.yaml_document import Node
from spark_backend.settings.kafka_sink_settings import read_kafka_sink
from spark_backend.sinks.channels import channel_sink
from spark_backend.sinks.formats import FORMATS, MATCHES, PARTITION_COLUMNS, SINKS, Formulas, Layout, Sink

UNSUPPORTED = ("rate", "orc", "avro", "text", "console", "memory", "noop", "iceberg")
"""Formats of Spark that are refused by name."""


def read_sinks(node: Node, folders: Folders) -> dict[str, Sink]:
    """The sinks by name; mistakes are reported."""
    entries = node.mapping(SINKS)
    if not entries and not node.mistakes.found:
        node.wrong(f"'sinks' is empty; expected some of {listed(SINKS)}")
    return {name: _sink(name, entry, folders) for name, entry in entries.items()}


def read_channels(node: Node, folders: Folders) -> dict[str, Sink]:
    """The sinks of channels by `channel_sink` of their names; mistakes are reported."""
    entries = node.mapping()
    return {channel_sink(name): _sink(name, entry, folders, is_channel=True) for name, entry in entries.items()}


def _sink(name: str, node: Node, folders: Folders, *, is_channel: bool = False) -> Sink:
    found = node.mapping(SINK_KEYS)
    if "format" not in found and found:
        node.wrong(f"'{name}' has no 'format'")
    formats = {word: word for word in FORMATS}
    format_ = found["format"].one_of(formats, unsupported=UNSUPPORTED) if "format" in found else None
    if format_ == "kafka":
        kafka = read_kafka_sink(
            channel_sink(name) if is_channel else name, node, found, folders.base, is_channel=is_channel
        )
        return Sink(format_, Path(), kafka=kafka)
    if "path" not in found and "table" not in found and found:
        node.wrong(f"'{name}' has no 'path'")
    table = read_table_name(found, format_)
    if "layout" in found and (is_channel or name != MATCHES):
        found["layout"].wrong(f"'layout' is a setting of '{MATCHES}'; '{name}' has one table for all queries")
    layout = _layout(found)
    if name == MATCHES and table and not is_channel and layout is Layout.QUERY:
        found["table"].wrong(
            "'matches' has a table per query; set its folder with 'path', then CREATE TABLE ... USING delta LOCATION"
            " gives each a name; or set 'layout: one'"
        )
    if "topic" in found and format_ is not None:
        found["topic"].wrong(f"'topic' is a setting of Kafka; '{name}' is {format_}")
    if "formulas" in found and format_ not in (None, "csv"):
        found["formulas"].wrong(f"'formulas' is a setting of CSV; '{name}' is {format_}")
    if "partition_by" in found and format_ not in (None, "delta"):
        found["partition_by"].wrong(f"'partition_by' is a setting of Delta tables; '{name}' is {format_}")
    path = folders.place(found["path"], store_options(found)) if "path" in found else Path()
    if format_ == "delta":
        refuse_unknown_settings(found, path)
    if "path" in found:
        kind = FolderKind.CHANNEL if is_channel else FolderKind.SINK
        folders.add(kind, name, path, found["path"])
    return Sink(
        format_ or "",
        path,
        shared=is_true(found, "shared"),
        formulas=_formulas(found),
        partition_by=_partition_by("output" if is_channel else name, found, layout),
        table=table,
        layout=layout,
    )


def _layout(found: Mapping[str, Node]) -> Layout:
    if "layout" not in found:
        return Layout.QUERY
    return found["layout"].one_of({str(word): word for word in Layout}) or Layout.QUERY


def _partition_by(name: str, found: Mapping[str, Node], layout: Layout) -> tuple[str, ...]:
    """One column or several."""
    if "partition_by" not in found:
        return ()
    possible = {column: column for column in PARTITION_COLUMNS[name]}
    if layout is Layout.ONE:
        possible["query"] = "query"
    columns = [item.one_of(possible) for item in found["partition_by"].items()]
    return tuple(dict.fromkeys(column for column in columns if column is not None))


def _formulas(found: Mapping[str, Node]) -> Formulas:
    if "formulas" not in found:
        return Formulas.KEEP
    return found["formulas"].one_of({str(word): word for word in Formulas}) or Formulas.KEEP
