"""Make the JSON schema of deployment files from the reader's tables of keys, with what `docs/deployment.yaml` says of each.

`tools/reference.py` writes it to where `ensue schema` finds it. A test compares its verdicts with the reader's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import combinations
from typing import Any

from job_engine.deployment_file import DEFAULT_BUCKETS, MAX_BUCKETS
from job_engine.deployment_sections import HISTORY_FORMATS, LOOKUP_FORMATS
from job_engine.setting_keys import SOURCE_KEYS
from job_engine.sinks.kinds import FORMATS as SINK_FORMATS
from job_engine.sinks.kinds import SINKS, SinkKind, sink_kind, sink_kinds
from job_engine.sources.kinds import FORMATS, SourceKind, control_keys, kind_of, source_keys
from runtime.file_forms import CSV_KEYS, CSV_LISTS
from runtime.policies.settings_text import LENGTHS
from tools.deployment_keys import KEYS, said

Schema = dict[str, Any]

VARIABLE: Schema = {"type": "string", "pattern": r"\$\{[^}]*\}"}
"""A value from the environment: nothing is known of it."""

TEXT: Schema = {"type": ["string", "number", "boolean"], "minLength": 1}

REQUIRED = {
    "job": ["name", "queries", "sources", "sinks", "checkpoint"],
    "source": ["format"],
    "history": ["format", "path"],
    "table": ["path"],
    "sink": ["format"],
    "spark": [],
}


def text() -> str:
    """The schema as it is on disk."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"


def schema() -> Schema:
    """The whole schema."""
    job = _group("job")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A deployment file of Ensue",
        **job,
        "$defs": {
            "source": _source(),
            "control": _group("source", control_keys(), ["format"]),
            "history": {**_group("history"), "not": {"required": ["event", "type_field"]}},
            "table": _group("table"),
            "sink": _sink(),
            "spark": _group("spark"),
        },
    }


def _group(name: str, keys: Iterable[str] | None = None, required: list[str] | None = None) -> Schema:
    chosen = [*KEYS[name]] if keys is None else [*keys]
    return {
        "type": "object",
        "additionalProperties": False,
        "required": REQUIRED[name] if required is None else required,
        "properties": {key: _key(name, key) for key in chosen},
    }


TYPE_KEYS = ("event", "type", "type_field")
"""A source has one of them at most."""


def _source() -> Schema:
    """A source; which keys it may have depends on its format."""
    return {
        **_group("source"),
        "not": {"anyOf": [{"required": [*pair]} for pair in combinations(TYPE_KEYS, 2)]},
        "allOf": [{"if": _is_one_of(formats), "then": _of_kind(kind)} for kind, formats in _formats_by_kind().items()],
    }


def _formats_by_kind() -> dict[SourceKind, list[str]]:
    found: dict[SourceKind, list[str]] = {}
    for name in FORMATS:
        found.setdefault(kind_of(name), []).append(name)
    return found


def _is_one_of(formats: list[str]) -> Schema:
    return {"required": ["format"], "properties": {"format": {"enum": formats}}}


def _of_kind(kind: SourceKind) -> Schema:
    """What holds for sources of a kind: keys of others are refused, and some are needed."""
    others = [key for key in source_keys() if key not in SOURCE_KEYS and key not in kind.keys]
    return {"properties": dict.fromkeys(others, False), **kind.needed}


def _sink() -> Schema:
    """A sink; which keys it may have, and of which it needs one, depends on its format."""
    found: dict[SinkKind, list[str]] = {}
    for name in SINK_FORMATS:
        found.setdefault(sink_kind(name), []).append(name)
    own = [{"if": _is_one_of(formats), "then": _of_sink_kind(kind)} for kind, formats in found.items()]
    return {**_group("sink"), "allOf": own}


def _of_sink_kind(kind: SinkKind) -> Schema:
    """What holds for sinks of a kind: keys of others are refused, and one of some is needed."""
    others = dict.fromkeys((key for other in sink_kinds() for key in other.keys if key not in kind.keys), False)
    needed = {"oneOf": [{"required": [key]} for key in kind.needs]} if kind.needs else {}
    return {"properties": others, **needed}


