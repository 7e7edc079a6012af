"""The sinks of a deployment file, and the places of its channels."""

from __future__ import annotations

from collections.abc import Mapping

from job_engine.document.setting_keys import Change
from job_engine.document.setting_values import UNSUPPORTED, Folders, is_true
from job_engine.document.yaml_document import Node
from job_engine.sinks.channels import channel_sink
from job_engine.sinks.kinds import FORMATS as SINK_FORMATS
from job_engine.sinks.kinds import MATCHES, SINKS, Layout, Sink, SinkEntry, SinkKind, sink_kind, sink_kinds
from querylang.errors import listed

_COMMON = ("format", "options")
"""The keys of all sinks."""


def sink_keys() -> dict[str, Change]:
    """All keys that a sink may have, of whatever kind it is."""
    return dict.fromkeys((*_COMMON, *(key for kind in sink_kinds() for key in kind.keys)), Change.FREE)


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
    _refuse_keys_of_others(name, found, kind, format_)
    if kind.needs and not found.keys() & set(kind.needs):
        node.wrong(f"'{name}' has no '{kind.needs[0]}'")
    shared = is_true(found, "shared")
    return kind.read(SinkEntry(name, format_, node, found, folders, layout, shared=shared, is_channel=is_channel))


def _refuse_keys_of_others(name: str, found: Mapping[str, Node], kind: SinkKind, format_: str) -> None:
    for key, node in found.items():
        if key not in (*_COMMON, *kind.keys):
            owner = next(other.keys[key] for other in sink_kinds() if key in other.keys)
            node.wrong(f"'{key}' is a setting of {owner}; '{name}' is {kind.in_words(format_)}")


def _layout(found: Mapping[str, Node]) -> Layout:
    if "layout" not in found:
        return Layout.QUERY
    return found["layout"].one_of({str(word): word for word in Layout}) or Layout.QUERY
