"""Run one query over the records of a call that have been admitted for it: match and report.

Selection, admission and eviction are in `runtime.engine.shared_admission`, because queries with
equal inputs share them. All of it is columns: Python does nothing per key, record or event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.plan.model import QueryPlan
from runtime.admission import ClocksRun, Outcome, Ready, Released, Waited, of_layers, reason_words
from runtime.column_types import Integers, has_column
from runtime.columns.arrivals import AT_THE_END
from runtime.columns.rows import taken_by_term, taken_rows
from runtime.engine.call_rows import CallRecords, CallRows, Wanted
from runtime.engine.query_state import QueryParts, QueryState
from runtime.engine.selected_values import with_compared, with_selected
from runtime.engine.shared_admission import AdmittedCall, Carry, SharedAdmission, counted, renamed
from runtime.engine.stored_values import limited
from runtime.instants import NEVER, NO_TIME
from runtime.matching.find_every import selected
from runtime.matching.interface import Found, Ordered
from runtime.matching.serving import Search
from runtime.matching.trailing_waits import timers_of
from runtime.results.ledger import FOUND, GIVEN, SUPPRESSED, Account
from runtime.results.match_table import gather_table
from runtime.results.matched import (
    FindsMatches,
    Matched,
    OrderedMatches,
    already_found,
    found_with_steps,
    ordered_steps,
    taken_columns,
)
from runtime.results.outputs import LookedUp, Moments, Refused, Routed, block_outputs, error_outputs, refused_records
from runtime.results.schemas import ADJUSTED_SCHEMA, NO_ADJUSTED, NO_OUTPUTS, no_discards, numbered, rows_of

# The columns of a call's matches, put into the order of `runtime.results.matched`. Matches are
# found key by key. What is known by position is read in that order, in which positions ascend. What
# is known by row is read in the order in which matches are shown, in which rows nearly ascend. So
# most reads find what they look for in the processor's caches.


def matches_in_order(
    released: Released,
    latest: Integers,
    rank: Integers,
    members: Integers,
    definitive: Integers,
    records: Integers,
    times: Integers,
    rows: CallRows,
) -> tuple[Matched, Integers]:
    """Matches in order, and by match its number in the order in which it was found.

    latest, members: positions, as in `runtime.matching.interface.Found`
    rank: by match, orders those of one step and key
    definitive: by match, µs
    records: by new record, its number in the call
    times: by row, µs
    rows: of the call
    """
    table, keys = rows.table, rows.keys
    columns = released.time, released.emitted, released.record, released.order
    time, emitted, record, latest_rows = (taken_rows(column, latest) for column in columns)
    order, emitted, record = ordered_steps(
        emitted, record, time, rank, lambda matches: taken_columns(keys, latest_rows[matches].astype(np.int64))
    )
    last = taken_rows(latest_rows, order).astype(np.int64)
    rows_of_members = _rows_of(released, members, order, latest, last)
    times_of_members = taken_by_term(times, rows_of_members.T)
    source_times, arrivals, offsets = (
        table.column(name).to_numpy() for name in ("_source_time", "_arrival", "_offset")
    )
    # Mostly an event happens when its source says, and is found when its time is definitive.
    is_told, is_definitive = np.array_equal(times, source_times), np.array_equal(time, definitive)
    time = taken_rows(time, order)
    matched = Matched(
        latest=last,
        members=rows_of_members.T,
        time=time,
        definitive=time if is_definitive else taken_rows(definitive, order),
        emitted=emitted,
        waited=taken_rows(taken_rows(released.waited, latest), order),
        step=call_numbers(record, records),
        rank=taken_rows(rank, order),
        times=times_of_members,
        source_times=times_of_members if is_told else taken_by_term(source_times, rows_of_members.T),
        arrivals=taken_by_term(arrivals, rows_of_members.T),
        offsets=taken_by_term(offsets, rows_of_members.T),
        reasons=np.empty((len(order), 0), np.int8),
    )
    return matched, order


def _rows_of(released: Released, members: Integers, order: Integers, latest: Integers, last: Integers) -> Integers:
    """By (term, match) the rows of the members, in order; -1 = unset.

    last: in order, the rows of the latest events, which mostly are the members of the last term
    """
    rows = np.empty((members.shape[1], len(order)), np.int64)
    for term, positions in enumerate(members.T):
        if np.array_equal(positions, latest):
            rows[term] = last
            continue
        is_unset = len(positions) > 0 and positions.min() < 0
        found = released.order.take(positions) if is_unset else taken_rows(released.order, positions)
        if is_unset:
            found[positions < 0] = -1
        rows[term] = taken_rows(found, order)
    return rows


NO_COUNTS: Account = Counter()
"""Of a query without `at most`, or without a match."""


def call_numbers(record: Integers, records: Integers) -> Integers:
    """Numbers of new records as numbers of the call's records; timers and AT_THE_END stay.

    records: by new record, its number in the call; ascending, equal for rows of one record
    """
    is_plain = not len(records) or (int(records[-1]) == len(records) - 1 and bool((np.diff(records) == 1).all()))
    if is_plain:
        return record
    is_record = (record >= 0) & (record < AT_THE_END)
    return np.where(is_record, records[np.where(is_record, record, 0)], record)


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """The results of one call for one query.

    matches: None = there are none, or they are in `found`
    found: matches that are put in order, and whose table is gathered, later; None = none
    account: changes of the ledger
    routed: what blocks have routed to other queries
    last_release: the latest moment at which a timer released something, µs; NO_TIME = none
    """

    matches: pa.Table | None
    found: FindsMatches | None
    outputs: pa.Table
    discarded: pa.Table
    account: Account
    last_release: int
    adjusted: pa.Table
    routed: Sequence[Routed] = ()

    def with_steps(self, steps: Integers) -> QueryOutcome:
        """The same with other numbers of steps, by record."""
        return replace(
            self,
            matches=None if self.matches is None else numbered(self.matches, steps, 0),
            found=None if self.found is None else found_with_steps(self.found, steps, 0),
            outputs=numbered(self.outputs, steps, 0),
            discarded=numbered(self.discarded, steps, 0),
            adjusted=numbered(self.adjusted, steps, 0),
            routed=[replace(item, step=_renumbered(item.step, steps)) for item in self.routed],
        )


def _renumbered(own: Integers, steps: Integers) -> Integers:
    """The numbers of steps, other ones where those of records are given."""
    is_record = (own >= 0) & (own < len(steps))
    return np.where(is_record, steps[np.where(is_record, own, 0)], own) if len(steps) else own


class QueryRunner:
    """One query of a plan at work.

    parts: of this query
    admission: what admits records for it, maybe for others, too
    feeds: the event types that it routes to other queries
    gathers_later: whether the caller gathers the tables of matches; a block runs over it at once
    """

    def __init__(self, parts: QueryParts, admission: SharedAdmission, *, gathers_later: bool = False) -> None:
        query = parts.query
        self.query, self.parts, self.admission = query, parts, admission
        self.gathers_later = gathers_later and not query.block
        self._orders_later = self.gathers_later and _keeps_all(query)
        self.feeds: frozenset[str] = frozenset()

    @property
    def state(self) -> QueryState:
        """What is kept for the query."""
        return self.admission.state

    def run(self, records: CallRecords, call: AdmittedCall, search: Search | None = None) -> tuple[QueryOutcome, Carry]:
        """Matches what is released.

        call: the records as the query's admission has taken them
        search: of the query over the events of the call; None = one that shares nothing
        """
        wanted, events, search = call.wanted, call.events, search or Search(self.parts.matcher, call.events)
        carry = replace(call.carry, cut_off=call.carry.cut_off.copy()) if self.query.block else call.carry
        matches: pa.Table | None = None
        later: FindsMatches | None = None
        outputs, counts = NO_OUTPUTS, NO_COUNTS
        routed: list[Routed] = []
        has_waits = self.query.trailing is not None and len(self.state.waits) > 0
        if (call.has_new and search.may_find) or has_waits:
            # A shared clock changes with the next call: what it says of this one is asked now.
            is_later = self._orders_later and not carry.rows.clocks.runs
            if is_later:
                later = partial(self._later, carry, partial(self.matched, carry, search.found, wanted.records))
            if not (is_later and self.parts.matcher.only_finds):
                found = search.found()
                if self.query.skip is not None:
                    carry = replace(carry, free=found.free)
                if has_waits or (self.query.trailing is not None and len(found.latest)):
                    carry, expired = self.expired_waits(records, carry, events, found, wanted.records)
                    matches, later, outputs, counts = self._gathered(carry, expired.by_step(carry.rows.keys), routed)
                elif len(found.latest) and not is_later:
                    ordered = self.matched(carry, search.found, wanted.records)
                    matches, later, outputs, counts = self._gathered(carry, ordered, routed)
                if found.errors:
                    errors = error_rows(
                        self.parts, carry, carry.rows.keys, found.errors, len(found.latest), wanted.records
                    )
                    outputs = rows_of(NO_OUTPUTS, [outputs, errors])
        account = renamed(call.account, self.query.title)
        account.update(counts)
        outcome = QueryOutcome(
            matches=matches,
            found=later,
            outputs=outputs,
            discarded=self._discarded(records, call, carry.admitted.released),
            account=account,
            last_release=carry.admitted.last_release,
            adjusted=self._adjusted(carry.rows.clocks, wanted.records),
            routed=routed,
        )
        return outcome, carry

    def _later(self, carry: Carry, ordered: Callable[[], Matched]) -> OrderedMatches:
        """The matches of a call, put into order."""
        return OrderedMatches(self.parts.plan, self.query, carry.rows.table, carry.rows.keys, ordered())

    def _gathered(
        self, carry: Carry, matched: Matched, routed: list[Routed]
    ) -> tuple[pa.Table | None, FindsMatches | None, pa.Table, Account]:
        """The table of matches, or how it is gathered later, their outputs, and counts of the
        ledger; None = no match.

        routed: gets what blocks route to other queries
        """
        if self.query.at_most is None:
            matched = self._of_its_time(matched)
        if not len(matched):
            return None, None, NO_OUTPUTS, NO_COUNTS
        found, outputs, counts = self.given(self._later(carry, lambda: matched))
        if found is None:
            return None, None, outputs, counts
        if self.gathers_later:
            return None, already_found(found), outputs, counts
        matches = gather_table(found)
        if self.query.block:
            of_blocks = self.outputs_of(found, matches, carry.rows.numbers, carry.cut_off, routed)
            outputs = rows_of(NO_OUTPUTS, [of_blocks, outputs])
        return matches, None, outputs, counts

    def given(self, later: OrderedMatches) -> tuple[OrderedMatches | None, pa.Table, Account]:
        """The matches that are given, with what they select; the rows of errors; and counts of the
        ledger. None = no match."""
        found: OrderedMatches | None = later
        outputs, counts = NO_OUTPUTS, NO_COUNTS
        if self.query.selects:
            found, outputs = with_selected(later)
        if self.query.at_most is not None:
            found, outputs, counts = self._limited(found, outputs)
        return found, outputs, counts

    def outputs_of(
        self, later: OrderedMatches, matches: pa.Table, numbers: Integers, cut_off: Integers, routed: list[Routed]
    ) -> pa.Table:
        """The outputs of the blocks of all matches.

        matches: their table
        numbers: by row of the call, the number of its key
        cut_off, routed: as of `block_outputs`; they are updated
        """
        matched, looked_up = later.matched, None
        if self.query.tables:
            arrivals = later.table.column("_arrival").to_numpy()[matched.latest]
            looked_up = LookedUp(later.table, matched.members, matched.widths, arrivals)
        keys = numbers[matched.latest]
        outputs, own = block_outputs(self.parts.plan, self.query, matches, keys, cut_off, self.feeds, looked_up)
        routed += own
        return outputs

    def _limited(
        self, later: OrderedMatches | None, outputs: pa.Table
    ) -> tuple[OrderedMatches | None, pa.Table, Account]:
        """The matches that `at most` gives, with the rows of all errors, and the counts.

        While this text does not give matches yet, it judges them as if it gave them.

        outputs: the errors of matches without what they select
        """
        stored = self.state.given
        assert stored is not None, "there is a limit"
        if later is None:
            return None, self._rows_of_its_time(outputs), NO_COUNTS
        later, compared, errors = with_compared(later)
        outputs = self._rows_of_its_time(rows_of(NO_OUTPUTS, [outputs, errors]))
        if later is None:
            return None, outputs, NO_COUNTS
        matched = later.matched
        keys = taken_columns(later.keys, matched.latest)
        is_given, suppressed = limited(self.query, stored, [*keys, *compared], matched.time)
        is_own = self._is_of_its_time(matched.time)
        chosen = np.flatnonzero(is_own & is_given)
        found, given = int(is_own.sum()), len(chosen)
        numbers = {FOUND: found, GIVEN: given, SUPPRESSED: found - given}
        counts = Counter({(self.query.title, "", word): count for word, count in numbers.items() if count})
        if not given:
            return None, outputs, counts
        return replace(later, matched=replace(matched.take(chosen), suppressed=suppressed[chosen])), outputs, counts

    def matched(self, carry: Carry, find: Callable[[], Found], records: Integers) -> Matched:
        """The matches of the call, at the release of their latest events, in order.

        records: by new record, its number in the call
        """
        found, rows, released, times = find(), carry.rows, carry.admitted.released, carry.admitted.times
        latest, members = found.latest, found.members
        values: tuple[pa.Array, ...] = ()
        if self.query.every is not None:
            latest_rows = released.order[latest].astype(np.int64)
            table = rows.table.append_column("_time", pa.array(times))
            chosen = selected(self.parts.plan, self.query, found.aggregates, table, latest_rows, released.order)
            latest, members, values = latest[chosen.matches], chosen.events, (*chosen.values, *chosen.compared)
        definitive = taken_rows(released.definitive, latest)
        if rows.clocks.runs:
            numbers = rows.numbers[released.order[latest]]
            definitive = rows.clocks.lowered(numbers, released.emitted[latest], released.record[latest], definitive)
        matched, order = matches_in_order(
            released,
            latest,
            np.arange(len(latest)) if self.query.finds_all else latest,
            members,
            definitive,
            records,
            times,
            rows,
        )
        if has_column(rows.table, "_adjusted"):
            members = members[order]
            of_rows = np.where(members < 0, -1, released.order[members])
            matched = replace(matched, reasons=_reasons(rows.table, of_rows))
        return replace(matched, selected=tuple(taken_columns(values, order)), widths=found.widths)

    def _of_its_time(self, matched: Matched) -> Matched:
        """The matches that are this text's, while one text of a query hands over to another."""
        if self.query.starts is None and self.query.ends is None:
            return matched
        is_own = self._is_of_its_time(matched.time)
        return matched.take(np.flatnonzero(is_own)) if is_own.any() else matched.part(slice(0, 0))

    def _is_of_its_time(self, time: Integers) -> NDArray[np.bool_]:
        starts, ends = self.query.starts, self.query.ends
        return (time >= (NO_TIME if starts is None else starts)) & (time < (NEVER if ends is None else ends))

    def _rows_of_its_time(self, outputs: pa.Table) -> pa.Table:
        """The error rows of matches that are this text's."""
        if self.query.starts is None and self.query.ends is None:
            return outputs
        return outputs.filter(pa.array(self._is_of_its_time(outputs.column("time").cast(pa.int64()).to_numpy())))

    def expired_waits(
        self, records: CallRecords, carry: Carry, events: Ordered, found: Found, wanted: Integers
    ) -> tuple[Carry, Matched]:
        """The matches whose trailing wait has ended.

        wanted: by new record, its number in the call

        Which waits begin is known only after matching. So the call is admitted a second time, with
        their timers: these change no release, as they only ask when their times become definitive.
        """
        rows, waits = carry.rows, self.state.waits
        waiting = waits.all_of(events, found, rows.numbers)
        # Of waits that repeat: all times that events or the clock of the call can have reached, and
        # one more. If that is not enough, as heartbeats are ahead of the clock, then all times.
        until = max(int(events.time.max(initial=NO_TIME)), records.limit)
        while True:
            entries = waits.in_rounds(waiting, until)
            alive = entries.only(self.parts.matcher.outlives(events, entries))
            clock = timers_of(alive, rows.key_count, len(carry.admitted.times))
            keys = np.repeat(np.arange(rows.key_count), np.diff(clock.timers.start))
            timed = Ready(*rows.ready[:2], *rows.clocks.ready(keys, clock.timers.time))
            admitted = counted(self.admission.released(rows.with_ready(timed), records.limit, clock.timers), carry.old)
            clock = clock.with_timers(admitted.timers)
            if until >= NEVER or not waits.goes_on(entries, alive, clock.wait[clock.expired]):
                break
            until = NEVER
        over, timers = clock.expired, clock.timers
        emitted, record = timers.emitted[over], timers.record[over]
        definitive = rows.clocks.lowered(keys[over], emitted, record, timers.definitive[over])
        done = alive.only(clock.wait[over])
        waits.keep(events, waits.next_rounds(entries, alive, clock.pending))
        members = np.where(done.members < 0, -1, events.row[done.members]).astype(np.int64)
        matched = Matched(
            latest=events.row[done.latest].astype(np.int64),
            members=members,
            time=done.due,
            definitive=definitive,
            emitted=emitted,
            waited=np.full(len(over), Waited.WAIT, np.int8),
            step=call_numbers(record, wanted),
            rank=events.start[-1] + np.arange(len(over)),
            times=admitted.times[members],
            source_times=rows.table.column("_source_time").to_numpy()[members],
            arrivals=rows.table.column("_arrival").to_numpy()[members],
            offsets=rows.table.column("_offset").to_numpy()[members],
            reasons=_reasons(rows.table, members),
            widths=done.widths,
        )
        return replace(carry, admitted=admitted), matched

    def _adjusted(self, clocks: ClocksRun, records: Integers) -> pa.Table:
        """The records that were admitted with another time than their own (ADJUSTED_SCHEMA)."""
        new = np.flatnonzero(clocks.verdicts.adjusted)
        if not len(new):
            return NO_ADJUSTED
        new = new[np.append(True, np.diff(records[new]) > 0)]  # each record once
        reasons = reason_words(clocks.verdicts.adjusted[new])
        query = pa.repeat(pa.scalar(self.query.title), len(new))
        columns = [query, reasons, pa.array(clocks.verdicts.time[new]), pa.array(records[new])]
        return pa.table(columns, schema=ADJUSTED_SCHEMA)

    def _discarded(self, records: CallRecords, call: AdmittedCall, released: Released) -> pa.Table:
        """The records that admission or selection refused, with the reason."""
        if not call.has_null and not released.verdict.any():  # the usual case
            return no_discards(self.parts.plan)
        if call.outcomes is not None:
            return self._discarded_by_role(records, call.wanted, call.outcomes, released)
        return refused_rows(self.parts, records.table, refused(records, call.wanted, released))

    def _discarded_by_role(
        self, records: CallRecords, wanted: Wanted, outcomes: NDArray[np.int8], released: Released
    ) -> pa.Table:
        """The same where a record may be several rows.

        One for each input that refused its time, and one for a record without a key or a time that
        no input has used.
        """
        final = of_layers(outcomes)
        without = np.flatnonzero((final == Outcome.NULL_KEY) | (final == Outcome.NULL_TIME))
        refused = np.flatnonzero(released.verdict)
        bad = np.concatenate([without, wanted.records[refused]])
        order = np.argsort(bad, kind="stable")
        reasons = np.concatenate([final[without], released.verdict[refused]])[order]
        bounds = np.concatenate([np.full(len(without), NO_TIME), released.verdict_bound[refused]])[order]
        shared = {index for inputs in self.query.shared_types.values() for index in inputs}
        names = [item.role if index in shared else None for index, item in enumerate(self.query.inputs)]
        roles = [None] * len(without) + [names[index] for index in wanted.input[refused].tolist()]
        bad = bad[order]
        return refused_records(
            self.parts.plan,
            self.query.public_title,
            records.table,
            Refused(bad, reasons, records.arrival[bad], wanted.selection.time[bad], bounds),
            [roles[place] for place in order.tolist()],
        )


