"""Books that all systems get: their rules and events as files, and the checksums of what a rule has found.

A book is one of `benchmarks.books`. Its rules say what all systems can say exactly. A sequence gives every choice of events, and a threshold
each event that makes at least five of a key within a minute.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import feather

from benchmarks import books

KINDS = ("disjoint", "rules")
_FIND, _REACHED = "find all", ">= 5"


@dataclass(frozen=True, slots=True)
class BookFiles:
    """The files of a book.

    query: its text, for Ensue
    table: its events, for Ensue
    rules: a line of JSON for each rule, for the Java systems
    records: the events for them: numbers only
    values: the texts that the numbers mean
    """

    query: Path
    table: Path
    rules: Path
    records: Path
    values: Path

    @staticmethod
    def of(folder: Path) -> BookFiles:
        """Where the files of a book are."""
        names = ("book.query", "events.arrow", "rules.jsonl", "events.records", "values.txt")
        return BookFiles(*(folder / name for name in names))


def write_book(folder: Path, kind: str, count: int, events: int, keys: int = 1_000) -> BookFiles:
    """Write a book of so many rules, and its events. `keys`: hosts of the events that rules are about."""
    files = BookFiles.of(folder)
    book, rules = _disjoint(count, events) if kind == "disjoint" else _rules(count, events, keys)
    files.query.write_text(book.text, encoding="utf-8")
    feather.write_feather(book.table, str(files.table), compression="uncompressed")
    files.rules.write_text("".join(json.dumps(rule) + "\n" for rule in rules), encoding="utf-8")
    _write_records(files, book.table)
    return files


def _disjoint(count: int, events: int) -> tuple[books.Book, Iterator[dict[str, Any]]]:
    pairs = (
        {"form": "pair", "steps": 2, "kind": 0, "condition": "codes", "first": 2 * n, "second": 2 * n + 1}
        for n in range(count)
    )
    return books.disjoint(count, events, _FIND), pairs


def _rules(count: int, events: int, keys: int) -> tuple[books.Book, Iterator[dict[str, Any]]]:
    made = books.drawn(count)[1]
    told = (asdict(rule) | {"other": (rule.field + 1) % books.FIELDS, "values": _texts(rule)} for rule in made)
    return books.rules(count, events, reached=_REACHED, find=_FIND, keys=keys), told


def _texts(rule: books.Rule) -> list[str]:
    match rule.condition:
        case "equal":
            return [books.value(rule.field, rule.values[0])]
        case "list":
            return sorted({books.value(rule.field, number) for number in rule.values})
        case "like":
            return [f"part{rule.field}/v{rule.values[0]}."]
        case _:
            return []


def _write_records(files: BookFiles, table: pa.Table) -> None:
    """Three sizes, then of each event its type, key, code, number and the places of its texts."""
    texts = [name for name in table.column_names if name.startswith("f")]
    named = next(name for name in ("host", "k") if name in table.column_names)
    number = next(name for name in ("size", "v") if name in table.column_names)
    fields = [("kind", "<i4"), ("key", "<i4"), ("code", "<i4"), ("number", "<f8"), *((name, "<i4") for name in texts)]
    records = np.zeros(len(table), np.dtype(fields))
    records["key"] = table.column(named).combine_chunks().dictionary_encode().indices.to_numpy()
    records["number"] = table.column(number).to_numpy()
    if "code" in table.column_names:
        records["code"] = table.column("code").to_numpy()
    kinds = [0] if "code" in table.column_names else range(books.TYPES)
    if len(kinds) > 1:
        records["kind"] = pa.compute.index_in(table.column("event"), pa.array([f"T{n}" for n in kinds])).to_numpy()
    values = list[str]()
    for name in texts:
        column = table.column(name).combine_chunks().dictionary_encode()
        records[name] = column.indices.to_numpy() + len(values)
        values += column.dictionary.to_pylist()
    files.values.write_text("".join(value + "\n" for value in values), encoding="utf-8")
    sizes = np.array([len(table), len(kinds), len(texts)], "<i4")
    files.records.write_bytes(sizes.tobytes() + records.tobytes())


def checksum(rows: Sequence[NDArray[np.int64]]) -> int:
    """Of the matches of one rule, in any order; `rows`: by step, the events of all of them. `Pass.count` in Java is the same."""
    with np.errstate(over="ignore"):
        words = np.full(len(rows[0]), len(rows), np.uint64)
        for own in rows:
            words = (words ^ (own.astype(np.uint64) + np.uint64(1))) * np.uint64(0x9E3779B97F4A7C15)
            words ^= words >> np.uint64(29)
        return int(np.sum(words, dtype=np.uint64))
