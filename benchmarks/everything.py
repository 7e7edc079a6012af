"""Many of everything: 1 to 10,000 types, queries, fields, columns, constants, keys and so on. What grows with the square?

One core, processor time of the whole call. Growth is the time over that of a tenth as many: ten is linear, a hundred
is the square.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import pyarrow as pa
import pyarrow.parquet as pq

import ensue
from benchmarks.embedded import significant
from job_engine.deployment_file import load_deployment
from job_engine.kafka_broker import Listing, PartitionListing, TopicChoice, TopicListing
from job_engine.sources.topics.planning import OffsetPlanner
from job_engine.sources.topics.settings import KafkaSource

_EVENT = "event A { integer n; }\n"
_QUERY = "query Q%s { inputs { A() within 1 minute; } find A as a where a.n %s }\n"
_ROWS = 10

STEEP = 20.0
"""Growth from which on something is marked."""

_SHORT = 0.05
"""Seconds; from less than that no growth is reported."""


@dataclass(frozen=True, slots=True)
class Grown:
    """Processor time of one number of things: of the slower of two calls.

    growth: over the time of a tenth as many; None = that was too short, or there is none
    """

    things: str
    count: int
    seconds: float
    growth: float | None

    @property
    def is_steep(self) -> bool:
        """Whether it grows faster than linear."""
        return self.growth is not None and self.growth > STEEP


Prepared = Callable[[], object]


def _types(count: int) -> Prepared:
    text = _EVENT + "".join(f"event T{number} {{ integer n; }}\n" for number in range(count)) + _QUERY % ("", "> 0")
    return lambda: ensue.replay(text, _rows())


def _queries(count: int) -> Prepared:
    text = _EVENT + "".join(_QUERY % (number, f"> {number}") for number in range(count))
    return lambda: ensue.replay(text, _rows())


def _fields(count: int) -> Prepared:
    fields = " ".join(f"integer f{number};" for number in range(count))
    text = f"event A {{ integer n; {fields} }}\n" + _QUERY % ("", "> 0")
    return lambda: ensue.replay(text, _wide(count))


def _columns(count: int, folder: Path) -> Prepared:
    pq.write_table(_wide(count), folder / "wide.parquet")
    return lambda: ensue.replay(_EVENT + _QUERY % ("", "> 0"), folder / "wide.parquet")


def _json_fields(count: int, folder: Path) -> Prepared:
    more = {f"f{number}": number for number in range(count)}
    lines = [json.dumps({"at": float(row), "event": "A", "n": row} | more) for row in range(_ROWS)]
    (folder / "wide.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return lambda: ensue.replay(_EVENT + _QUERY % ("", "> 0"), folder / "wide.jsonl")


def _struct_keys(count: int) -> Prepared:
    struct = {f"f{number}": number for number in range(count)}
    table = pa.table(_columns_of_rows() | {"d": pa.array([struct] * _ROWS)})
    text = "event A { integer n; dictionary<string, integer> d; }\n" + _QUERY % ("", "> 0")
    return lambda: ensue.replay(text, table)


def _constants(count: int) -> Prepared:
    numbers = ", ".join(map(str, range(count)))
    return lambda: ensue.replay(_EVENT + _QUERY % ("", f"in [{numbers}]"), _rows())


def _terms(operator: str) -> Callable[[int], Prepared]:
    def prepare(count: int) -> Prepared:
        terms = f" {operator} ".join(f"a.n != {-number - 1}" for number in range(count))
        return lambda: ensue.replay(_EVENT + _QUERY % ("", f"> 0 where {terms}"), _rows())

    return prepare


def _sum(count: int) -> Prepared:
    terms = " + ".join(["a.n"] * count)
    return lambda: ensue.replay(_EVENT + _QUERY % ("", f"> 0 where {terms} > 0"), _rows())


def _selects(count: int) -> Prepared:
    selects = " ".join(f"select a.n + {number} as s{number}" for number in range(count))
    return lambda: ensue.replay(_EVENT + _QUERY % ("", f"> 0 {selects}"), _rows())


def _statements(count: int) -> Prepared:
    body = " ".join(f"print {number}.toString();" for number in range(count))
    text = _QUERY % ("", f"> 8 {{ {body} }}")
    return lambda: ensue.replay(_EVENT + text, _rows())


def _keys(count: int) -> Prepared:
    table = pa.table(
        {"at": pa.array(range(count)).cast(pa.timestamp("us", "UTC")), "event": ["A"] * count, "n": range(count)}
    )
    text = "query Q { inputs { A() key n within 1 minute; } find A as a -> A as b }\n"
    return lambda: ensue.replay(_EVENT + text, table)


def _tables(count: int) -> Prepared:
    tables = [_rows() for _ in range(count)]
    return lambda: ensue.replay(_EVENT + _QUERY % ("", "> 0"), tables)


def _files(count: int, folder: Path) -> Prepared:
    (folder / "in").mkdir()
    for number in range(count):
        (folder / "in" / f"{number}.jsonl").write_text('{"at": 1.0, "event": "A", "n": 1}\n', encoding="utf-8")
    (folder / "q.query").write_text(_EVENT + _QUERY % ("", "> 0"), encoding="utf-8")
    return lambda: ensue.replay(folder / "q.query", folder / "in")


def _sources(count: int, folder: Path) -> Prepared:
    (folder / "q.query").write_text(_EVENT + _QUERY % ("", "> 0"), encoding="utf-8")
    for number in range(count):
        (folder / f"in{number}").mkdir()
    sources = "".join(f"  s{number}:\n    path: in{number}\n    format: parquet\n" for number in range(count))
    text = f"name: job\nqueries: [q.query]\nsources:\n{sources}sinks:\n  matches: {{path: out, format: parquet}}\ncheckpoint: c\n"
    (folder / "job.yaml").write_text(text, encoding="utf-8")
    return lambda: load_deployment(folder / "job.yaml")


@dataclass(frozen=True, slots=True)
class _Broker:
    """One topic, with a message in each partition."""

    partitions: int

    def listing(self, choice: TopicChoice) -> Listing:
        topic = TopicListing("t", is_append_time=True, partitions=dict.fromkeys(range(self.partitions), _ONE_MESSAGE))
        return Listing(0, dict.fromkeys(choice.names, topic))

    def arrival_of(self, *_: object) -> int | None:
        return None

    def offsets_at(self, *_: object) -> dict[tuple[str, int], int | None]:
        return {}


_ONE_MESSAGE = PartitionListing(first=0, until=1)


def _partitions(count: int) -> Prepared:
    source = KafkaSource("s", TopicChoice(("t",)), {})

    def plan() -> None:
        planner = OffsetPlanner([source], lambda _: _Broker(count), lambda: 0)
        planned = planner.next({}, lambda *_: None)
        assert len(planned.ranges) == count
        assert not planner.next(planned.positions, lambda *_: None).ranges

    return plan


_IN_MEMORY: dict[str, Callable[[int], Prepared]] = {
    "event types of a text": _types,
    "queries of a text": _queries,
    "fields of an event type": _fields,
    "keys of a dictionary": _struct_keys,
    "constants of a list": _constants,
    "terms of `and`": _terms("and"),
    "terms of `or`": _terms("or"),
    "terms of `+`": _sum,
    "`select`s": _selects,
    "statements of a block": _statements,
    "keys of a stream": _keys,
    "tables of a replay": _tables,
    "partitions of a topic": _partitions,
}
_ON_DISK: dict[str, Callable[[int, Path], Prepared]] = {
    "columns of a Parquet table": _columns,
    "fields of JSON": _json_fields,
    "files of a folder": _files,
    "sources of a deployment": _sources,
}
THINGS = (*_IN_MEMORY, *_ON_DISK)


def _columns_of_rows() -> dict[str, object]:
    times = pa.array(range(_ROWS)).cast(pa.timestamp("us", "UTC"))
    return {"at": times, "event": ["A"] * _ROWS, "n": list(range(_ROWS))}


def _wide(count: int) -> pa.Table:
    return pa.table(_columns_of_rows() | {f"f{number}": [number] * _ROWS for number in range(count)})


def _rows() -> pa.Table:
    return pa.table(_columns_of_rows())


def measure(counts: tuple[int, ...]) -> list[Grown]:
    """All things, so many of each: one count after the other until one takes too long."""
    _types(1)()  # loads what all need
    return [grown for name in THINGS for grown in grow(name, counts)]


_LONG = 30.0
"""Seconds after which no greater number is tried."""


_CALLS = 2
"""What is called again in the same process has learned something: that must not grow either."""


def _seconds(call: Prepared) -> float:
    started = process_time()
    call()
    return process_time() - started


def grow(name: str, counts: tuple[int, ...]) -> Iterator[Grown]:
    """One kind of thing; the counts are each ten times the one before."""
    before = 0.0
    for count in counts:
        with TemporaryDirectory() as folder:
            call = _IN_MEMORY[name](count) if name in _IN_MEMORY else _ON_DISK[name](count, Path(folder))
            seconds = max(_seconds(call) for _ in range(_CALLS))
        yield Grown(name, count, seconds, significant(seconds / before) if before > _SHORT else None)
        before = seconds
        if seconds > _LONG:
            return
