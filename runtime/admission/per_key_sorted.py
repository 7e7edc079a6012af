"""The fast path of per-key admission: sorts a key's events once instead of keeping them in heaps.

It is for keys without delayed events, in calls without heartbeats. `runtime.admission.per_key`, the
general path, is for all others and costs several times as much. Both give the same answer:

1. A bound rises only with the clock, `arrival - delay`, and with admitted records. The general path
   lets every admitted record advance its input's bound at once unless it is delayed. So the bound
   is a step function of the records' arrival. One pass over the records finds its steps
   (`Advances`), and judges each record against the step before it.
2. The general path releases an event at the first moment at which all timelines have reached its
   time. Each timeline reaches it by its clock, or by the first record at or above that time. So the
   moment of release is the latest of these, and known after the pass. Shared clocks are alike.
3. The general path releases the least pending entry (time, number) first. Here entries are sorted
   by the same two. The moments of release never go back along that order, because timelines that
   have reached a time have reached every earlier one. And no event arrives after a release that it
   should precede, because it would be below the bound. So events leave in the same order.
4. At one moment the clock comes before the records, and these come in order of arrival. Pairs of
   (moment, record) are compared, and `TIMER`, -1, is below every record.
"""

from __future__ import annotations

from runtime.admission.arrays import (
    TIMER,
    KeyedRows,
    Leaving,
    Places,
    Waited,
    advances_bound,
    copy_window,
    end_of_window,
    is_ready,
    leeway_at,
    ready_of,
    release,
)
from runtime.admission.rules import Outcome, judge, own_settings
from runtime.admission.workspace import Admission, Advances, Facts, KeyWorkspace, Progress, pop, push
from runtime.column_types import Integers
from runtime.columns.arrivals import Shape
from runtime.compiling.compiled import borrowing, inlined
from runtime.input_policies import BY_CLOCK, NO_WAIT
from runtime.instants import NEVER, NO_TIME

MAX_MOVES = 16
"""Insertion sort is given up for a heap after so many moves per entry.

Arrivals are nearly in order, or not at all.
"""

HAS_DELAYED = -1
"""Instead of a number of entries: the key has a delayed event and needs the general path."""


@borrowing
def admit_sorted(admission: Admission, facts: Facts, workspace: KeyWorkspace, progress: Progress) -> Progress:
    """Fills the outcome and the bounds key by key, up to the first key that has a delayed event."""
    rows, places, released, bounds = admission.rows, admission.places, admission.released, admission.bounds
    everywhere, advances = admission.everywhere, workspace.advances
    key, out, pending_out, next_timer, last_release = progress
    # Short cut: if no record advances a bound and none has, all bounds are NO_TIME and stay so.
    inputs = 0 if facts.only_clock else len(everywhere)
    while key < len(rows.start) - 1:
        bound, is_moved = bounds[key], False
        for item in range(inputs):
            advances.size[item] = 0
            advances.next_reaching[item] = 0
            advances.next_after[item] = 0
            is_moved = is_moved or bound[item] != NO_TIME or everywhere[item] != NO_TIME

        # 1. Judge the records: what they advance, and what waits for its release.
        window_end = end_of_window(rows, key)
        size = _collect(admission, workspace, bound, key, window_end)
        if size == HAS_DELAYED:
            break
        for item in range(inputs):
            is_moved = is_moved or advances.size[item] > 0

        # 2. The stored window, then releases in total order; what is left stays pending.
        released.start[key] = out
        out = copy_window(rows, places, released, rows.start[key], window_end, out)
        released.fresh[key] = out
        released.pending_start[key] = pending_out
        done = Progress(key, out, pending_out, next_timer, last_release)
        key, out, pending_out, next_timer, last_release = _release_sorted(
            admission, facts, workspace, bound, size, is_moved, done
        )

        # 3. The next call begins with the bounds of the last advances. Advances are strictly
        #    increasing and start above `bound`, so none goes back.
        for item in range(inputs):
            if advances.size[item] > 0:
                bound[item] = advances.time[item, advances.size[item] - 1]
    return Progress(key, out, pending_out, next_timer, last_release)


