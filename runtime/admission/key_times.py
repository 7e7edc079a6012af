"""When the events and timers of one key are released: `per_key`, one at a time, in plain Python.

The rules, and the words for them, are explained there.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Generic, NamedTuple, TypeVar

from querylang.dataclass import dataclass, field
from querylang.plan.model import QueryPlan
from runtime.admission.arrays import BoundRule, Waited
from runtime.input_policies import NO_WAIT, policy_columns
from runtime.instants import NEVER, NO_TIME

Entry = TypeVar("Entry")


class Release(NamedTuple, Generic[Entry]):
    """Something that has become definitive.

    moment: when, µs
    definitive: definitive time then, µs
    waited: what it waited for
    """

    entry: Entry
    moment: int
    definitive: int
    waited: Waited


@dataclass(frozen=True, slots=True)
class Lengths:
    """The settings of a query's inputs, in µs, as in `runtime.input_policies.PolicyColumns`."""

    delay: tuple[int, ...]
    moves: tuple[bool, ...]
    early: tuple[int, ...]
    leeway: tuple[int, ...]
    reorder: tuple[int, ...]

    @staticmethod
    def of(query: QueryPlan) -> Lengths:
        """Those of a query without shared clocks."""
        return Lengths(*(tuple(column.tolist()) for column in policy_columns(query)))

    @property
    def longest(self) -> int:
        """The largest delay; inputs without wait count as 0."""
        return max(0, *self.delay)


@dataclass(slots=True)
class KeyTimes(Generic[Entry]):
    """The timelines of a key, and what is pending there.

    bound: by input, the bound by its records
    pending: a heap of (time, 0 = an event and 1 = a timer, number, end of the buffer, entry)
    delayed: by input, a heap of (time, end of the buffer) of delayed events
    """

    lengths: Lengths
    bound: list[int]
    pending: list[tuple[int, int, int, int, Entry]] = field(default_factory=list)
    delayed: list[list[tuple[int, int]]] = field(default_factory=list)

    @staticmethod
    def of(lengths: Lengths) -> KeyTimes[Entry]:
        """A key without events."""
        inputs = range(len(lengths.delay))
        return KeyTimes(lengths, [NO_TIME for _ in inputs], [], [[] for _ in inputs])

    def refuses(self, item: int, time: int, now: int) -> bool:
        """Whether a record of an input that arrives now is early, late or out of order."""
        delay = self.lengths.delay[item]
        return time - now > self.lengths.early[item] or time < max(self.bound[item], now - delay)

    def admit(
        self, item: int, time: int, now: int, number: int, entry: Entry, *, rule: int = BoundRule.BY_INPUT
    ) -> None:
        """A record that is not refused; `number`: of the record."""
        until, lengths = NO_TIME, self.lengths
        moves = lengths.moves[item] if rule == BoundRule.BY_INPUT else rule == BoundRule.IN_ORDER
        if lengths.delay[item] != NO_WAIT and moves:
            if now - time > lengths.leeway[item]:
                until = NEVER if lengths.reorder[item] >= NEVER else now + lengths.reorder[item]
                heappush(self.delayed[item], (time, until))
            else:
                self.bound[item] = time
        heappush(self.pending, (time, 0, number, until, entry))

    def load(self, item: int, time: int, number: int, until: int, entry: Entry) -> None:
        """An event that was pending; `until`: NO_TIME = it is not delayed."""
        heappush(self.pending, (time, 0, number, until, entry))
        if until != NO_TIME:
            heappush(self.delayed[item], (time, until))

    def wait(self, due: int, number: int, entry: Entry) -> None:
        """A timer."""
        heappush(self.pending, (due, 1, number, NO_TIME, entry))

    def forget(self, number: int) -> None:
        """A timer that has ended early."""
        self.pending = [entry for entry in self.pending if entry[1:3] != (1, number)]
        heapify(self.pending)

    def matters(self, now: int) -> bool:
        """Whether it is of use after now, µs."""
        behind = zip(self.bound, self.lengths.delay, strict=True)
        return bool(self.pending) or any(bound > now - delay for bound, delay in behind)

    def expire(self, now: int) -> Iterator[Release[Entry]]:
        """Runs the timers that expire up to now, each at its own moment."""
        while self.pending:
            moment = self.next_change
            if moment > now or moment >= NEVER:
                return
            definitive, buffer_ended = self._advance(moment)
            while self.pending and self.pending[0][0] <= definitive:
                entry = heappop(self.pending)[4]
                yield Release(entry, moment, definitive, Waited.REORDER if buffer_ended else Waited.WAIT)

    def release(self, now: int, newest: int) -> Iterator[Release[Entry]]:
        """What a record made definitive that arrived now; `newest`: its number."""
        definitive, _ = self._advance(now)
        while self.pending and self.pending[0][0] <= definitive:
            _, is_timer, number, until, entry = heappop(self.pending)
            waited = Waited.WAIT
            if not is_timer and number == newest:
                waited = Waited.NONE
            elif until != NO_TIME:
                waited = Waited.LEEWAY
            yield Release(entry, now, definitive, waited)

    def definitive(self, now: int) -> int:
        """Definitive time now, µs; no buffer ends."""
        return min(
            now if delay == NO_WAIT else max(bound, now - delay)
            for bound, delay in zip(self.bound, self.lengths.delay, strict=True)
        )

    def _advance(self, now: int) -> tuple[int, bool]:
        """Advances the bounds by buffers that have ended: definitive time, and whether one has."""
        definitive, buffer_ended = NEVER, False
        for item, delay in enumerate(self.lengths.delay):
            reached = now if delay == NO_WAIT else max(self.bound[item], now - delay)
            delayed = self.delayed[item]
            while delayed:
                oldest, until = delayed[0]
                if oldest > reached:
                    if until > now:
                        break
                    self.bound[item] = reached = oldest
                    buffer_ended = True
                heappop(delayed)
            definitive = min(definitive, reached)
        return definitive, buffer_ended

    @property
    def next_change(self) -> int:
        """When arrival time alone changes something, µs; something is pending."""
        time, release_at, delayed_end = self.pending[0][0], NO_TIME, NEVER
        for item, delay in enumerate(self.lengths.delay):
            if delay == NO_WAIT:
                release_at = max(release_at, time)
            elif self.bound[item] < time:
                release_at = max(release_at, time + delay)
            if self.delayed[item]:
                oldest, until = self.delayed[item][0]
                delayed_end = min(delayed_end, until, oldest + delay)
        return min(release_at, delayed_end)
