"""The published tables of Stream Analytics and StreamInsight: their rows as records, their settings, what they expect.

Takes the files beside it: columns `given_*` are printed in the articles, `exp_*` follow from the documented rules
(`combined`: the watermark is the larger of newest time - out-of-order tolerance and arrival - late tolerance). Running them is left
to those who import this: the oracle, replay, Spark.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from querylang.plan.model import TimePolicy
from tests.support.timed import (
    END_EDGE,
    INTERVAL,
    MINUTE,
    POINT,
    SECOND,
    START_EDGE,
    Record,
    Timed,
    TimedInput,
    stream_analytics,
    streaminsight,
)

FOLDER = Path(__file__).parent
SOURCE = "table"
"""The source name of a table that is not a file."""
MILLISECOND = 1_000
INFINITY = float("inf")


@dataclass(frozen=True)
class Row:
    """What a row of a Stream Analytics table expects. Moments are microseconds, None where the table says nothing.

    `action`: `pass`, or early, late, ooo with `_drop` or `_adjust`; `released`: the rows released since the one before.
    """

    action: str
    time: int | None
    before: int | None
    after: int
    released: tuple[int, ...]
    action_if_drop: str


@dataclass(frozen=True)
class Ordered:
    """A Stream Analytics table. `ordering`: its settings as users write them, but for the action."""

    name: str
    ordering: str
    settings: Mapping[str, Any]
    records: tuple[Record, ...]
    rows: tuple[Row, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """A query over substreams is keyed by what tells them apart."""
        over: tuple[str, ...] = self.settings.get("over", ())
        return over

    def timed(self, action: str) -> Timed:
        """The query and the stream."""
        policy = stream_analytics(**self.settings, action=action)
        return Timed((TimedInput("E", policy, (SOURCE,)),), self.records, self.keys)


_TABLES: dict[str, tuple[str, dict[str, Any]]] = {
    "asa_event_ordering_5rows": (
        "late=15s out_of_order=5s early=5min",
        {"late": 15 * SECOND, "out_of_order": 5 * SECOND, "early": 5 * MINUTE},
    ),
    "asa_12rows_early": (
        "late=5min out_of_order=2min early=5min",
        {"late": 5 * MINUTE, "out_of_order": 2 * MINUTE, "early": 5 * MINUTE},
    ),
    "asa_12rows_noearly": (
        "late=5min out_of_order=2min early=none",
        {"late": 5 * MINUTE, "out_of_order": 2 * MINUTE, "early": None},
    ),
    "asa_12rows_substreams": (
        "late=5min out_of_order=2min early=5min over=c",
        {"late": 5 * MINUTE, "out_of_order": 2 * MINUTE, "early": 5 * MINUTE, "over": ("c",)},
    ),
}


def moment(text: str) -> int:
    """`HH:MM:SS` as microseconds."""
    hours, minutes, seconds = map(int, text.split(":"))
    return ((hours * 60 + minutes) * 60 + seconds) * SECOND


def ordered_tables() -> list[Ordered]:
    """The Stream Analytics tables."""
    return [_ordered(name, *settings) for name, settings in _TABLES.items()]


def _ordered(name: str, ordering: str, settings: Mapping[str, Any]) -> Ordered:
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    records = tuple(
        Record(moment(line["arrival_time"]), "E", moment(line["event_time"]), c=line["key"] or "x", source=SOURCE)
        for line in lines
    )
    return Ordered(name, ordering, settings, records, tuple(map(_row, lines)))


def _row(line: Mapping[str, str]) -> Row:
    given = [(line["given_action"], line["exp_action"]), (line["given_sys_ts"], line["exp_sys_ts"])]
    given.append((line["given_wm_after"], line["exp_wm_after_combined"]))
    assert all(printed in ("", expected) for printed, expected in given), "what is printed is what is expected"
    time, before, after = (
        moment(line[name]) if line[name] else None
        for name in ("exp_sys_ts", "exp_wm_before_combined", "exp_wm_after_combined")
    )
    assert after is not None
    released = tuple(map(int, line["exp_released_combined"].split()))
    return Row(line["exp_action"], time, before, after, released, line["exp_action_if_drop"])


# ------------------------------------------------------------------------------------------------- idle partitions


@dataclass(frozen=True)
class Idle:
    """Progress without input: the first event is released `output_after` its arrival."""

    name: str
    ordering: str
    query: Timed
    number: int
    output_after: int


def idle_cases() -> list[Idle]:
    """What Stream Analytics' pages say of partitions that are silent."""
    return [_idle(case) for case in _read("asa_idle.yaml")]


def _idle(case: Mapping[str, Any]) -> Idle:
    late, out_of_order, count = case["late"] * SECOND, case["ooo"] * SECOND, case["partitions"]
    policy = stream_analytics(late=late, out_of_order=out_of_order, partitions=count)
    others = range(1, count if case.get("others_seen_before") else 1)
    before = [Record(-100 * SECOND, "E", -100 * SECOND, source=SOURCE, partition=number) for number in others]
    records = [
        Record(item["arrival"] * SECOND, "E", item["event_time"] * SECOND, source=SOURCE, partition=item["partition"])
        for item in case["events"]
    ]
    query = Timed((TimedInput("E", policy, (SOURCE,)),), (*before, *records))
    ordering = f"late={case['late']}s out_of_order={case['ooo']}s partitions={count}"
    return Idle(case["name"], ordering, query, len(before) + 1, case["output_after_s"] * SECOND)


