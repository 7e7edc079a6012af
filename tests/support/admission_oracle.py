"""Who is admitted, when, and in what order: the rules of Apama's time, one row after the other, in plain Python.

Written from the rules' text for one query, with no thought for speed: at every moment at which anything could become
due, everything is looked at again. Uses nothing of `runtime`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tests.support.scenario import EVENTS, SECOND, InputSetup, Row, Scenario, key_of, may_be_key, null_first

Key = tuple[int | str | None, ...]
NEVER = float("inf")
LONG_AGO = float("-inf")


@dataclass(frozen=True)
class Released:
    """An event that entered its partition: `step` is -1 where a timer released it, else the row's number."""

    offset: int
    input: int
    key: Key
    time: int
    arrival: int
    number: int
    emitted: int
    step: int
    definitive: float
    row: Row


@dataclass(frozen=True)
class Fate:
    """What became of a row: a word of the ledger; where refused, the bound that did it."""

    offset: int
    what: str
    bound: float | None = None


@dataclass(frozen=True)
class Waiting:
    """An admitted event that definitive time has not reached."""

    time: int
    arrival: int
    number: int
    offset: int
    input: int
    row: Row


@dataclass(frozen=True)
class Alarm:
    """Something waits until definitive time reaches `due`, since the `count`-th event of its partition entered."""

    due: int
    count: int


@dataclass(frozen=True)
class Rung:
    """An alarm that definitive time has reached; the rest as in `Released`."""

    alarm: Alarm
    key: Key
    emitted: int
    step: int
    definitive: float


Timer = Callable[[Sequence["Released"]], int | None]
"""When, after the last of these events of a partition entered, something is to be looked at again; None: never."""


@dataclass
class Timeline:
    """One (input, key): `past` is its definitive time so far, `held` the (time, due) of delayed events."""

    past: float = LONG_AGO
    held: list[tuple[int, float]] = field(default_factory=list)


@dataclass
class Partition:
    """One key."""

    timelines: list[Timeline]
    waiting: list[Waiting] = field(default_factory=list)
    entered: list[Released] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)


