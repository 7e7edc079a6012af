"""Families at work: what a call is for queries that differ in constants, and their state.

A family has the state of its members while it runs. `Families.part` gives it back to them, for
whoever asks what is kept of one query.

An event may be a row of many members, and few of its columns are searched. So the others are not
copied with its rows: they are stored once, and looked up for rows that are in a match.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, field, replace
from querylang.plan.model import Plan
from runtime.column_types import Integers, different_numbers, one_chunk
from runtime.columns.rows import NumberedRows, joined, plain_cells, stable_order
from runtime.engine.alike import OWNER_COLUMN, ROW_COLUMN, Family, families_of
from runtime.engine.call_rows import CallRecords, Wanted
from runtime.engine.looking import LookedAt, chosen_records
from runtime.engine.query_runner import QueryOutcome, QueryRunner, error_rows, refused, refused_rows
from runtime.engine.query_state import QueryParts, QueryState, saved_timers
from runtime.engine.shared_admission import Carry, SharedAdmission, unopened_tables
from runtime.instants import NEVER, NO_TIME
from runtime.matching.interface import Found
from runtime.matching.trailing_waits import joined_waits
from runtime.results.ledger import Account
from runtime.results.match_table import gather_tables
from runtime.results.matched import Matched, OrderedMatches, already_found, taken_columns
from runtime.results.outputs import Routed
from runtime.results.schemas import NO_ADJUSTED, NO_OUTPUTS, no_discards, numbered, rows_of

FEWEST = 4
"""Fewer queries of one shape run each alone."""

_BETWEEN = "\0"
"""Between the number of a member and a source, in the accounts of a family."""


class _FamilyAdmission(SharedAdmission):
    """Admission for a family, which counts for each of so many members."""

    def __init__(self, parts: QueryParts, count: int) -> None:
        super().__init__([parts])
        self.count = count

    def _account(self, records: CallRecords, wanted: Wanted, carry: Carry) -> Account:
        return super()._account(replace(records, table=self._counted(records.table)), wanted, carry)

    def _counted(self, table: pa.Table) -> pa.Table:
        """A source is one for each member."""
        sources = one_chunk(table.column("_source"))
        names = sources.dictionary.to_pylist()
        of_members = table.column(OWNER_COLUMN).to_numpy() * max(1, len(names)) + sources.indices.to_numpy()
        different, codes = different_numbers(of_members, self.count * max(1, len(names)))
        both = [f"{code // len(names)}{_BETWEEN}{names[code % len(names)]}" for code in different.tolist()]
        column = pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(both, pa.string()))
        return super()._counted(table.set_column(table.schema.get_field_index("_source"), "_source", column))


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a call that are in a match.

    keys: the key columns of the members, by row
    owner: by row, the number of its member
    numbers: by row, the number of its key
    """

    table: pa.Table
    keys: list[pa.Array]
    owner: Integers
    numbers: Integers


@dataclass(slots=True)
class _Given:
    """What a call gives, by number of the member."""

    found: dict[int, OrderedMatches] = field(default_factory=dict)
    tables: dict[int, pa.Table] = field(default_factory=dict)
    outputs: dict[int, list[pa.Table]] = field(default_factory=dict)
    discarded: dict[int, pa.Table] = field(default_factory=dict)
    routed: dict[int, list[Routed]] = field(default_factory=dict)
    account: Account = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Part:
    """What a family keeps of the events and bounds of a member; as of `KeyState.store`."""

    number: int
    events: pa.Table
    bounds: pa.Table
    timers: Integers
    bound_timers: Integers

    @property
    def release(self) -> int:
        """As of `QueryState.hot_release`."""
        return int(self.timers.min(initial=NEVER))

    @property
    def timer(self) -> int:
        """As of `QueryState.hot_timer`."""
        return min(self.release, int(self.bound_timers.min(initial=NEVER)))


@dataclass(frozen=True, slots=True)
class FamilyOutcome:
    """What a call has given for the members of a family.

    outcomes: by title, of those that have given something; without accounts
    account: changes of the ledger
    last_release: as in `QueryOutcome`
    looked_at: how many pairs of a query and a record
    """

    outcomes: Mapping[str, QueryOutcome]
    account: Account
    last_release: int = NO_TIME
    looked_at: int = 0