# ---------------------------------------------------------------------------------------------------- StreamInsight


@dataclass(frozen=True)
class Incremented:
    """A StreamInsight case. `ordering`: its settings as users write them; `ids`: the event behind each record.

    `out`: what a pass-through query writes, `I7@100,120` for an event and `C@130` for a punctuation; `dropped`: events of which a
    record was refused; `until`: the moment to which time advances, None: no further than the records.
    """

    name: str
    ordering: str
    query: Timed
    ids: tuple[int | None, ...]
    out: tuple[str, ...]
    dropped: tuple[int, ...]
    held: tuple[int, ...]
    until: int | None
    is_final: bool


Written = tuple[int, int, int | None] | float
"""An event by its record's offset, with its time and its end, or the time of a punctuation."""

_SHAPES = {"point": POINT, "interval": INTERVAL, "edge_start": START_EDGE, "edge_end": END_EDGE}
_CASE = {"name", "source", "provenance", "gen", "policy", "input", "dropped", "out", "held", "idle", "until_wall"}
_GENERATION = {"count", "duration", "delay", "to_infinity"}


def increment_cases() -> list[Incremented]:
    """What StreamInsight's pages say of punctuations and of what violates them."""
    return [_incremented(case) for case in _read("si_cti.yaml")]


def _incremented(case: Mapping[str, Any]) -> Incremented:
    assert set(case) <= _CASE | {"import_ctis"}, case["name"]
    generation = case["gen"] or {}
    assert set(generation) <= _GENERATION, case["name"]
    assert case.get("idle", {}).get("bump", 1) == 1, case["name"]
    imports = "import_ctis" in case
    policy = _policy(case, generation, imports)
    inputs = [TimedInput("E", policy, (SOURCE,))]
    if imports:
        inputs.append(TimedInput("Fast", streaminsight(action=policy.action), (SOURCE,)))
    rows = sorted(_rows(case), key=lambda item: item[1].at)
    until = case["until_wall"] * MILLISECOND if "until_wall" in case else None
    return Incremented(
        case["name"],
        _ordering(case, generation, imports),
        Timed(tuple(inputs), tuple(record for _, record in rows)),
        tuple(number for number, _ in rows),
        tuple(case["out"]),
        tuple(case["dropped"]),
        tuple(case.get("held", ())),
        until,
        bool(generation.get("to_infinity")),
    )


def _policy(case: Mapping[str, Any], generation: Mapping[str, Any], imports: bool) -> TimePolicy:
    idle = case["idle"]["quiet_ms"] * MILLISECOND if "idle" in case else None
    return streaminsight(
        every=generation.get("count"),
        span=generation.get("duration"),
        delay=generation.get("delay", 0),
        action="drop" if case["policy"] == "drop" else "clip",
        idle=idle,
        final=bool(generation.get("to_infinity")),
        imports="Fast" if imports else None,
    )


def _ordering(case: Mapping[str, Any], generation: Mapping[str, Any], imports: bool) -> str:
    words = [f"action={case['policy']}"]
    if imports:
        words.append("import=Fast")  # of which Fast makes its own: after each event, without delay
    elif "duration" in generation:
        words.append(f"every={generation['duration']}us")
    else:
        words.append(f"every={generation.get('count', 'none')}")
    if generation.get("delay"):
        words.append("delay=-1tick" if generation["delay"] == -1 else f"delay={generation['delay']}us")
    if "idle" in case:
        words.append(f"idle={case['idle']['quiet_ms']}ms")
    if generation.get("to_infinity"):
        words.append("final=yes")
    return " ".join(words)


def _rows(case: Mapping[str, Any]) -> Iterator[tuple[int | None, Record]]:
    for item in case.get("import_ctis", ()):
        yield None, Record(item["wall"] * MILLISECOND, source=SOURCE, punctuation=("Fast", item["t"]))
    for item in case["input"]:
        at = item["wall"] * MILLISECOND
        if "cti" in item:
            yield None, Record(at, source=SOURCE, punctuation=("E", item["cti"]))
        else:
            shape = _SHAPES[item["shape"]]
            given: dict[str, Any] = {"source": SOURCE, "end": item.get("end"), "shape": shape, "id": item["id"]}
            yield item["id"], Record(at, "E", item["start"], **given)


def printed(case: Incremented, written: Sequence[Written]) -> tuple[str, ...]:
    """What was written, as the article prints it: an event with its start and its end, a punctuation with its time."""
    lines = []
    for item in written:
        if not isinstance(item, tuple):
            lines.append(f"C@{_point(item)}")
            continue
        offset, time, end = item
        shape = case.query.records[offset - 1].shape
        assert shape != END_EDGE, "an end edge is no event of its own"
        ending = "" if shape == POINT else f",{_point(INFINITY if end is None else end)}"
        lines.append(f"I{case.ids[offset - 1]}@{time}{ending}")
    return tuple(lines)


def _point(time: float) -> str:
    return "inf" if time == INFINITY else str(int(time))


def _read(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = yaml.load((FOLDER / name).read_text("utf-8"), Loader=yaml.CSafeLoader)
    return cases