@inlined
def _collect(admission: Admission, workspace: KeyWorkspace, bound: Integers, key: int, begin: int) -> int:
    """Collects a key's pending events, its admitted new ones and its timers; returns their number.

    bound: by input, the bound after earlier calls
    begin: the first place behind the window

    After HAS_DELAYED the general path writes all of the key again, verdicts too.
    """
    rows, places, policies, timers = admission.rows, admission.places, admission.policies, admission.timers
    punctuation, released, everywhere = admission.punctuation, admission.released, admission.everywhere
    advances, times, entries = workspace.advances, workspace.pending_time, workspace.pending_entry
    size, first_new, change = 0, rows.first_new, 0
    # Invariant: `advances` holds the bounds of each input by the records before `place`, which is
    # all that the verdict on this record depends on; no release can change it.
    for place in range(begin, rows.start[key + 1]):
        row, item, time = rows.key_rows[place], places.input[place], places.time[place]
        is_admitted = item >= 0
        if row < first_new:
            if admission.buffer_end[row] != NO_TIME:
                return HAS_DELAYED
        elif is_admitted:
            now = places.arrival[place]
            if policies.delay[item] == NO_WAIT:
                time = now
                admission.times[row] = now
                places.time[place] = now
            elif policies.delay[item] == BY_CLOCK:
                is_admitted = released.verdict[row - first_new] == Outcome.USED
            else:
                # the bound by records and heartbeats, then the clock's
                reached = max(bound[item], everywhere[item])
                if advances.size[item] > 0:
                    reached = max(reached, advances.time[item, advances.size[item] - 1])
                floor = max(reached, now - policies.delay[item])
                judged = judge(own_settings(policies, item), floor, time, now, Shape.POINT, NO_TIME)
                is_admitted = judged.is_admitted
                if not is_admitted:
                    released.verdict[row - first_new] = judged.reason
                    released.verdict_bound[row - first_new] = judged.bound
                elif advances_bound(rows, policies, row, item):
                    change = leeway_at(punctuation, change, row)
                    # Only now is it known that the key has a delayed event: what was written of it
                    # is written again by the general path, from the same values.
                    if now - time > punctuation.leeway[change, item]:
                        return HAS_DELAYED
                    if time > reached:
                        advances.time[item, advances.size[item]] = time
                        advances.place[item, advances.size[item]] = place
                        advances.size[item] += 1
        if is_admitted:
            times[size] = time
            entries[size] = place
            size += 1
    for timer in range(timers.start[key], timers.start[key + 1]):
        times[size] = timers.time[timer]
        entries[size] = timers.first + timer
        size += 1
    return size


@inlined
def _release_sorted(
    admission: Admission,
    facts: Facts,
    workspace: KeyWorkspace,
    bound: Integers,
    size: int,
    is_moved: bool,
    progress: Progress,
) -> Progress:
    """Releases a key's entries in total order, each at its moment, up to the limit; the others stay
    pending."""
    rows, places, timers, ready = admission.rows, admission.places, admission.timers, admission.ready
    released, limit, advances = admission.released, admission.limit, workspace.advances
    times, entries, longest = workspace.pending_time, workspace.pending_entry, facts.longest_own
    key, out, pending_out, next_timer, last_release = progress
    is_sorted = _sort(times, entries, size)
    is_past_limit = False
    # Invariant: entries come in total order, and their moments of release never go back (3 above).
    # So the pointers of `advances` move forward only: all entries together cost one pass over them.
    for number in range(size):
        at = number if is_sorted else 0
        time, entry = times[at], entries[at]
        if not is_sorted:
            pop(times, entries, size - number)

        # The moment of release: the latest of its own arrival, the key's timelines, the shared
        # clocks.
        own, own_record = NO_TIME, TIMER
        if entry < timers.first and rows.key_rows[entry] >= rows.first_new:
            own, own_record = places.arrival[entry], rows.key_rows[entry] - rows.first_new
        moment, record = own, own_record
        if is_moved:
            reached_at, by = _reached_at(admission, advances, bound, time)
            if reached_at > moment or (reached_at == moment and by > record):
                moment, record = reached_at, by
        elif longest >= 0 and time + longest > moment:
            # Short cut: only the clock moves the timelines, and the slowest is `longest` behind it.
            moment, record = time + longest, TIMER
        if len(ready.moment) > 0 and not is_ready(ready, rows, timers, entry, moment, record):
            moment, record = ready_of(ready, rows, timers, entry)

        # Once a moment is past the limit, all that follow are.
        is_past_limit = is_past_limit or moment > limit or moment >= NEVER
        if is_past_limit:
            released.next_timer[key] = min(released.next_timer[key], moment)
            if entry < timers.first:
                released.pending[pending_out] = rows.key_rows[entry]
                pending_out += 1
            continue
        waited = Waited.NONE if moment == own and record == own_record and own != NO_TIME else Waited.WAIT
        if waited != Waited.NONE:
            last_release = max(last_release, moment)
        if is_moved:
            definitive = _definitive_at(admission, advances, bound, moment, record)
        else:
            definitive = NEVER if longest < 0 else moment - longest
        out = release(rows, places, released, timers, entry, out, Leaving(moment, definitive, waited, record))
    next_timer = min(next_timer, released.next_timer[key])
    return Progress(key + 1, out, pending_out, next_timer, last_release)