class FamilyRunner:
    """One family at work.

    family: its queries as one
    members: the runners of its queries, which have an admission each
    admission: that of the family
    """

    def __init__(self, family: Family, members: Sequence[QueryRunner], before: FamilyRunner | None = None) -> None:
        """`before`: a family of some of them, whose state it takes over; nobody uses it then."""
        if before is not None:
            family = replace(family, parts=before.family.parts)
        self.members = members
        self._titled = {runner.query.title: runner.admission for runner in members}
        self.admission: SharedAdmission = _FamilyAdmission(family.parts, len(members))
        self.family: Family = family
        self._with_limit = [runner.admission for runner in members if runner.query.at_most is not None]
        self._runner = QueryRunner(family.parts, self.admission)
        self._rest = NumberedRows(family.rest)
        self._left: Carry | None = None
        self._apart = self._begun()
        if before is not None:
            self._continue(before)

    def _begun(self) -> set[int]:
        """The members with a state of their own."""
        return {number for number, runner in enumerate(self.members) if runner.admission.has_begun}

    def _continue(self, before: FamilyRunner) -> None:
        """Takes over the state of another family, all of whose members with events are here."""
        state, number_of = before.admission.state, {own.admission: at for at, own in enumerate(self.members)}
        numbers = np.array([number_of.get(own.admission, -1) for own in before.members])
        events, bounds, *timers = state.keys.hot()
        state.keys.store(_renumbered(events, OWNER_COLUMN, numbers), _renumbered(bounds, "key0", numbers), *timers)
        self.admission.state, self.admission.is_behind = state, before.admission.is_behind
        self._rest = before._rest
        joined_before = {int(numbers[at]) for at in range(len(before.members)) if not before.is_apart(at)}
        self._apart -= joined_before

    @property
    def _is_simple(self) -> bool:
        """Whether it keeps no more than events and bounds, which can be divided row by row."""
        return not self.admission.state.seen and self.family.parts.query.trailing is None

    def fits(self, family: Family) -> bool:
        """Whether a family with other members can take over the state of this one."""
        own, other = self.family, family
        return (
            self._is_simple
            and own.parts.query == other.parts.query
            and own.parts.plan.events == other.parts.plan.events
            and own.rest == other.rest
            and [name for name, _ in own.constants] == [name for name, _ in other.constants]
        )

    def of_call(self, records: CallRecords, looked_at: LookedAt) -> FamilyOutcome:
        """Does all for a call but evict."""
        found = looked_at.found(self._titled)
        is_due = self._join(found.owner, records.limit) or len(found.rows) > 0
        if not is_due and self.admission.is_idle(records.limit):
            self.admission.is_behind = self.admission.has_begun and not self.admission.state.is_empty
            return FamilyOutcome({}, found.unseen, looked_at=found.count)
        outcome = self.run(self.records_of(records, found.owner, found.rows, found.shared), found.rows)
        account = outcome.account
        account.update(found.unseen)
        return replace(outcome, account=account, looked_at=found.count)

    def records_of(
        self, records: CallRecords, owner: Integers, rows: Integers, shared: pa.Table | None = None
    ) -> CallRecords:
        """The records of members; parameters as of `FamilyRecords`."""
        columns = {*self.family.parts.schema.names, "_place", "_text"}
        names = [name for name in records.table.column_names if name in columns]
        own = chosen_records(replace(records, table=records.table.select(names)), rows)
        table, first = own.table, self._rest.begin(records.table if shared is None else shared)
        for name, values in self._added(owner, rows + first).items():
            table = table.append_column(name, values)
        return replace(own, table=table)

    def _added(self, owner: Integers, rest: Integers) -> dict[str, pa.Array]:
        """By name the columns that rows of these members have beside their own.

        rest: by row, the number under which its other columns are
        """
        index = pa.array(owner)
        constants = {name: values.take(index) for name, values in self.family.constants}
        numbered = {ROW_COLUMN: pa.array(rest)} if self.family.rest.names else {}
        return {OWNER_COLUMN: index, **numbered, **constants}

    def _whole(self, table: pa.Table) -> pa.Table:
        """Rows with all columns that members have."""
        return plain_cells(self._sharing(table))

    def _sharing(self, table: pa.Table) -> pa.Table:
        """The same; rows of one event share the cells that are not searched."""
        names = self.family.rest.names
        if not names:
            return table
        rest = self._rest.shared(table.column(ROW_COLUMN).to_numpy())
        return pa.table([*table.columns, *rest], names=[*table.column_names, *names])

    def run(self, records: CallRecords, numbers: Integers, *, everything: bool = False) -> FamilyOutcome:
        """Admits the records and searches; `evict` has to follow.

        numbers: those of the records in the call
        everything: loads cold keys too
        """
        call = self.admission.admitted(records, everything=everything)
        carry, given, may_wait = call.carry, _Given(), self.family.parts.query.trailing is not None
        has_waits = may_wait and len(self.admission.state.waits) > 0
        if call.has_new or has_waits:
            found = self.family.parts.matcher.match(call.events)
            carry = replace(carry, free=found.free)
            if has_waits or (may_wait and len(found.latest)):
                carry, matched = self._runner.expired_waits(records, carry, call.events, found, call.wanted.records)
                self._give(given, carry, matched.by_step(carry.rows.keys).with_steps(numbers, 0))
            elif len(found.latest):
                matched = self._runner.matched(carry, lambda: found, call.wanted.records)
                self._give(given, carry, matched.with_steps(numbers, 0))
            for number, errors in self._errors(carry, found, call.wanted.records).items():
                given.outputs.setdefault(number, []).append(numbered(errors, numbers, 0))
        released = carry.admitted.released
        if call.has_null or released.verdict.any():
            bad = refused(records, call.wanted, released)
            table = self._whole(records.table.take(pa.array(bad.rows)))
            for number, rows in _by_owner(table):
                own = bad.only(rows)._replace(rows=rows)
                discarded = refused_rows(self.family.members[number], table, own)
                given.discarded[number] = numbered(discarded, numbers[bad.rows], 0)
        self._left = carry
        given.account.update(self._named(call.account))
        return FamilyOutcome(self._outcomes(given), given.account, carry.admitted.last_release)

    def _keyed(self, owner: Integers, own: Sequence[pa.ChunkedArray]) -> list[Any]:
        """Columns of a table by key as the family has them.

        owner: by row, the number of its member
        own: the columns of members
        """
        member, behind = pa.array(owner), self.family.in_keys
        keys = len(self.members[0].query.keys)
        return [member, *own[:keys], *(values.take(member) for values in behind), *own[keys:]]

    def _of_member(self, number: int, table: pa.Table, rows: Integers, schema: pa.Schema) -> pa.Table:
        """Rows of a table by key, as a member has them."""
        keys, columns = len(self.members[number].query.keys), table.take(pa.array(rows)).columns
        own = [*columns[1 : 1 + keys], *columns[1 + keys + len(self.family.in_keys) :]]
        return pa.table(own, schema=schema).combine_chunks()

    def _member_keys(self, keys: Sequence[pa.Array]) -> list[pa.Array]:
        """Those key columns that members have."""
        return [*keys[1 : len(keys) - len(self.family.in_keys)]]

    def key_of(self, number: int, key: Sequence[Any]) -> tuple[Any, ...]:
        """The key of the family that a key of a member is."""
        return (number, *key, *(values[number].as_py() for values in self.family.in_keys))

    def load(self, nothing: CallRecords, clock: int) -> bool:
        """Loads cold keys and removes what has expired; False = there are matches to give.

        nothing: a call without records
        """
        if not self.admission.state.keys.has_cold and not self.admission.is_behind:
            return True
        none = np.empty(0, np.int64)
        outcome = self.run(self.records_of(nothing, none, none), none, everything=True)
        self.evict(clock)
        return all(item.matches is item.found is None for item in outcome.outcomes.values())

    def evict(self, clock: int) -> None:
        """Evicts what no member needs any more at `clock`, after a run."""
        if self._left is not None:
            self.admission.evict(self._left, clock)
            self._left = None
            self._keep_rest()
            for admission in self._with_limit:
                if admission.has_begun:
                    admission.state.evict_values(clock)

    def _keep_rest(self) -> None:
        """Stores the other columns of the events that are stored."""
        state = self.admission.state
        if self.family.rest.names:
            waiting = state.waits.members.column(ROW_COLUMN).to_numpy()
            used = np.concatenate([state.keys.events.column(ROW_COLUMN).to_numpy(), waiting])
            self._rest.keep(
                used,
                state.stored_events,
                lambda: np.concatenate([state.keys.numbers_of(ROW_COLUMN), waiting]),
            )

    def _give(self, given: _Given, carry: Carry, matched: Matched) -> None:
        """Lets each member do what comes behind the search with its matches.

        matched: with the numbers of steps that records have in the call
        """
        if not len(matched):
            return
        rows, matched = self._rows_of_matches(carry, matched)
        for number, later in self._of_members(rows, matched):
            member = self.members[number]
            found, outputs, counts = member.given(later)
            given.account.update(counts)
            if found is not None:
                given.found[number] = found
            if len(outputs):
                given.outputs[number] = [outputs]
        gathered = [number for number in given.found if not self.members[number].gathers_later]
        tables = gather_tables([given.found[number] for number in gathered])
        given.tables = dict(zip(gathered, tables, strict=True))
        for number, table in given.tables.items():
            member = self.members[number]
            if member.query.block:
                routed = given.routed.setdefault(number, [])
                own = member.outputs_of(given.found[number], table, rows.numbers, carry.cut_off, routed)
                given.outputs[number] = [own, *given.outputs.get(number, ())]

    def _rows_of_matches(self, carry: Carry, matched: Matched) -> tuple[_Rows, Matched]:
        """Those rows that are in a match, and the matches over them."""
        whole, members = carry.rows.table, matched.members
        used, _ = different_numbers(np.concatenate([matched.latest, members[members >= 0]]), len(whole))
        new = np.full(len(whole), -1, np.int64)
        new[used] = np.arange(len(used))
        matched = replace(matched, latest=new[matched.latest], members=np.where(members < 0, -1, new[members]))
        table, keys = self._sharing(whole.take(pa.array(used))), taken_columns(self._member_keys(carry.rows.keys), used)
        return _Rows(table, keys, table.column(OWNER_COLUMN).to_numpy(), carry.rows.numbers[used]), matched

    def _of_members(self, rows: _Rows, matched: Matched) -> Iterator[tuple[int, OrderedMatches]]:
        """By member its matches."""
        order = stable_order(rows.owner[matched.latest])
        owner = rows.owner[matched.latest][order]
        matched = matched.take(order)
        begin = np.searchsorted(owner, np.arange(len(self.members) + 1)).tolist()
        for number in np.unique(owner).tolist():
            parts, own = self.family.members[number], matched.part(slice(begin[number], begin[number + 1]))
            yield number, OrderedMatches(parts.plan, parts.query, rows.table, rows.keys, own, self.family.parts.query)

    def _errors(self, carry: Carry, found: Found, records: Integers) -> dict[int, pa.Table]:
        """By member the rows of its errors; `records`: by new record, its number in the call."""
        owner = carry.rows.table.column(OWNER_COLUMN).to_numpy()
        of_members: dict[int, list[tuple[int, str]]] = {}
        for position, text in found.errors:
            row = carry.admitted.released.order[position]
            of_members.setdefault(int(owner[row]), []).append((position, text))
        keys, members = self._member_keys(carry.rows.keys), self.family.members
        return {
            number: error_rows(members[number], carry, keys, own, len(found.latest), records)
            for number, own in of_members.items()
        }

    def _outcomes(self, given: _Given) -> dict[str, QueryOutcome]:
        """By title what its query has given."""
        outcomes = dict[str, QueryOutcome]()
        for number in sorted({*given.found, *given.outputs, *given.discarded}):
            parts, later = self.family.members[number], given.found.get(number)
            outcomes[parts.query.title] = QueryOutcome(
                matches=given.tables.get(number),
                found=None if later is None or number in given.tables else already_found(later),
                outputs=rows_of(NO_OUTPUTS, given.outputs.get(number, [])),
                discarded=given.discarded.get(number, no_discards(parts.plan)),
                account=Counter(),
                last_release=NO_TIME,
                adjusted=NO_ADJUSTED,
                routed=given.routed.get(number, ()),
            )
        return outcomes

    def _named(self, account: Account) -> Account:
        """The counts of members, with their titles."""
        named, titles = Account(), [*self._titled]
        for (_, source, word), count in account.items():
            number, _, name = source.partition(_BETWEEN)
            named[titles[int(number)], name, word] = count
        return named

    def can_join(self) -> bool:
        """Whether the family can have the states of its members."""
        return not any(self.members[number].admission.is_moved_everywhere for number in self._apart)

    def is_apart(self, number: int) -> bool:
        """Whether a member has a state of its own, which the family has not taken yet."""
        return number in self._apart

    def _join(self, owner: Integers, limit: int) -> bool:
        """Takes the states of members with records or due timers; whether there are any.

        owner: by record, the number of its member

        States that were saved, and that nobody has asked for, are taken together before.
        """
        self._take_unopened()
        joining, counts = [], np.bincount(owner, minlength=len(self.members) if self._apart else 0)
        for number in sorted(self._apart):
            admission = self.members[number].admission
            if counts[number] or not admission.is_idle(limit):
                joining.append(number)
            else:
                admission.is_behind = not admission.state.is_empty
        if joining:
            self._apart.difference_update(joining)
            self._take(joining)
        return bool(joining)

    def _take_unopened(self) -> None:
        numbers = [number for number in sorted(self._apart) if self.members[number].admission.unopened is not None]
        if not numbers:
            return
        state, admissions = self.admission.state, [self.members[number].admission for number in numbers]
        saved = [admission.unopened for admission in admissions if admission.unopened is not None]
        events, bounds = unopened_tables(admissions)
        owner, of_bounds = (np.repeat(numbers, [len(own.tables[name]) for own in saved]) for name in ("kept", "bounds"))
        columns = self._keyed(of_bounds, bounds.columns)
        state.keys.add(
            self._widened(events, owner, state.keys.events.schema), pa.table(columns, schema=state.keys.bounds.schema)
        )
        timers, releases = zip(*(saved_timers(own.header) for own in saved), strict=True)
        state.hot_timer, state.hot_release = min(state.hot_timer, *timers), min(state.hot_release, *releases)
        for admission in admissions:
            admission.begin_anew()
        self._apart.difference_update(numbers)

    def _take(self, joining: Sequence[int]) -> None:
        state, events, bounds, waits = self.admission.state, [], [], [self.admission.state.waits.members]
        for number in joining:
            admission = self.members[number].admission
            own, timer = admission.state, admission.next_timer
            own_events, own_bounds = own.keys.whole()
            events.append(self._widened(own_events, _only(number, own_events), state.keys.events.schema))
            members = own.waits.members
            waits.append(self._widened(members, _only(number, members), state.waits.members.schema))
            columns = self._keyed(_only(number, own_bounds), own_bounds.columns)
            bounds.append(pa.table(columns, schema=state.keys.bounds.schema))
            state.hot_timer, state.hot_release = min(state.hot_timer, timer), min(state.hot_release, own.hot_release)
            for index, values in own.seen.items():
                table = values.table()
                columns = self._keyed(_only(number, table), table.columns)
                state.seen[index].add(pa.table(columns, schema=state.seen[index].schema).combine_chunks())
            admission.begin_anew()
            if own.given is not None:
                admission.state.given = own.given
        state.keys.add(joined(events), joined(bounds))
        state.waits.restore(joined_waits(waits))

    def _widened(self, own: pa.Table, owner: Integers, schema: pa.Schema) -> pa.Table:
        """What is kept of members, with the columns of the family; `owner`: by row, its member."""
        columns = dict(zip(own.column_names, own.columns, strict=True))
        columns |= self._added(owner, self._rest.add(own))
        return pa.table([columns[name] for name in schema.names], schema=schema)

    def part(self) -> None:
        """Gives the members their states; all keys are loaded."""
        state = self.admission.state
        for index, values in state.seen.items():
            table = values.table()
            for number, rows in _by_owner(table, "key0"):
                seen = self.members[number].admission.state.seen[index]
                seen.add(self._of_member(number, table, rows, seen.schema))
        for part in self._divided(*state.keys.hot()):
            self._give_state(part)
        waits = self._whole(state.waits.members)
        for number, rows in _by_owner(waits):
            own = self.members[number].admission.state
            own.waits.restore(joined_waits([_narrowed(waits, rows, own.waits.members.schema)]))
            # When the time of a wait is definitive depends on its key, which may have no event.
            own.hot_release = own.hot_timer = min(own.hot_timer, state.hot_release)
        self.admission.begin_anew()
        self._rest = NumberedRows(self.family.rest)
        self._apart = self._begun()

    def leave(self, numbers: Collection[int]) -> None:
        """Gives these members their states, and keeps those of the others; all keys are loaded."""
        if not self._is_simple:
            self.part()
            return
        if not numbers:
            return
        keys, leaving = self.admission.state.keys, np.zeros(len(self.members), np.bool_)
        leaving[list(numbers)] = True
        events, bounds, timers, bound_timers = keys.hot()
        rows, more = leaving[events.column(OWNER_COLUMN).to_numpy()], leaving[bounds.column("key0").to_numpy()]
        for part in self._divided(_rows(events, rows), _rows(bounds, more), timers[rows], bound_timers[more]):
            self._give_state(part)
        keys.store(_rows(events, ~rows), _rows(bounds, ~more), timers[~rows], bound_timers[~more])
        self._apart.update(number for number in numbers if self.members[number].admission.has_begun)

    def saved(self) -> Iterator[tuple[str, dict[str, Any], dict[str, pa.Table]]]:
        """By title of a member what `QueryState.snapshot` gives once it has got its state.

        All keys are loaded. Members whose state is not here yet are left out.
        """
        if not self._is_simple:
            self.part()
            return
        nothing = QueryState(self.members[0].parts).snapshot()
        parts = {part.number: part for part in self._divided(*self.admission.state.keys.hot())}
        for number, member in enumerate(self.members):
            part, admission = parts.get(number), member.admission
            if number in self._apart:
                continue
            header, tables = admission.state.snapshot() if admission.has_begun else nothing
            if part is not None:
                header = {**header, "next_due": part.timer, "next_release": part.release}
                tables = {**tables, "kept": part.events, "bounds": part.bounds}
            yield member.query.title, header, tables

    def _divided(self, events: pa.Table, bounds: pa.Table, timers: Integers, bound_timers: Integers) -> Iterator[_Part]:
        """By member what is kept of it, of these events and bounds; parameters as of
        `KeyState.store`."""
        own = QueryState(self.members[0].parts).keys  # all members have its columns
        of_events, order = _runs(events.column(OWNER_COLUMN).to_numpy())
        of_bounds, bound_order = _runs(bounds.column("key0").to_numpy())
        events = _narrowed(self._whole(events), order, own.events.schema).combine_chunks()
        bounds = self._of_member(0, bounds, bound_order, own.bounds.schema)
        timers, bound_timers = timers[order], bound_timers[bound_order]
        nothing = slice(0, 0)
        for number in sorted({*of_events, *of_bounds}):
            rows, more = of_events.get(number, nothing), of_bounds.get(number, nothing)
            yield _Part(
                number,
                events.slice(rows.start, rows.stop - rows.start),
                bounds.slice(more.start, more.stop - more.start),
                timers[rows],
                bound_timers[more],
            )

    def _give_state(self, part: _Part) -> None:
        own = self.members[part.number].admission.state
        own.keys.store(part.events, part.bounds, part.timers, part.bound_timers)
        own.hot_release, own.hot_timer = part.release, part.timer


