"""Random inputs, policies and streams: times exactly at the policies' lengths and one microsecond beside them, bursts, ties.

A stream is small, for what a rule says shows in few records; its times are the sums and differences of the policies' own lengths.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from querylang.plan.model import TimelineKind, TimePolicy
from tests.support.timed import (
    END_EDGE,
    INTERVAL,
    POINT,
    SECOND,
    START_EDGE,
    Record,
    Timed,
    TimedInput,
    apama,
    stream_analytics,
    streaminsight,
)

T = TypeVar("T")

DAY = 86_400 * SECOND
STARTS = {
    "1970": 36_000 * SECOND,
    "before 1970": -5 * SECOND,
    "year 1": -719_162 * DAY + 3_600 * SECOND,
    "year 9999": 2_932_896 * DAY + 80_000 * SECOND,
    "clocks go forward": 1_711_846_800 * SECOND - 3 * SECOND,
    "leap second": 1_483_228_800 * SECOND - 3 * SECOND,
}
"""Where a stream begins; the last two are 2024-03-31T01:00Z and 2017-01-01, a few seconds before."""

SILENT = "silent"
"""A source that never brings anything."""
LENGTHS = (0, 1, SECOND, SECOND, 2 * SECOND, 3 * SECOND, 5 * SECOND, 2_500_000)
PACES = ((0, 0, 0, 1), (0, 0, 1, 1, 2), (0, 1, 1, 2, 3, 6), (0, 0, 0, 0, 0, 5))
NUDGES = (0, 0, 0, 0, 0, -1, 1)
LEEWAYS = (0.0, 1.0, 2.0, 10.0, float("inf"))
KEYS: tuple[tuple[str, ...], ...] = ((), (), ("k",), ("k",), ("c", "k"))
OVERS: tuple[tuple[str, ...], ...] = ((), (), (), ("k",), ("k",), ("c",), ("k", "c"))
STYLES = ("analytics", "analytics", "insight", "insight", "apama", "apama", "mixed")


def random_timed(seed: int, *, style: str | None = None, length: int | None = None) -> Timed:
    """A query and its stream, by number."""
    return TimedDrawing(random.Random(seed), style, length).query()


class TimedDrawing:
    """Draws one query and its stream."""

    def __init__(self, chooser: random.Random, style: str | None = None, length: int | None = None) -> None:
        self._chooser = chooser
        self._style = style or self._one(STYLES)
        self._length = length or self._one((4, 8, 12, 20, 30, 4, 8, 12, 20, 30, 150))
        self._calm = self._chance(4)
        """Nearly all events arrive when they happen."""
        self._start = STARTS[self._one((*STARTS, "1970", "1970", "1970"))]
        self._paces = self._one(PACES)
        self._sources = self._one((("s",), ("s",), ("s", "t")))
        self._partitions = self._one(((0,), (0,), (0, 1), (0, 1, 2)))
        self._common = self._known_sources()
        """Inputs share all of their sources, or none: a heartbeat of a source advances all of its inputs."""
        self._has_own = len(self._sources) > 1 and self._chance(3)
        self._started: dict[str, Record] = {}

    def _one(self, values: Sequence[T]) -> T:
        return self._chooser.choice(values)

    def _chance(self, of_: int) -> bool:
        return self._chooser.randrange(of_) == 0

    def query(self) -> Timed:
        """The whole of it."""
        events = ("A", "B", "C")[: self._one((1, 1, 1, 2, 2, 3))]
        keys = self._one(KEYS)
        shared = self._analytics(keys)
        inputs = tuple(self._input(event, events, shared) for event in events)
        return Timed(inputs, self._records(inputs, keys), keys)

    # ------------------------------------------------------------------------------------------------------ inputs

    def _input(self, event: str, events: Sequence[str], shared: TimePolicy) -> TimedInput:
        style = self._one(("analytics", "insight", "apama")) if self._style == "mixed" else self._style
        sources = (self._sources["ABC".index(event) % 2],) if self._has_own else self._common
        least = 1 if self._chance(10) else None
        if style == "apama":
            return self._apama(event, sources, least)
        if style == "insight":
            return TimedInput(event, self._insight(event, events), sources, least=least)
        policy = self._analytics(()) if self._style == "mixed" and self._chance(3) else shared
        policy = policy if sources else replace(policy, partitions=None)
        return TimedInput(event, policy, sources, least=least)

    def _known_sources(self) -> tuple[str, ...]:
        silent = (SILENT,) if self._chance(8) else ()
        return () if self._chance(3) else (*self._sources, *silent)

    def _analytics(self, keys: Sequence[str]) -> TimePolicy:
        over = self._one(OVERS) if not keys or self._chance(2) else tuple(keys)
        return stream_analytics(
            late=self._one((*LENGTHS, None)),
            out_of_order=self._one(LENGTHS),
            early=self._one((None, None, 0, SECOND, 3 * SECOND)),
            action=self._one(("adjust", "drop")),
            over=over,
            partitions=self._one((None, None, None, 2, 3)) if not over else None,
        )

    def _insight(self, event: str, events: Sequence[str]) -> TimePolicy:
        others = [other for other in events if other < event and self._style == "insight"]
        chosen: dict[str, Any] = {"every": self._one((1, 1, 2, 3))}
        if self._chance(4):
            chosen = {"every": None, "span": self._one(LENGTHS[1:])}
        elif self._chance(5):
            chosen = {"every": None}
        if others and self._chance(3):
            chosen = {"every": None, "imports": self._one(others)}
        return replace(
            streaminsight(
                **chosen,
                delay=self._one((0, 0, -1, -1, 1, SECOND, 2 * SECOND, -SECOND)),
                action=self._one(("drop", "clip", "clip")),
                idle=self._one((None, None, SECOND, 2 * SECOND, 500_000)),
                final=self._chance(3),
            ),
            early=self._one((None, None, None, 0, SECOND)),
        )

    def _apama(self, event: str, sources: tuple[str, ...], least: int | None) -> TimedInput:
        policy = None
        if self._chance(2):
            early = self._one((None, 0, SECOND))
            policy = apama(early=early, leeway=self._one(LENGTHS), reorder=self._one(LENGTHS))
        if self._chance(6):
            return TimedInput(event, policy, sources, least=least)
        heartbeat = self._one((None, f"H{event}", "H"))
        wait = self._one((*LENGTHS[2:], 12 * SECOND, 20 * SECOND))
        return TimedInput(event, policy, sources, wait, self._chance(3), heartbeat, least)

    # ----------------------------------------------------------------------------------------------------- records

    def _records(self, inputs: Sequence[TimedInput], keys: Sequence[str]) -> tuple[Record, ...]:
        events = [item.event for item in inputs]
        beats = [item.heartbeat for item in inputs if item.heartbeat is not None]
        kinds: list[str] = [*events * 12, *beats, "tick", "tick", "punctuation"]
        kinds += ["leeway"] if any(not item.is_chosen for item in inputs) else []
        at, newest = self._start, self._start
        records: list[Record] = []
        for _ in range(self._length):
            at += self._one(self._paces) * SECOND + (self._one(NUDGES) if self._chance(3) else 0)
            at = max(at, records[-1].at) if records else at
            record = self._record(at, newest, self._one(kinds), inputs, keys)
            newest = max(newest, record.time or newest)
            records.append(record)
        return tuple(records)

    def _record(self, at: int, newest: int, kind: str, inputs: Sequence[TimedInput], keys: Sequence[str]) -> Record:
        place: dict[str, Any] = {"source": self._one(self._sources), "partition": self._one(self._partitions)}
        match kind:
            case "tick":
                return Record(at, **place)
            case "leeway":
                return Record(at, leeway=(self._one(LEEWAYS), self._one(LEEWAYS)), **place)
            case "punctuation":
                event = self._one([item.event for item in inputs])
                return Record(at, punctuation=(event, self._time(at, newest, inputs[0])), **place)
        item = next((item for item in inputs if item.event == kind), None)
        time = self._time(at, newest, item or inputs[0])
        nulls = {"k": self._maybe(keys, "k", self._one((0, 0, 1))), "c": self._maybe(keys, "c", self._one("xxy"))}
        bringing = [source for source in (item.sources if item is not None else ()) if source != SILENT]
        place["source"] = self._one(bringing or self._sources)
        given = {**place, **nulls, "v": self._one((0, 1, 2))}
        if item is None:
            return Record(at, kind, None if self._chance(20) else time, **given)
        return self._event(at, item, None if self._chance(25) else time, given)

    def _event(self, at: int, item: TimedInput, time: int | None, given: dict[str, Any]) -> Record:
        shape = self._one((POINT, POINT, INTERVAL, START_EDGE, END_EDGE))
        if item.policy is None or not item.policy.events_last or time is None or self._chance(3):
            return Record(at, item.event, time, **given)
        length = self._one((1, SECOND, 2 * SECOND, 4 * SECOND))
        if shape == END_EDGE and (started := self._started.get(item.event)) is not None:
            return replace(started, at=at, end=(started.time or 0) + length, shape=shape)
        end = None if shape in (POINT, START_EDGE) else time + length
        record = Record(at, item.event, time, **given, end=end, shape=shape)
        if shape == START_EDGE:
            record = replace(record, id=self._one((1, 2)))
            self._started[item.event] = record
        return record

    def _maybe(self, keys: Sequence[str], name: str, value: T) -> T | None:
        return None if name in keys and self._chance(30) else value

    def _time(self, at: int, newest: int, item: TimedInput) -> int:
        """A source time: about the arrival, or the newest time, by one of the policy's own lengths, or one beside it."""
        if self._calm and not self._chance(10):
            return at
        lengths = [0, SECOND, 2 * SECOND, *(length for length in self._own_lengths(item))]
        behind = self._one(lengths) + (self._one(lengths) if self._chance(4) else 0)
        ahead = self._one(lengths) if self._chance(5) else 0
        return (newest if self._chance(2) else at) - behind + ahead + self._one(NUDGES)

    def _own_lengths(self, item: TimedInput) -> list[int]:
        policy = item.policy or TimePolicy("", TimelineKind.KEY)
        leeway = None if item.wait is None else 10 * SECOND if policy.leeway is None else policy.leeway
        own = (item.wait, policy.max_delay, policy.disorder, leeway, policy.every_span)
        early = None if policy.early is None else -policy.early
        return [length for length in (*own, early) if length is not None]