class AdmissionOracle:
    """Takes rows in order of arrival; `released`, `rung` and `fates` grow. `timer` sets the alarms."""

    def __init__(self, scenario: Scenario, timer: Timer = lambda _: None) -> None:
        self.timer = timer
        self.inputs: tuple[InputSetup, ...] = scenario.inputs
        self.keys = scenario.keys
        self.now: int | None = None
        self.leeway: float = 10 * SECOND
        self.reorder: float = 10 * SECOND
        self.everywhere: list[float] = [LONG_AGO for _ in self.inputs]
        self.partitions: dict[Key, Partition] = {}
        self.released: list[Released] = []
        self.rung: list[Rung] = []
        self.fates: list[Fate] = []
        self.number = 0

    def take(self, offset: int, row: Row) -> None:
        """One row."""
        self.advance(row.at)
        self.number += 1
        self.fates.append(self._judge(offset, row))

    def advance(self, moment: int) -> None:
        """Time passes; what is due on the way is done in the order in which it was due."""
        while (due := self._next_moment()) <= moment:
            self.now = int(due)
            self._look_at(self.partitions, -1)
        self.now = moment if self.now is None else max(self.now, moment)

    def flush(self) -> None:
        """Time advances until no event is held any more."""
        while self.pending():
            due = self._next_moment()
            assert due < NEVER, "what waits waits for some moment"
            self.advance(int(due))

    def pending(self) -> int:
        """How many events and alarms are waiting."""
        return sum(len(partition.waiting) + len(partition.alarms) for partition in self.partitions.values())

    def definitive(self, key: Key) -> float:
        """The query's definitive time for a key."""
        partition = self.partitions.get(key) or self._new()
        return min(self._bound(index, partition) for index in range(len(self.inputs)))

    def _new(self) -> Partition:
        return Partition([Timeline() for _ in self.inputs])

    def _next_moment(self) -> float:
        """The earliest moment after now at which time alone could make a difference."""
        return min((due for due in self._moments() if self.now is None or due > self.now), default=NEVER)

    def _moments(self) -> set[float]:
        """Every moment at which time alone could make a difference."""
        found: set[float] = set()
        for partition in self.partitions.values():
            times = [event.time for event in partition.waiting]
            times += [time for timeline in partition.timelines for time, _ in timeline.held]
            times += [alarm.due for alarm in partition.alarms]
            found.update(time + (item.wait or 0) for time in times for item in self.inputs)
            found.update(due for timeline in partition.timelines for _, due in timeline.held if due < NEVER)
        return found

    def _bound(self, index: int, partition: Partition) -> float:
        """Definitive time of one input now; remembers it."""
        assert self.now is not None
        wait = self.inputs[index].wait
        if wait is None:
            return self.now
        timeline = partition.timelines[index]
        bound = max(timeline.past, self.now - wait, self.everywhere[index])
        while True:
            timeline.held = [(time, due) for time, due in timeline.held if time > bound]
            oldest = min((time for time, _ in timeline.held), default=None)
            if oldest is None or not any(due <= self.now for time, due in timeline.held if time == oldest):
                break
            bound = max(bound, oldest)
        timeline.past = bound
        return bound

    def _look_at(self, keys: Iterable[Key], step: int) -> None:
        """Release what definitive time has reached."""
        assert self.now is not None
        for key in sorted(keys, key=null_first):
            partition = self.partitions[key]
            definitive = self.definitive(key)
            ready = [event for event in partition.waiting if event.time <= definitive]
            partition.waiting = [event for event in partition.waiting if event.time > definitive]
            for event in sorted(ready, key=lambda event: (event.time, event.arrival, event.number)):
                place = (event.offset, event.input, key, event.time, event.arrival, event.number)
                self._enter(partition, Released(*place, self.now, step, definitive, event.row))
            due = [alarm for alarm in partition.alarms if alarm.due <= definitive]
            partition.alarms = [alarm for alarm in partition.alarms if alarm.due > definitive]
            for alarm in sorted(due, key=lambda alarm: (alarm.due, alarm.count)):
                self.rung.append(Rung(alarm, key, self.now, step, definitive))

    def _enter(self, partition: Partition, event: Released) -> None:
        self.released.append(event)
        partition.entered.append(event)
        due = self.timer(partition.entered)
        if due is not None:
            partition.alarms.append(Alarm(due, len(partition.entered)))

    def _judge(self, offset: int, row: Row) -> Fate:
        if row.kind in {"tick", "malformed"}:
            return Fate(offset, row.kind)
        if row.kind == "unknown":
            return Fate(offset, "unknown_type")
        if row.kind == "control":
            return Fate(offset, self._control(row))
        if row.kind in EVENTS:
            index = next((index for index, item in enumerate(self.inputs) if item.event == row.kind), None)
            return Fate(offset, "unrelated") if index is None else self._event(offset, row, index)
        return Fate(offset, self._heartbeat(row))

    def _control(self, row: Row) -> str:
        if row.leeway is not None:
            self.leeway, self.reorder = (length if length == NEVER else round(length * SECOND) for length in row.leeway)
        return "control"

    def _heartbeat(self, row: Row) -> str:
        served = [index for index, item in enumerate(self.inputs) if item.heartbeat == row.kind]
        if not served:
            return "unrelated"
        keyed = bool(self.keys) and row.kind != "H"
        key = key_of(row, self.keys) if keyed else ()
        missing = {name for index in served for name in self.inputs[index].missing}
        if keyed and not may_be_key(key, self.keys, missing):
            return "null_key"
        if row.time is None:
            return "null_time"
        for index in served:
            if keyed:
                timeline = self.partitions.setdefault(key, self._new()).timelines[index]
                timeline.past = max(timeline.past, row.time)
            else:
                self.everywhere[index] = max(self.everywhere[index], row.time)
        self._look_at([key] if keyed else self.partitions, self.number)
        return "heartbeat"

    def _event(self, offset: int, row: Row, index: int) -> Fate:
        assert self.now is not None
        item = self.inputs[index]
        key = key_of(row, self.keys)
        if not all(rule.takes(getattr(row, rule.field)) for rule in item.filters):
            return Fate(offset, "filtered")
        if not may_be_key(key, self.keys, item.missing):
            return Fate(offset, "null_key")
        time = row.at if item.wait is None else row.time
        if time is None:
            return Fate(offset, "null_time")
        partition = self.partitions.setdefault(key, self._new())
        bound = self._bound(index, partition)
        if time < bound:
            late = item.wait is not None and time < self.now - item.wait
            return Fate(offset, "late" if late else "out_of_order", bound)
        partition.waiting.append(Waiting(time, row.at, self.number, offset, index, row))
        if item.wait is not None and not item.out_of_order:
            timeline = partition.timelines[index]
            if self.now - time > self.leeway:
                timeline.held.append((time, self.now + self.reorder))
            else:
                timeline.past = max(timeline.past, time)
        self._look_at([key], self.number)
        return Fate(offset, "used")


def run(scenario: Scenario, timer: Timer = lambda _: None, *, flush: bool = True) -> AdmissionOracle:
    """The whole stream."""
    oracle = AdmissionOracle(scenario, timer)
    for offset, row in scenario.ordered():
        oracle.take(offset, row)
    if flush and oracle.now is not None:
        oracle.flush()
    return oracle