def _only(number: int, table: pa.Table) -> Integers:
    """A member as the owner of all rows."""
    return np.full(len(table), number)


def _rows(table: pa.Table, rows: NDArray[np.bool_]) -> pa.Table:
    return table.filter(pa.array(rows)).combine_chunks()


def _renumbered(table: pa.Table, column: str, numbers: Integers) -> pa.Table:
    """The table with these numbers in place of those in a column."""
    place = table.schema.get_field_index(column)
    return table.set_column(place, table.schema.field(place), pa.array(numbers[table.column(column).to_numpy()]))


def _runs(owner: Integers) -> tuple[dict[int, slice], Integers]:
    """By number of a member where its rows are, once they are in the order that is given, too."""
    order = stable_order(owner)
    different, first = np.unique(owner[order], return_index=True)
    ends = [*first[1:].tolist(), len(owner)]
    return dict(zip(different.tolist(), map(slice, first.tolist(), ends), strict=True)), order


def _narrowed(table: pa.Table, rows: Integers, schema: pa.Schema) -> pa.Table:
    """These rows with the columns of a member."""
    return pa.table(table.select(schema.names).take(pa.array(rows)).columns, schema=schema)


def _by_owner(table: pa.Table, column: str = OWNER_COLUMN) -> Iterator[tuple[int, Integers]]:
    """By number of a member its rows, ascending."""
    owner = table.column(column).to_numpy()
    order = stable_order(owner)
    different, first = np.unique(owner[order], return_index=True)
    if len(different):
        yield from zip(different.tolist(), np.split(order, first[1:]), strict=True)


