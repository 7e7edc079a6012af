"""One query for single events: when each is released, and what it finds then."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from querylang.plan.model import Plan, QueryPlan, known
from runtime.admission.key_times import KeyTimes, Lengths, Release
from runtime.instants import NEVER, NO_TIME
from runtime.interpreter.values import Event
from runtime.policies.per_input import NO_WAIT
from runtime.single_events.known import Finding, Key, Known, SingleEvent, UnforeseenError
from runtime.single_events.windows import Windows

_MOST_KEYS = 1_000
"""So many keys have timelines at least before those that do not matter any more are forgotten."""


@dataclass(slots=True)
class Brought:
    """What an event or a timer brings; `is_known` False: the engine knows more."""

    found: list[Finding] = field(default_factory=list)
    is_known: bool = True


class SingleQuery:
    """The windows, pending events and pending matches of a query."""

    def __init__(self, plan: Plan, query: QueryPlan) -> None:
        self.query, self.windows = query, Windows(plan, query)
        self._wait = 0 if query.trailing is None else known(query.trailing.duration)
        self._inputs = {item.event: number for number, item in enumerate(query.inputs)}
        self._lengths = Lengths.of(query)
        self._times: dict[Key, KeyTimes[Known | Finding]] = {}
        self._waits: dict[Key, dict[int, Finding]] = {}
        self._timers: list[tuple[int, int, Key]] = []
        # By key the earliest of its timers, µs; later ones are void.
        self._due: dict[Key, int] = {}
        self._number, self._most = 0, _MOST_KEYS

    def take(self, event: SingleEvent, source_time: int) -> Brought:
        """Adds an event that arrives now; `source_time`: µs, NO_TIME = none.

        Raises UnforeseenError; then this object is of no use any more.
        """
        item = self._inputs.get(event.type.name)
        if item is None:
            return Brought()
        has_wait = self._lengths.delay[item] != NO_WAIT
        time = source_time if has_wait else event.arrival
        value = Event(event.type, dict(event.values), time)
        new = Known(item, time, value, arrival=event.arrival, source_time=source_time, place=event.place)
        if not self.windows.is_selected(new):
            return Brought()
        key = self.windows.key_of(new)
        times = self._times_of(key)
        if has_wait and (time == NO_TIME or times.refuses(item, time, event.arrival)):
            return Brought(is_known=False)  # the engine has words for the reason
        times.admit(item, time, event.arrival, self._next_number(), new)
        return self._released(key, times, times.release(event.arrival, self._number))

    def expire(self, now: int) -> Brought:
        """Runs the timers that expire up to now, µs. Raises UnforeseenError as `take`."""
        brought = Brought()
        while self._timers and self._timers[0][0] <= now:
            due, _, key = heappop(self._timers)
            if self._due.get(key) != due:
                continue
            del self._due[key]
            times = self._times.get(key)
            if times is not None:
                more = self._released(key, times, times.expire(now))
                brought.found += more.found
                brought.is_known &= more.is_known
        if len(self._times) > self._most:
            self._times = {key: times for key, times in self._times.items() if times.matters(now)}
            self._most = max(_MOST_KEYS, 2 * len(self._times))
        return brought

    def load_pending(self, event: Known, until: int) -> None:
        """Adds an event that was not released yet; `until`: as in `KeyTimes.load`."""
        key = self.windows.key_of(event)
        self._times_of(key).load(event.input, event.time, self._next_number(), until, event)

    def load_bound(self, key: Key, item: int, bound: int) -> None:
        """Adds the bound of a timeline, µs."""
        self._times_of(key).bound[item] = bound

    def load_wait(self, found: Finding, due: int) -> None:
        """Adds a match that waits until `due`, µs."""
        key = self.windows.key_of(found.latest)
        self._begin(key, self._times_of(key), replace(found, time=due))

    def loaded(self) -> None:
        """All that was stored has been added."""
        for key, times in self._times.items():
            self._set_timer(key, times)

    def _times_of(self, key: Key) -> KeyTimes[Known | Finding]:
        times = self._times.get(key)
        if times is None:
            times = self._times[key] = KeyTimes.of(self._lengths)
        return times

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _released(
        self, key: Key, times: KeyTimes[Known | Finding], releases: Iterable[Release[Known | Finding]]
    ) -> Brought:
        brought = Brought()
        for release in releases:
            entry = release.entry
            if isinstance(entry, Finding):
                self._end(key, entry)
                found: list[Finding] | None = [entry]
            else:
                for wait in list(self._waits.get(key, {}).values()):
                    if not self.windows.outlives(wait, entry):
                        times.forget(wait.rank)
                        self._end(key, wait)
                found = self.windows.take(key, entry, release.definitive)
                if self.query.trailing is not None:
                    found = self._begun(key, times, found)
            told = found or []
            brought.is_known &= found is not None and all(item.has_places for item in told)
            brought.found += [_at(release, item) for item in told]
        self._set_timer(key, times)
        return brought

    def _begun(self, key: Key, times: KeyTimes[Known | Finding], found: list[Finding] | None) -> list[Finding]:
        """These matches wait; nothing is found before they have waited."""
        if found is None:
            raise UnforeseenError
        for item in found:
            self._begin(key, times, replace(item, time=item.time + self._wait))
        return []

    def _begin(self, key: Key, times: KeyTimes[Known | Finding], found: Finding) -> None:
        numbered = replace(found, rank=self._next_number())
        self._waits.setdefault(key, {})[numbered.rank] = numbered
        times.wait(numbered.time, numbered.rank, numbered)

    def _end(self, key: Key, found: Finding) -> None:
        del self._waits[key][found.rank]
        if not self._waits[key]:
            del self._waits[key]

    def _set_timer(self, key: Key, times: KeyTimes[Known | Finding]) -> None:
        if times.pending:
            due = times.next_change
            if due < self._due.get(key, NEVER + 1):
                self._due[key] = due
                heappush(self._timers, (due, self._next_number(), key))
        elif not self._lengths.longest:
            del self._times[key]


def _at(release: Release[Known | Finding], found: Finding) -> Finding:
    return replace(found, definitive=release.definitive, emitted=release.moment, waited=release.waited)