@borrowing
def _sort(times: Integers, entries: Integers, size: int) -> bool:
    """Sorts by (time, entry), where entries go up already; False: it is a heap now, the least pair
    on top."""
    moves, most = 0, MAX_MOVES * size
    # Invariant: the pairs before `at` are sorted. Equal times keep their order, which is that of
    # entries.
    for at in range(1, size):
        time, entry, to = times[at], entries[at], at
        while to > 0 and times[to - 1] > time:
            times[to] = times[to - 1]
            entries[to] = entries[to - 1]
            to -= 1
        times[to] = time
        entries[to] = entry
        moves += at - to
        # Far from sorted: a heap bounds the cost. The order of releases is the same.
        if moves > most:
            for number in range(size):
                push(times, entries, number, times[number], entries[number])
            return False
    return True


@inlined
def _reached_at(admission: Admission, advances: Advances, bound: Integers, time: int) -> tuple[int, int]:
    """The moment at which all timelines have reached a time, and the new record that brings it.

    NO_TIME: they had before this call. TIMER: the clock brings it. Times increase from one question
    to the next, so `next_reaching` only moves forward.
    """
    rows, places = admission.rows, admission.places
    delay, everywhere = admission.policies.delay, admission.everywhere
    moment, record = NO_TIME, TIMER
    for item in range(len(delay)):
        # a timeline that had reached the time before this call does not hold it back
        if delay[item] != BY_CLOCK and (delay[item] == NO_WAIT or max(bound[item], everywhere[item]) < time):
            its_moment, its_record = time, TIMER
            if delay[item] != NO_WAIT:
                its_moment = time + delay[item]
                at = advances.next_reaching[item]
                while at < advances.size[item] and advances.time[item, at] < time:
                    at += 1
                advances.next_reaching[item] = at
                # a record at or above the time, if it arrives before the clock gets there
                if at < advances.size[item]:
                    place = advances.place[item, at]
                    if places.arrival[place] < its_moment:
                        its_moment, its_record = places.arrival[place], rows.key_rows[place] - rows.first_new
            if its_moment > moment or (its_moment == moment and its_record > record):
                moment, record = its_moment, its_record
    return moment, record


@inlined
def _definitive_at(admission: Admission, advances: Advances, bound: Integers, moment: int, record: int) -> int:
    """Definitive time at a moment, after the new record `record` if it is one.

    Moments increase from one question to the next, so `next_after` only moves forward.
    """
    delay, everywhere = admission.policies.delay, admission.everywhere
    definitive = NEVER
    for item in range(len(delay)):
        reached = moment
        if delay[item] == BY_CLOCK:
            reached = NEVER
        elif delay[item] != NO_WAIT:
            reached = max(bound[item], everywhere[item], moment - delay[item])
            at = advances.next_after[item]
            while at < advances.size[item] and _is_by(
                admission.rows, admission.places, advances.place[item, at], moment, record
            ):
                at += 1
            advances.next_after[item] = at
            # the input's newest advance so far, if it is further than the clock's
            if at > 0:
                reached = max(reached, advances.time[item, at - 1])
        definitive = min(definitive, reached)
    return definitive


@inlined
def _is_by(rows: KeyedRows, places: Places, place: int, moment: int, record: int) -> bool:
    """Whether the record at `place` arrived before `moment`, or then and not after the record
    `record`."""
    arrival = places.arrival[place]
    return arrival < moment or (arrival == moment and rows.key_rows[place] - rows.first_new <= record)
