"""Who is admitted, at what time, and when: the rules of three systems' times, one record after the other.

Plain Python, written from the rules' text with no thought for speed: at every moment at which anything could become due,
everything is looked at again. Uses nothing of `runtime`. Where the rules leave something open:

- newest time: that behind which an idle timer stamps its punctuation is the largest of the admitted times; what is generated
  is stamped by the event that brings it, the one received last;
- a source partition exists once a record of it was judged, even if that was refused; so does a substream;
- a new timeline starts at least at the least bound of the others under the same policy (that is the query's definitive time
  if all inputs have it), so that no key's definitive time goes backwards;
- a source or partition without a record yet has the watermark of its clock, five seconds behind the arrival clock; so has the whole
  stream if no source is declared and none has a record; where each key has its own substream, one without a record of a
  declared source is where it would start, at arrival - late;
- a punctuation for an event type moves every timeline of the sources of that input, those to come included;
- an end edge is judged by its end, and is not an event of its own: it gives its end to the oldest start edge that agrees in type, start
  and payload, has no end yet and still waits; what was released stays as it was;
- end edges are counted in no generation and move no newest time, but restart an idle timer, as refused records do:
  the timer waits for nothing to arrive at all;
- if inputs with a strict release and others meet in a query, an event has to fulfil each one's own condition;
- the end of the input is at the moment of its last record: a final punctuation comes before timers that would be due later;
- a record that is too early is refused whatever its policy and moves only the arrival clock; arrival + early refused it;
- what refused a late record is its timeline's bound, which may be above arrival - late.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from querylang.plan.model import TimelineKind, TimePolicy
from tests.support.timed import END_EDGE, INTERVAL, SECOND, START_EDGE, Record, Timed, TimedInput

Key = tuple[int | str | None, ...]
Place = tuple[str, Key]
"""A timeline of a policy: the source, and its partition or the values of `over`."""

NEVER = float("inf")
LONG_AGO = float("-inf")
UNHEARD = 5 * SECOND
"""How far the clock of a partition that never had input is behind."""

REASONS = ("early", "late", "out_of_order", "null_key", "null_time")


@dataclass(frozen=True)
class Fate:
    """What became of a record: a word of the ledger, "used" where it was admitted as it is.

    `time`: that of the event after adjustment; `bound`: of what was refused, the bound that did it, None where there is none.
    """

    number: int
    offset: int
    source: str
    arrival: int
    what: str
    time: int | None = None
    bound: float | None = None


@dataclass(frozen=True)
class Waiting:
    """An admitted event that definitive time has not reached."""

    fate: Fate
    time: int
    arrival: int
    input: int
    record: Record
    end: int | None


@dataclass(frozen=True)
class Released:
    """An event that entered its partition: `step` is -1 where a timer released it, else the number of the record that did."""

    offset: int
    input: int
    key: Key
    time: int
    arrival: int
    what: str
    emitted: int
    step: int
    definitive: float
    end: int | None = None


@dataclass
class KeyClock:
    """One (input, key), ordered by what the query says: `past` is its bound so far, `held` the (time, due) of delayed events."""

    past: float = LONG_AGO
    held: list[tuple[int, float]] = field(default_factory=list)


@dataclass
class Watermark:
    """One source partition, or substream: the watermark so far, the newest time."""

    level: float
    newest: float = LONG_AGO


@dataclass
class Increments:
    """One event type: the latest punctuation, and what the next one depends on.

    `count`: events since the last one that was generated, `reference`: the start of the event that brought it;
    `quiet_since`: the latest arrival, until the idle timer has rung.
    """

    level: float = LONG_AGO
    newest: float = LONG_AGO
    count: int = 0
    reference: int | None = None
    quiet_since: int | None = None


class TimeOracle:
    """Takes records in order of arrival; `fates` and `released` grow."""

    def __init__(self, query: Timed) -> None:
        self.inputs: tuple[TimedInput, ...] = query.inputs
        self.keys = query.keys
        self.now: int | None = None
        self.leeways = [self._first_leeway(item.policy) for item in query.inputs]
        self.punctuated: dict[str, float] = {}
        self.beaten = [LONG_AGO for _ in query.inputs]
        self.clocks: dict[tuple[int, Key], KeyClock] = {}
        self.watermarks: dict[TimePolicy, dict[Place, Watermark]] = {
            item.policy: {} for item in query.inputs if item.policy is not None and item.policy.timeline in SHARED
        }
        self.increments = [Increments() for _ in query.inputs]
        self.waiting: dict[Key, list[Waiting]] = {}
        self.released: list[Released] = []
        self.fates: list[Fate] = []

    @staticmethod
    def _first_leeway(policy: TimePolicy | None) -> tuple[float, float]:
        given = (None, None) if policy is None else (policy.leeway, policy.reorder)
        leeway, reorder = (10 * SECOND if length is None else length for length in given)
        return leeway, reorder

    # ---------------------------------------------------------------------------------------------- what users see

    def definitive(self, key: Key) -> float:
        """The query's definitive time for a key."""
        return min(self._bound(index, key) for index in range(len(self.inputs)))

    def pending(self) -> int:
        """How many admitted events wait."""
        return sum(map(len, self.waiting.values()))

    def account(self) -> Counter[tuple[str, str]]:
        """The ledger: of each source (source, "received"), and each record once, under one other word."""
        waiting = {event.fate.number for events in self.waiting.values() for event in events}
        found: Counter[tuple[str, str]] = Counter()
        for fate in self.fates:
            found[fate.source, "received"] += 1
            found[fate.source, "pending" if fate.number in waiting else fate.what] += 1
        return found

    # ------------------------------------------------------------------------------------------------------- time

    def take(self, offset: int, record: Record) -> Fate:
        """One record."""
        self.advance(record.at)
        assert self.now is not None
        number = len(self.fates)
        fate = self._judge((number, offset, record.source, self.now), record)
        self.fates.append(fate)
        self._look_at(number)
        return fate

    def advance(self, moment: int) -> None:
        """Time passes; what is due on the way is done in the order in which it was due."""
        while (due := self._next_moment()) <= moment:
            self.now = int(due)
            self._ring()
            self._look_at(-1)
        self.now = moment if self.now is None else max(self.now, moment)

    def finish(self) -> None:
        """The input is bounded and this is its end: final punctuations, then time advances until nothing is due."""
        if self.now is None:
            return
        for item, own in zip(self.inputs, self.increments, strict=True):
            if item.policy is not None and item.policy.is_final:
                own.level = NEVER
        self._look_at(-1)
        while self.pending() and (due := self._next_moment()) < NEVER:
            self.advance(int(due))

    def _next_moment(self) -> float:
        """The earliest moment after now at which time alone could make a difference."""
        return min((due for due in self._moments() if self.now is None or due > self.now), default=NEVER)

    def _moments(self) -> Iterator[float]:
        times = [event.time for events in self.waiting.values() for event in events]
        times += [time for clock in self.clocks.values() for time, _ in clock.held]
        for item in self.inputs:
            delay = item.policy.max_delay if item.is_chosen and item.policy is not None else item.wait or 0
            yield from (time + delay + behind for time in times for behind in (0, UNHEARD) if delay is not None)
        yield from (due for clock in self.clocks.values() for _, due in clock.held if due < NEVER)
        yield from (due for _, due in self._idle_timers())

    def _idle_timers(self) -> Iterator[tuple[Increments, int]]:
        for item, own in zip(self.inputs, self.increments, strict=True):
            if item.policy is not None and item.policy.idle is not None and own.quiet_since is not None:
                yield own, own.quiet_since + item.policy.idle

    def _ring(self) -> None:
        assert self.now is not None
        for own, due in list(self._idle_timers()):
            if due <= self.now:
                own.level = max(own.level, own.newest + 1)
                own.quiet_since = None

    def _look_at(self, step: int) -> None:
        """Release what definitive time has reached, key by key."""
        assert self.now is not None
        for key in sorted(self.waiting, key=repr):
            bounds = [(self._bound(index, key), self._is_strict(index)) for index in range(len(self.inputs))]
            ready = [event for event in self.waiting[key] if all(reached(event.time, *bound) for bound in bounds)]
            self.waiting[key] = [event for event in self.waiting[key] if event not in ready]
            for event in sorted(ready, key=lambda event: (event.time, event.arrival, event.fate.number)):
                place = (event.fate.offset, event.input, key, event.time, event.arrival, event.fate.what)
                least = min(bound for bound, _ in bounds)
                self.released.append(Released(*place, self.now, step, least, event.end))

    def _is_strict(self, index: int) -> bool:
        policy = self.inputs[index].policy
        return policy is not None and policy.is_strict

    # ------------------------------------------------------------------------------------------------------ bounds

    def _bound(self, index: int, key: Key) -> float:
        """No event of this input and key will have a time below it any more."""
        item = self.inputs[index]
        match item.policy:
            case TimePolicy(timeline=TimelineKind.EVENT_TYPE):
                return self._increment(index)
            case TimePolicy(timeline=TimelineKind.PARTITION | TimelineKind.SUBSTREAM):
                return self._least_watermark(item.policy, key)
        return self._key_bound(index, key)

    def _key_bound(self, index: int, key: Key) -> float:
        """Apama: the largest of now - wait, what is trusted, and held times that are due."""
        assert self.now is not None
        item = self.inputs[index]
        if item.wait is None:
            return self.now
        clock = self.clocks.setdefault((index, key), KeyClock())
        told = max(self.beaten[index], self.punctuated.get(item.event, LONG_AGO))
        bound = max(clock.past, self.now - item.wait, told)
        while True:
            clock.held = [(time, due) for time, due in clock.held if time > bound]
            oldest = min((time for time, _ in clock.held), default=None)
            if oldest is None or not any(due <= self.now for time, due in clock.held if time == oldest):
                break
            bound = max(bound, oldest)
        clock.past = bound
        return bound

    def _least_watermark(self, policy: TimePolicy, key: Key) -> float:
        """Stream Analytics: the least over the timelines, of the key's own substream where the key tells it."""
        places = self.watermarks[policy]
        sources = {source for item in self.inputs if item.policy == policy for source in item.sources}
        own = self._own_substream(policy, key)
        bounds = [self._watermark(policy, place) for place in places if own is None or place[1] == own]
        heard = Counter(source for source, values in places if own is None or values == own)
        behind = self._behind(policy, UNHEARD if own is None else 0)
        wanted = policy.partitions or 1 if policy.timeline is TimelineKind.PARTITION else 1
        silent = [source for source in sources | set(heard) or {""} if heard[source] < wanted]
        return min(bounds + [max(self._told(policy, source), behind) for source in silent])

    def _own_substream(self, policy: TimePolicy, key: Key) -> Key | None:
        if policy.timeline is not TimelineKind.SUBSTREAM or not set(policy.over) <= set(self.keys):
            return None
        named = dict(zip(self.keys, key, strict=True))
        return tuple(named[name] for name in policy.over)

    def _watermark(self, policy: TimePolicy, place: Place) -> float:
        return max(self.watermarks[policy][place].level, self._behind(policy, 0), self._told(policy, place[0]))

    def _behind(self, policy: TimePolicy, more: int) -> float:
        """Where the arrival clock alone brings a timeline."""
        assert self.now is not None
        return LONG_AGO if policy.max_delay is None else self.now - more - policy.max_delay

    def _told(self, policy: TimePolicy, source: str) -> float:
        """What punctuations say of a source."""
        told = [
            self.punctuated[item.event]
            for item in self.inputs
            if item.policy == policy and item.event in self.punctuated and source in (item.sources or (source,))
        ]
        return max(told, default=LONG_AGO)

    def _increment(self, index: int) -> float:
        """StreamInsight: the latest punctuation, the input's own or another's."""
        item = self.inputs[index]
        assert item.policy is not None
        imported = LONG_AGO
        if item.policy.imports is not None:
            others = [number for number, other in enumerate(self.inputs) if other.event == item.policy.imports]
            imported = max((self._increment(number) for number in others), default=LONG_AGO)
            imported = max(imported, self.punctuated.get(item.policy.imports, LONG_AGO))
        return max(self.increments[index].level, self.punctuated.get(item.event, LONG_AGO), imported)

    # ----------------------------------------------------------------------------------------------------- records

    def _judge(self, place: tuple[int, int, str, int], record: Record) -> Fate:
        if record.leeway is not None:
            leeway, reorder = (length if length == NEVER else round(length * SECOND) for length in record.leeway)
            self.leeways = [(leeway, reorder) for _ in self.inputs]
            return Fate(*place, "control")
        if record.punctuation is not None:
            event, time = record.punctuation
            self.punctuated[event] = max(self.punctuated.get(event, LONG_AGO), time)
            return Fate(*place, "control")
        if record.event is None:
            return Fate(*place, "tick")
        index = next((number for number, item in enumerate(self.inputs) if item.event == record.event), None)
        if index is None:
            return Fate(*place, self._heartbeat(record), record.time)
        return self._event(place, record, index)

    def _heartbeat(self, record: Record) -> str:
        served = [index for index, item in enumerate(self.inputs) if item.heartbeat == record.event]
        if not served:
            return "unrelated"
        is_keyed = bool(self.keys) and record.event != "H"
        key = record.values(self.keys) if is_keyed else ()
        if None in key:
            return "null_key"
        if record.time is None:
            return "null_time"
        for index in served:
            if is_keyed:
                clock = self.clocks.setdefault((index, key), KeyClock())
                clock.past = max(clock.past, record.time)
            else:
                self.beaten[index] = max(self.beaten[index], record.time)
        return "heartbeat"

    def _event(self, place: tuple[int, int, str, int], record: Record, index: int) -> Fate:
        assert self.now is not None
        item = self.inputs[index]
        key = record.values(self.keys)
        if item.least is not None and record.v < item.least:
            return Fate(*place, "filtered")
        over = item.policy.over if item.policy is not None else ()
        if None in (*key, *record.values(over)):
            return Fate(*place, "null_key")
        by_arrival = item.wait is None and not item.is_chosen
        time = self.now if by_arrival else record.end if record.shape == END_EDGE else record.time
        if time is None:
            return Fate(*place, "null_time")
        what, time, bound = self._verdict(index, key, record, time)
        fate = Fate(*place, what, None if what in REASONS else time, bound)
        if what not in REASONS and record.shape == END_EDGE and item.is_chosen:
            self._end(key, record)
        elif what not in REASONS:
            self.waiting.setdefault(key, []).append(Waiting(fate, time, self.now, index, record, record.end))
        return fate

    def _end(self, key: Key, record: Record) -> None:
        """The oldest open start edge of the same event ends."""
        waiting = self.waiting.get(key, [])
        for place, event in enumerate(waiting):
            if event.record.shape == START_EDGE and event.end is None and event.record.identity == record.identity:
                waiting[place] = replace(event, end=record.end)
                return

    def _verdict(self, index: int, key: Key, record: Record, time: int) -> tuple[str, int, float | None]:
        """The word of the ledger, the time after adjustment, and the bound that refused it."""
        assert self.now is not None
        item = self.inputs[index]
        policy = item.policy
        early = policy.early if policy is not None else None
        is_early = early is not None and time - self.now > early
        match policy:
            case TimePolicy(timeline=TimelineKind.EVENT_TYPE):
                self.increments[index].quiet_since = self.now
                return self._too_early(early, time) if is_early else self._incremented(index, policy, record, time)
            case TimePolicy(timeline=TimelineKind.PARTITION | TimelineKind.SUBSTREAM):
                place = self._place(policy, record)
                self._start(policy, place, key)
                return self._too_early(early, time) if is_early else self._watermarked(policy, place, time)
        return self._too_early(early, time) if is_early else self._trusted(index, key, time)

    def _too_early(self, early: int | None, time: int) -> tuple[str, int, float | None]:
        assert self.now is not None
        assert early is not None
        return "early", time, self.now + early

    def _trusted(self, index: int, key: Key, time: int) -> tuple[str, int, float | None]:
        """Apama."""
        assert self.now is not None
        item = self.inputs[index]
        bound = self._bound(index, key)
        if time < bound:
            is_late = item.wait is not None and time < self.now - item.wait
            return ("late" if is_late else "out_of_order"), time, bound
        if item.wait is not None and not item.out_of_order:
            leeway, reorder = self.leeways[index]
            clock = self.clocks[index, key]
            if self.now - time > leeway:
                clock.held.append((time, self.now + reorder))
            else:
                clock.past = max(clock.past, time)
        return "used", time, None

    @staticmethod
    def _place(policy: TimePolicy, record: Record) -> Place:
        return record.source, record.values(policy.over) if policy.timeline is TimelineKind.SUBSTREAM else (
            record.partition,
        )

    def _start(self, policy: TimePolicy, place: Place, key: Key) -> None:
        """A timeline without a record until now."""
        if place not in self.watermarks[policy]:
            so_far = self._least_watermark(policy, key)
            self.watermarks[policy][place] = Watermark(max(self._behind(policy, 0), so_far))

    def _watermarked(self, policy: TimePolicy, place: Place, time: int) -> tuple[str, int, float | None]:
        """Stream Analytics."""
        assert self.now is not None
        line = self.watermarks[policy][place]
        bound = self._watermark(policy, place)
        what = "used"
        if policy.max_delay is not None and self.now - time > policy.max_delay:
            if policy.action == "drop":
                return "late", time, bound
            what, time = "adjusted_late", self.now - policy.max_delay
        if time < bound:
            if policy.action == "drop":
                return "out_of_order", time, bound
            what, time = "adjusted_out_of_order" if what == "used" else what, int(bound)
        line.newest = max(line.newest, time)
        line.level = max(bound, line.newest - policy.disorder)
        return what, time, None

    def _incremented(self, index: int, policy: TimePolicy, record: Record, time: int) -> tuple[str, int, float | None]:
        """StreamInsight."""
        bound = self._increment(index)
        what = "used"
        if time < bound:
            reaches_past = record.shape == START_EDGE or (
                record.shape == INTERVAL and record.end is not None and record.end > bound
            )
            if policy.action == "drop" or not reaches_past:
                return "out_of_order", time, bound
            what, time = "adjusted_out_of_order", int(bound)
        if record.shape != END_EDGE:
            self._generate(self.increments[index], policy, time)
        return what, time, None

    @staticmethod
    def _generate(own: Increments, policy: TimePolicy, time: int) -> None:
        """Count an event, and stamp a punctuation if it is the one that brings it."""
        own.newest = max(own.newest, time)
        own.count += 1
        is_due = policy.every is not None and own.count >= policy.every
        if policy.every_span is not None:
            is_due = own.reference is None or time - own.reference >= policy.every_span
        if is_due:
            own.count, own.reference = 0, time
            own.level = max(own.level, time - policy.disorder)


SHARED = (TimelineKind.PARTITION, TimelineKind.SUBSTREAM)
"""Timelines that all inputs under a policy have in common."""


def reached(time: int, bound: float, is_strict: bool) -> bool:
    """Whether an event of this time may be released as far as one input is concerned."""
    return time < bound if is_strict else time <= bound


def run(query: Timed, *, finish: bool = True) -> TimeOracle:
    """The whole stream."""
    oracle = TimeOracle(query)
    for offset, record in query.ordered():
        oracle.take(offset, record)
    if finish:
        oracle.finish()
    return oracle