_OWN: dict[tuple[str, str], Schema] = {
    ("job", "sources"): {"type": "object", "minProperties": 1, "additionalProperties": {"$ref": "#/$defs/source"}},
    ("job", "control"): {"$ref": "#/$defs/control"},
    ("job", "history"): {"$ref": "#/$defs/history"},
    ("job", "tables"): {"type": "object", "additionalProperties": {"$ref": "#/$defs/table"}},
    ("job", "sinks"): {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": False,
        "properties": {name: {"$ref": "#/$defs/sink"} for name in SINKS},
    },
    ("job", "channels"): {"type": "object", "additionalProperties": {"$ref": "#/$defs/sink"}},
    ("job", "spark"): {"$ref": "#/$defs/spark"},
    ("job", "name"): {"type": ["string", "number", "boolean"], "pattern": r"^[\w.-]+$|\$\{"},
    ("job", "buckets"): {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": MAX_BUCKETS},
            {"type": "string", "pattern": r"^\d+$|\$\{"},
        ],
        "default": DEFAULT_BUCKETS,
    },
    ("source", "format"): {"enum": [*FORMATS]},
    ("history", "format"): {"enum": [*HISTORY_FORMATS]},
    ("table", "format"): {"enum": [*LOOKUP_FORMATS]},
    ("sink", "format"): {"enum": [*SINK_FORMATS]},
    ("source", "csv"): {
        "anyOf": [
            TEXT,
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    key: {"anyOf": [TEXT, {"type": "array", "items": TEXT}]} if key in CSV_LISTS else TEXT
                    for key in CSV_KEYS
                },
            },
        ]
    },
    ("source", "decode"): {"enum": ["columns", "json", "avro"]},
}
"""Keys whose values the tables of the reader tell better than the words of the documents."""


def _key(group: str, key: str) -> Schema:
    type_, default, example, meaning = said()[group][key]
    own = _OWN.get((group, key))
    values = _type(type_) if own is None else own
    if own is not None and "enum" in own:
        values = {"anyOf": [own, VARIABLE]}
    told = f"{_plain(meaning)}. Default: {_plain(default)}. Example: {example}"
    return {"description": told, **values}


def _plain(text_: str) -> str:
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text_).replace("`", "")


def _type(words: str) -> Schema:
    """What a type in the documents allows."""
    if words.startswith("list of"):
        return {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
    parts = [_part(part) for part in re.split(r",\s+", words)]
    constants = [part["const"] for part in parts if "const" in part]
    if {"true", "false"} <= {*constants}:
        parts.append({"type": "boolean"})
    choices = [{"enum": constants}] * bool(constants) + [part for part in parts if "const" not in part]
    is_open = choices[0] == TEXT or choices[0].get("type") == "object"
    return choices[0] if is_open and len(choices) == 1 else {"anyOf": [*choices, VARIABLE]}


def _part(word: str) -> Schema:
    match word:
        case "mapping":
            return {"type": "object"}
        case "number":
            return {"type": "integer"}
        case "duration":
            return {"type": "string", "pattern": _duration()}
        case "size":
            return {"type": "string", "pattern": r"^\s*\d"}
        case "policy":
            return {"anyOf": [{"type": "string", "minLength": 1}, {"type": "object"}]}
        case "port":
            return {"type": "integer", "minimum": 1, "maximum": 65_535}
        case "`HOST:PORT`":
            return {"type": "string", "pattern": r"^(.+:)?\d{1,5}$"}
        case "time" | "version" | "version or time" | "time or version":
            return {"type": ["string", "number"], "pattern": r"^\d"}
        case _ if re.fullmatch(r"`[a-z_]+`", word):
            return {"const": word.strip("`")}
        case _ if word.startswith("`"):  # such as `archive FOLDER`
            return {"type": "string", "pattern": f"^\\s*{word.strip('`').split()[0]}\\s+\\S"}
        case _:
            return TEXT


def _duration() -> str:
    """A pattern for lengths of time, in which letters may be large or small."""
    units = sorted(LENGTHS, key=lambda unit: (-len(unit), unit))
    any_case = "|".join("".join(f"[{letter}{letter.upper()}]" for letter in unit) for unit in units)
    return rf"^\s*((\d+(\.\d+)?|\.\d+)\s*({any_case})\s*)+$"