_KNOWN: dict[tuple[int, ...], tuple[Sequence[QueryParts], list[tuple[Family, list[int]]]]] = {}
"""By the identities of parts, which are kept beside, their families; the last used are the last."""

_MOST_KNOWN = 4


def _families(plan: Plan, parts: Sequence[QueryParts]) -> list[tuple[Family, list[int]]]:
    """As `families_of`; a job makes an engine per bucket and micro-batch."""
    asked = tuple(map(id, parts))
    known = _KNOWN.pop(asked, None) or (parts, families_of(plan, parts, FEWEST))
    _KNOWN[asked] = known
    for key in list(_KNOWN)[:-_MOST_KNOWN]:
        _KNOWN.pop(key, None)
    return known[1]


class Families:
    """The families of an engine, which have the states of their members until `part`.

    of: the admissions of all queries
    runners: one per family
    members: by admission of a query its family and its number there
    """

    def __init__(
        self,
        plan: Plan,
        of: Sequence[SharedAdmission],
        alone: Sequence[QueryRunner],
        before: Families | None = None,
    ) -> None:
        """The families of queries.

        alone: queries whose admission is theirs alone, and whose records come from sources
        before: those of the queries before a change, with all keys loaded. What they have of
            queries that are here, too, is taken over; queries that are not have their states
        """
        self.of = of
        found = _families(plan, [runner.parts for runner in alone])
        groups = [(family, [alone[place] for place in places]) for family, places in found]
        taken = {} if before is None else before.handed_to(groups)
        runners = [FamilyRunner(*group, taken.get(number)) for number, group in enumerate(groups)]
        self.runners = [runner for runner in runners if runner.can_join()]
        for runner in runners:
            if not runner.can_join() and runner.admission.has_begun:
                runner.part()
        self.members = {
            member.admission: (runner, number)
            for runner in self.runners
            for number, member in enumerate(runner.members)
        }

    def definitive(self, admission: SharedAdmission, key: Sequence[Any], clock: int) -> int | None:
        """As of `QueryState`, of a query in a family; None = it has a state of its own."""
        runner, number = self.members.get(admission, (None, 0))
        if runner is None or runner.is_apart(number):
            return None
        return runner.admission.state.definitive(runner.key_of(number, key), clock)

    def least_definitive(self, clock: int) -> dict[SharedAdmission, int]:
        """The least definitive time of all keys, as of `QueryState`, of each query that the
        families have the state of."""
        found: dict[SharedAdmission, int] = {}
        for runner in self._begun():
            state = runner.admission.state
            query = runner.members[0].query
            # Only a query without keys has bounds that are of all its keys.
            is_each_own = not query.keys and state.keys.has_bounds
            key = (None,) * len(query.keys)
            of_all = 0 if is_each_own else state.definitive(runner.key_of(0, key), clock)
            for number, member in enumerate(runner.members):
                if not runner.is_apart(number):
                    own = state.definitive(runner.key_of(number, key), clock) if is_each_own else of_all
                    found[member.admission] = own
        return found

    def load(self, nothing: CallRecords, clock: int) -> bool:
        """Loads all cold keys; False = as of `FamilyRunner.load`.

        nothing: a call without records
        """
        is_done = True
        for runner in self._begun():
            is_done = runner.load(nothing, clock) and is_done
        return is_done

    def part(self) -> None:
        """Gives the queries their states; all keys are loaded."""
        for runner in self._begun():
            runner.part()

    def leave(self, staying: Container[SharedAdmission]) -> None:
        """Gives those queries their states that do not stay; all keys are loaded."""
        for runner in self._begun():
            runner.leave([at for at, own in enumerate(runner.members) if own.admission not in staying])

    def saved(self) -> dict[str, tuple[dict[str, Any], dict[str, pa.Table]]]:
        """By title of a query, as of `FamilyRunner.saved`."""
        found = (item for runner in self._begun() for item in runner.saved())
        return {title: (header, tables) for title, header, tables in found}

    def handed_to(self, groups: Sequence[tuple[Family, Sequence[QueryRunner]]]) -> dict[int, FamilyRunner]:
        """By number of a group of queries the family whose state it takes over.

        Queries whose family nobody takes over have their states.
        """
        taken = dict[int, FamilyRunner]()
        group_of = {own.admission: number for number, (_, members) in enumerate(groups) for own in members}
        for runner in self._begun():
            own = [group_of.get(member.admission) for member in runner.members]
            number = next((number for number in own if number is not None), None)
            if number is None or number in taken or not runner.fits(groups[number][0]):
                runner.part()
            else:
                runner.leave([at for at, group in enumerate(own) if group != number])
                taken[number] = runner
        return taken

    def _begun(self) -> list[FamilyRunner]:
        return [runner for runner in self.runners if runner.admission.has_begun]