def _keeps_all(query: QueryPlan) -> bool:
    """Whether all that the matcher finds are matches, whatever their times and values are."""
    is_whole = query.starts is None and query.ends is None
    has_values = query.every is not None or query.selects or query.at_most is not None
    return is_whole and query.trailing is None and not has_values


def _reasons(table: pa.Table, members: Integers) -> NDArray[np.int8]:
    """Why members were adjusted, by match and term."""
    if not has_column(table, "_adjusted"):
        return np.empty((len(members), 0), np.int8)
    reasons: NDArray[np.int8] = table.column("_adjusted").to_numpy()[members]
    return reasons


def error_rows(
    parts: QueryParts,
    carry: Carry,
    keys: Sequence[pa.Array],
    errors: Sequence[tuple[int, str]],
    matches: int,
    records: Integers,
) -> pa.Table:
    """The error rows of events that have too many matches, or whose search was ended.

    keys: by row, the key columns of the query
    errors: as in `Found`
    matches: how many the search has found, behind which they are
    records: by new record, its number in the call
    """
    released = carry.admitted.released
    latest = np.array([position for position, _ in errors], np.int64)
    return error_outputs(
        parts.plan,
        parts.query,
        taken_columns(keys, released.order[latest].astype(np.int64)),
        Moments(
            released.time[latest],
            released.emitted[latest],
            call_numbers(released.record[latest], records),
            matches + latest,
        ),
        [text for _, text in errors],
    )


def refused(records: CallRecords, wanted: Wanted, released: Released) -> Refused:
    """The records of a call that are refused."""
    count, selection = len(records.table), wanted.selection
    reason, bound = np.zeros(count, np.int8), np.full(count, NO_TIME, np.int64)
    reason[wanted.records] = released.verdict
    bound[wanted.records] = released.verdict_bound
    has_null = (selection.outcome == Outcome.NULL_KEY) | (selection.outcome == Outcome.NULL_TIME)
    reason[has_null] = selection.outcome[has_null]
    return Refused(np.arange(count), reason, records.arrival, selection.time, bound).only(np.flatnonzero(reason))


def refused_rows(parts: QueryParts, table: pa.Table, own: Refused) -> pa.Table:
    """The rows of refused records, with the reason; `table`: the records that they are rows of."""
    return refused_records(parts.plan, parts.query.public_title, table, own)
