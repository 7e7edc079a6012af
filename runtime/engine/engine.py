"""The engine: runs the queries of a plan over batches of records, and merges their results.

`Engine.process` takes records in any order, and the moment that the clock has reached. The answer
does not depend on how records are grouped into calls. Each query works on its own
(`runtime.engine.query_runner`); the clock is common to all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.plan.model import Plan
from runtime.admission import CLOCK_SCHEMA, NO_MOVES, Moves
from runtime.columns.arrivals import Arrivals, RecordKind, in_arrival_order, is_moved
from runtime.engine import kept_states
from runtime.engine.call_rows import CallRecords
from runtime.engine.chains import Chains, Crossing
from runtime.engine.families import Families
from runtime.engine.looking import EVERYTHING, FEW, LookedAt, Looking, Pairs
from runtime.engine.paths import RoutedRecords
from runtime.engine.query_runner import QueryOutcome, QueryRunner
from runtime.engine.query_state import QueryParts, QueryState, Saved, all_parts
from runtime.engine.shared_admission import AdmittedCall, Carry, SharedAdmission, renamed
from runtime.engine.snapshot import ALIKE, StateError, decode, encode, integer
from runtime.instants import EARLIEST, LATEST, NEVER, NO_TIME
from runtime.matching.interface import Matcher
from runtime.matching.serving import Search, Searches
from runtime.reading import ControlEvents, SetDelayedEventsLeeway
from runtime.results.ledger import Account, ledger_table
from runtime.results.outputs import control_errors, refused_at_source, stopped_instances
from runtime.results.schemas import NO_ADJUSTED, NO_OUTPUTS, Results, no_discards, rows_of

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class StoredEvents:
    """The events that are kept for a query.

    table: those in key state with the columns of `runtime.engine.query_state`, those of a key in
        total order
    keys: the key columns, by row
    bounds: of keys (`runtime.engine.query_state.QueryState`)
    waits: the members of pending matches (`runtime.matching.trailing_waits.PendingWaits`)
    is_unusual: there is more: heartbeats for every key, another leeway, blocks that were cut off
    """

    table: pa.Table
    keys: Sequence[pa.Array]
    bounds: pa.Table
    waits: pa.Table
    is_unusual: bool


Rounds = Generator[RoutedRecords | None, Sequence[RoutedRecords], Results]
"""A call in rounds: what leaves the engine in each, then what comes to it; None = nothing."""


def only_result(rounds: Generator[object, Any, Result]) -> Result:
    """What is given by work that has one round only."""
    try:
        next(rounds)
    except StopIteration as end:
        found: Result = end.value
        return found
    raise AssertionError("nobody has what comes from other engines")


def _as_moment(reached: int) -> int | None:
    """A definitive time as callers get it."""
    return None if reached == NO_TIME else max(EARLIEST, min(reached, LATEST))


class Engine:
    """Runs the queries of one plan. Times are microseconds UTC.

    matcher: "auto" (the kernel if it can express the query), "kernel" (raises `NotForKernel` if
        not) or "reference"
    gathers_later: where a query allows it, the tables of matches are left to the caller to gather
    has_changes: whether the caller does what control events ask of the queries: `followed_by`
    saved: by title what a query begins with
    kept: by title the runner of another engine, which is of no use any more

    `looked_at`: how many pairs of a query and a record it has looked at
    `tells_causes`: whether results say which routed event has caused them (`Results.routed`)
    """

    def __init__(
        self,
        plan: Plan,
        matcher: str = "auto",
        *,
        gathers_later: bool = False,
        has_changes: bool = False,
        saved: Mapping[str, Saved] = kept_states.NOTHING_SAVED,
        kept: Mapping[str, QueryRunner] = kept_states.NOTHING_KEPT,
    ) -> None:
        self.plan = plan
        self._matcher, self._gathers_later, self._has_changes = matcher, gathers_later, has_changes
        self._runners = kept_states.runners_of(all_parts(plan, matcher), saved, kept, gathers_later=gathers_later)
        self._by_title = {runner.query.title: runner for runner in self._runners}
        self._chains = Chains(plan, self._runners)
        self._clock = NO_TIME
        self._clock_without_idle = NO_TIME
        self._leeway: SetDelayedEventsLeeway | None = None
        self._account: Account = Counter()
        self._reported: list[list[str]] = []  # (query, instance) of error rows that were given
        self._own: dict[SharedAdmission, list[QueryRunner]] | None = None
        self._looking: Looking | None = None
        self._searches: dict[SharedAdmission, Searches] = {}
        self._families: Families | None = None
        self._watched: set[str] = set()
        self.looked_at = Pairs()
        self.tells_causes = False

    @property
    def clock(self) -> int | None:
        """The largest arrival time or tick so far."""
        return None if self._clock == NO_TIME else self._clock

    def process(self, arrivals: Arrivals, now: int | None = None, *, without_idle: int | None = None) -> Results:
        """Processes records, and runs all timers up to the clock.

        A record with an arrival before the clock arrives at the clock, and is counted.

        now: advances the clock after the records, µs; it never goes back
        without_idle: where the clock would be if time had waited for every silent source, µs;
            None = at the clock
        """
        return only_result(self.process_in_rounds(arrivals, now, without_idle=without_idle))

    def process_in_rounds(
        self, arrivals: Arrivals, now: int | None = None, *, without_idle: int | None = None
    ) -> Rounds:
        """As `process`, where queries of several engines may feed each other (`crossing`)."""
        table, began = in_arrival_order(arrivals.table), self._clock
        written = table.column("_arrival").to_numpy()
        arrival = np.maximum(written, self._clock)
        moves = Moves(is_moved(table) | (written < self._clock), np.maximum(written, self._clock_without_idle))
        if len(arrival):
            self._clock = int(arrival[-1])
        if now is not None:
            self._clock = max(self._clock, now)
        reached = self._clock if without_idle is None else min(without_idle, self._clock)
        self._clock_without_idle = max(self._clock_without_idle, reached)
        return self._in_rounds(table, arrival, self._clock, moves, began=began)

    def flush(self) -> Results:
        """Ends the input and runs all timers that are left; the clock stops at the last one."""
        return only_result(self.flush_in_rounds())

    def flush_in_rounds(self) -> Rounds:
        """As `flush`, where queries of several engines may feed each other (`crossing`)."""
        return self._in_rounds(Arrivals.empty(self.plan).table, np.empty(0, np.int64), NEVER, is_last=True)

    def cross(self, crossing: Crossing | None) -> None:
        """From now on queries of this engine and of others feed each other; None = only its own do.

        All these engines then have the same calls at the same clock, in rounds. Each gives what its
        queries of a level have routed, and gets what all have routed to queries that it has.
        """
        if self._chains.crossing is not crossing:
            self._part_families()  # members may be fed from now on
            self._chains = Chains(self.plan, self._runners, crossing)

    def end(self) -> Results:
        """Ends the input without advancing the clock: for sources that are complete at their
        end."""
        nothing = Arrivals.empty(self.plan).table
        return only_result(self._in_rounds(nothing, np.empty(0, np.int64), self._clock, is_last=True))

    def followed_by(self, plan: Plan, heirs: Mapping[str, str]) -> tuple[Engine, pa.Table]:
        """The engine of the queries that run from now on, and changes of the ledger.

        Queries of a title that there was before keep their state; their parameters have the values
        of now. Others begin without any, at the clock of this engine.

        heirs: by title the title of the query whose state it takes over instead

        What does not change is not touched, so it takes as long as its change is large. This engine
        is of no use any more.
        """
        kept = kept_states.untouched(self._runners, all_parts(plan, self._matcher), heirs)
        self._load_cold_but({runner.admission for runner in kept.values()})
        left = [runner for runner in self._runners if runner.query.title not in kept]
        titles = [query.title for query in plan.queries if query.title not in kept]
        saved, changes = kept_states.handed_on(left, titles, heirs)
        engine = Engine(
            plan,
            self._matcher,
            gathers_later=self._gathers_later,
            has_changes=self._has_changes,
            saved=saved,
            kept=kept,
        )
        engine._continue_families(self._families)
        engine._begin_beside(self)
        engine._account, engine.tells_causes = self._account, self.tells_causes
        engine._account.update(changes)
        return engine, ledger_table(changes)

    def beside(self, plan: Plan) -> Engine:
        """An engine of other queries, which begins at the clock of this one; control events that
        this one has heeded hold for it, too."""
        engine = Engine(plan, self._matcher, gathers_later=self._gathers_later, has_changes=self._has_changes)
        engine._begin_beside(self)
        return engine

    def _begin_beside(self, other: Engine) -> None:
        self._clock, self._clock_without_idle = other._clock, other._clock_without_idle
        self._leeway, self._reported = other._leeway, other._reported

    def catch_up(self, other: Engine, arrivals: Arrivals) -> Rounds:
        """Processes records, and runs all timers up to the clock of another engine."""
        return self.process_in_rounds(arrivals, other.clock, without_idle=other._clock_without_idle)

    def joined_by(self, other: Engine, titles: Collection[str], *, begins: bool = False) -> tuple[Engine, pa.Table]:
        """The engine in which queries of another one continue, too, and what was counted for them.

        This one has these queries as well, but has not run them. So a query that has run over the
        history continues among others. The other engine has caught up with this one; it may have
        queries that feed these, and end with it.

        titles: of the queries
        begins: this engine has run nothing; it begins at the clock of the other one
        """
        self._load_cold()
        other._load_cold()
        runners = [runner for runner in self._runners if runner.query.title not in titles]
        runners += [runner for runner in other._runners if runner.query.title in titles]
        saved, _ = kept_states.handed_on(runners, [query.title for query in self.plan.queries], {})
        engine = Engine(
            self.plan, self._matcher, gathers_later=self._gathers_later, has_changes=self._has_changes, saved=saved
        )
        engine._clock = other._clock if begins else self._clock
        engine._clock_without_idle = other._clock_without_idle if begins else self._clock_without_idle
        engine._leeway, engine._reported = self._leeway or other._leeway, self._reported
        engine._account = self._account
        counted: Account = Counter({place: count for place, count in other._account.items() if place[0] in titles})
        engine._account.update(counted)
        return engine, ledger_table(counted)

    def watch(self, title: str, watcher: Callable[[QueryParts], Matcher]) -> None:
        """Lets another matcher see what the one of a query gets; call it before any record.

        watcher: makes it of the query's parts, whose matcher has to give the answers
        """
        runner = self._by_title[title]
        runner.parts = replace(runner.parts, matcher=watcher(runner.parts))
        self._watched.add(title)

    def next_wake(self) -> int | None:
        """The earliest timer, µs: when arrival time alone does something; None if there is none."""
        timer = min((admission.next_timer for admission in self._at_work()), default=NEVER)
        return None if timer >= NEVER else timer

    def next_release(self) -> int | None:
        """The earliest timer that releases an event or ends a wait, µs; None if there is none.

        Other timers only forget keys. Loads the cold keys.
        """
        self._load_cold()
        timer = min((state.hot_release for state in self._states), default=NEVER)
        return None if timer >= NEVER else timer

    def definitive(self, query: str, key: tuple[object, ...], at: int | None = None) -> int | None:
        """The definitive time of a query, by title, for a key, at the engine's clock; None before
        there is one.

        For a complete input it is the last moment of the year 9999.

        at: what the passing of time alone would make of it by then, µs
        """
        if self._clock == NO_TIME:
            return None
        runner, clock = self._by_title[query], self._clock if at is None else at
        reached = None if self._families is None else self._families.definitive(runner.admission, key, clock)
        if reached is None:
            reached = runner.state.definitive(key, clock)
        return _as_moment(reached)

    def least_definitive(self) -> dict[str, int | None]:
        """By the query's title, the least definitive time of all its keys, as of `definitive`."""
        if self._clock == NO_TIME:
            return dict.fromkeys(self._by_title)
        found = {} if self._families is None else self._families.least_definitive(self._clock)
        known: dict[bytes, int] = {}
        for admission in self._members():
            if admission not in found:
                found[admission] = admission.least_definitive(self._clock, known)
        return {runner.query.title: _as_moment(found[runner.admission]) for runner in self._runners}

    def retained(self) -> int:
        """How many events the state holds: in windows, pending, in pending matches.

        Loads the cold keys, so that expired events are not counted.
        """
        self._load_cold(parts=False)
        return self.stored_events()

    def stored_events(self) -> int:
        """Upper bound of `retained`, without loading cold keys: may count expired events."""
        return sum(state.stored_events for state in self._states)

    @property
    def admissions(self) -> int:
        """How many different admissions the queries have."""
        return len(self._members())

    def keys(self) -> int:
        """How many keys have state, summed over states; estimated where there are many.

        Loads the cold keys.
        """
        self._load_cold(parts=False)
        return sum(state.keys.keys() for state in self._states)

    def stored(self) -> dict[str, StoredEvents]:
        """What is kept for each query, by its title. Loads the cold keys."""
        self._load_cold()
        return {
            runner.query.title: StoredEvents(
                runner.state.keys.events,
                runner.parts.keys_of(runner.state.keys.events),
                runner.state.keys.bounds,
                runner.state.waits.members,
                runner.state.has_cut_off or runner.state.is_moved_everywhere or self._leeway is not None,
            )
            for runner in self._runners
        }

    def sizes(self) -> dict[str, dict[str, int]]:
        """By the query's title, the numbers of its keys, events, pending events and waits. Loads
        the cold keys; many keys are estimated."""
        self._load_cold()
        return {runner.query.title: kept_states.query_sizes(runner.state) for runner in self._runners}

    def key_contents(self, title: str, key: kept_states.Key) -> kept_states.KeyContents:
        """What is kept of a key of a query. Loads the cold keys."""
        self._load_cold()
        runner = self._by_title[title]
        return kept_states.key_contents(runner.parts, runner.state, key)

    def forget_key(self, title: str, key: kept_states.Key) -> tuple[kept_states.KeyContents, Account]:
        """Removes all that is kept of a key of a query, which a user asks for; gives what it was,
        and the changes of the ledger. Loads the cold keys."""
        self._load_cold()
        runner = self._by_title[title]
        if len(self._members()[runner.admission]) > 1:
            runner.admission = runner.admission.parted(runner.parts)
            self._own, self._searches = None, {}
        found, account = kept_states.forget_key(runner.parts, runner.state, key)
        self._account.update(account)
        return found, account

    def waiting(self) -> tuple[int, int | None]:
        """How many matches wait, and when the next is due, µs; None = none waits."""
        outlooks = [state.waits.outlook() for state in self._states]
        count, due = sum(count for count, _ in outlooks), min((due for _, due in outlooks), default=NEVER)
        return count, due if count else None

    @property
    def account(self) -> Account:
        """The accounts of all calls of this object."""
        return self._account

    def ledger(self) -> pa.Table:
        """The accounts of all calls of this object (LEDGER_SCHEMA)."""
        return ledger_table(self._account)

    def clocks(self) -> pa.Table:
        """The timelines that keys share, of all queries (CLOCK_SCHEMA)."""
        own = [(runner.query.title, runner.state.clocks.timelines()) for runner in self._runners]
        named = [table.set_column(0, "query", pa.repeat(title, len(table))) for title, table in own]
        return pa.concat_tables([CLOCK_SCHEMA.empty_table(), *named])

    def snapshot(self) -> bytes:
        """The whole state, for `restore`."""
        self._load_cold(parts=False)
        members = self._members()
        of_families = {} if self._families is None else self._families.saved()
        states = {
            (title := own[0].query.title): of_families.get(title) or admission.saved()
            for admission, own in members.items()
        }
        header: dict[str, Any] = {
            "clock": self._clock,
            "clock_without_idle": self._clock_without_idle,
            "leeway": None if self._leeway is None else [self._leeway.leeway, self._leeway.reorder],
            "queries": {title: own for title, (own, _) in states.items()},
            "told": self._reported,
        }
        alike = {other.query.title: first.query.title for first, *others in members.values() for other in others}
        if alike:
            header[ALIKE] = alike
        tables = {f"{title}/{name}": table for title, (_, own) in states.items() for name, table in own.items()}
        return encode(header, tables)

    @staticmethod
    def restore(plan: Plan, data: bytes, matcher: str = "auto", *, has_changes: bool = False) -> Engine:
        """An engine with the state of a snapshot; queries that are not in it start empty. Raises
        StateError."""
        header, tables = decode(data)
        try:
            engine = Engine(plan, matcher, has_changes=has_changes, saved=kept_states.saved_states(header, tables))
            engine._clock = integer(header["clock"])
            # older states have none
            engine._clock_without_idle = integer(header.get("clock_without_idle", header["clock"]))
            engine._leeway = None if header["leeway"] is None else SetDelayedEventsLeeway(*header["leeway"])
            engine._reported = list(header["told"])
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
            raise StateError(f"this state does not fit the queries: {error}") from None
        return engine

    def _members(self) -> dict[SharedAdmission, list[QueryRunner]]:
        """The admissions, each with its queries."""
        if self._own is None:
            self._own = {}
            for runner in self._runners:
                self._own.setdefault(runner.admission, []).append(runner)
        return self._own

    def _at_work(self) -> Iterator[SharedAdmission]:
        """The admissions that have a state, of queries and of families."""
        families = () if self._families is None else (runner.admission for runner in self._families.runners)
        return (admission for admission in (*self._members(), *families) if admission.has_begun)

    @property
    def _states(self) -> Iterator[QueryState]:
        """Their states."""
        return (admission.state for admission in self._at_work())

    def _no_records(self, clock: int) -> CallRecords:
        table, none = Arrivals.empty(self.plan).table, np.empty(0, np.int64)
        controls = ControlEvents.of(table, self.plan, self._leeway)
        return CallRecords(table, none, none, NO_MOVES, controls, clock, clock)

    def _part_families(self, clock: int | None = None) -> None:
        """Gives each query its state, with its cold keys loaded if it has a family.

        clock: up to which timers have been run, µs; None = the engine's
        """
        families, self._families = self._families, None
        if families is not None:
            self._load_families(families, self._clock if clock is None else clock)
            families.part()

    def _load_families(self, families: Families, clock: int) -> None:
        if not families.load(self._no_records(clock), clock):
            raise StateError("timers up to the clock have not been run")

    def _families_in(
        self, records: CallRecords, members: Mapping[SharedAdmission, list[QueryRunner]], began: int
    ) -> Families | None:
        """The families of a call; a call with control events has none.

        began: the clock before the call
        """
        if self._matcher != "auto" or len(members) <= FEW or (records.kinds == RecordKind.CONTROL).any():
            self._part_families(began)
            return None
        if len(records.kinds) and (self._families is None or self._families.of != list(members)):
            self._part_families(began)
            self._families = self._new_families(members)
        return self._families

    def _continue_families(self, families: Families | None) -> None:
        """Takes over what families of an engine before have of queries that are here, too."""
        if families is None:
            return
        members = self._chains.in_order(self._members())
        if len(members) > FEW:
            self._families = self._new_families(members, families)
        else:
            families.part()

    def _new_families(
        self, members: Mapping[SharedAdmission, list[QueryRunner]], before: Families | None = None
    ) -> Families:
        alone = [own[0] for own in members.values() if len(own) == 1 and self._can_join(own[0])]
        return Families(self.plan, list(members), alone, before)

    def _can_join(self, runner: QueryRunner) -> bool:
        return runner.query.title not in self._watched and not self._chains.feed(runner.query)

    def _load_cold(self, *, parts: bool = True) -> None:
        """Loads the cold keys of every query, and removes expired values; raises StateError for a
        restored state that cannot be.

        parts: gives each query the state that its family has; families are left as they are if all
            of them are asked the same
        """
        if parts:
            self._part_families()
        elif self._families is not None:
            self._load_families(self._families, self._clock)
        self._load_cold_keys(())

    def _load_cold_but(self, staying: Collection[SharedAdmission]) -> None:
        """As `_load_cold`, of families, and of queries whose admission does not stay as it is.

        Those have their states then.
        """
        if self._families is not None:
            self._load_families(self._families, self._clock)
            self._families.leave(staying)
        self._load_cold_keys(staying)

    def _load_cold_keys(self, staying: Collection[SharedAdmission]) -> None:
        nothing = self._no_records(self._clock)
        for admission, members in self._members().items():
            if not admission.has_begun or admission in staying:
                continue
            admission.state.evict_values(self._clock, everything=True)
            if not admission.state.keys.has_cold and not admission.is_behind:
                continue
            call = admission.admitted(nothing, everything=True)
            outcomes, carries = zip(*(runner.run(nothing, call) for runner in members), strict=True)
            if not all(item.matches is item.found is None for item in outcomes):
                raise StateError("timers up to the clock have not been run")
            forgotten = sum(self._evicted(members, carries, self._clock).values())
            if forgotten:
                raise StateError("keys that have to be forgotten are there")

    def _in_rounds(
        self,
        table: pa.Table,
        arrival: NDArray[np.int64],
        limit: int,
        moves: Moves = NO_MOVES,
        *,
        is_last: bool = False,
        began: int | None = None,
    ) -> Rounds:
        """Runs every query over records in order of arrival, and timers up to `limit`; then evicts
        at the clock.

        began: the clock before the call; None = it is the same
        """
        kinds = table.column("_kind").to_numpy().astype(np.int64)
        controls = ControlEvents.of(table, self.plan, self._leeway, has_changes=self._has_changes)
        self._leeway = controls.leeway
        records = CallRecords(table, kinds, arrival, moves, controls, self._clock, limit, is_last)
        members = self._chains.in_order(self._members())
        by_title: dict[str, QueryOutcome] = {}
        carries: list[tuple[list[QueryRunner], list[Carry]]] = []
        began = self._clock if began is None else began
        chains = self._chains.of_call(records, began, tells_causes=self.tells_causes)
        families = self._families_in(records, members, began)
        apart: Collection[SharedAdmission] = () if families is None else families.members
        looked_at = self._looked_at_in(records, members, apart)
        changes: Account = Counter()
        releases = list[int]()
        for family in () if families is None else families.runners:  # none of their queries is fed
            of_family = family.of_call(records, looked_at)
            self.looked_at.add(of_family.looked_at, len(records.kinds) * len(family.members))
            by_title |= chains.add_all(of_family.outcomes, self._by_title)
            changes.update(of_family.account)
            releases.append(of_family.last_release)
        exchanged = 0
        for admission, own in members.items():
            while exchanged < self._chains.exchanges_before(own):
                chains.receive((yield chains.leave()))
                exchanged += 1
            if admission in apart:
                continue
            given = chains.records_for(own[0].query)
            offered = looked_at.offered(admission, given.records)
            self.looked_at.add(offered.count * len(own), len(given.records.kinds) * len(own))
            for runner in own:
                changes.update(renamed(offered.unseen, runner.query.title))
            if not offered.count and admission.is_idle(limit):
                admission.is_behind = admission.has_begun and not admission.state.is_empty
                continue
            own_records = offered.records()
            call = admission.admitted(own_records)
            searches = self._searches_of(admission, own, call)
            found = [runner.run(own_records, call, search) for runner, search in zip(own, searches, strict=True)]
            for runner, (outcome, _) in zip(own, found, strict=True):
                by_title[runner.query.title] = chains.add(runner.query, given, offered.stepped(outcome))
            carries.append((own, [carry for _, carry in found]))
        for _ in range(exchanged, self._chains.exchanges):
            chains.receive((yield chains.leave()))
        releases += [outcome.last_release for outcome in by_title.values()]
        outcomes = {title: by_title[title] for title in self._by_title if title in by_title}
        if limit == NEVER:
            self._clock = max([self._clock, *releases])
        forgotten: Counter[str] = Counter()
        for own, left in carries:
            forgotten.update(self._evicted(own, left, self._clock))
        for family in () if families is None else families.runners:
            family.evict(self._clock)
        refused = refused_at_source(self.plan, table, kinds, arrival)
        if limit != NEVER:  # how far time advances at the end depends on all queries; a key belongs to no source
            changes.update({(title, "", "forgotten_keys"): count for title, count in forgotten.items() if count})
        errors = control_errors(controls.errors, arrival)
        return self._results(outcomes, refused, errors, changes, chains.table())

    def _looked_at_in(
        self,
        records: CallRecords,
        members: Mapping[SharedAdmission, list[QueryRunner]],
        apart: Collection[SharedAdmission],
    ) -> LookedAt:
        """What each admission looks at; `apart`: those whose queries have a family."""
        if len(members) <= FEW or not len(records.kinds):
            return EVERYTHING
        if self._looking is None or self._looking.admissions != list(members):
            self._looking = Looking(self.plan, list(members))
        return self._looking.of_call(records, apart)

    def _searches_of(
        self, admission: SharedAdmission, members: Sequence[QueryRunner], call: AdmittedCall
    ) -> Sequence[Search | None]:
        """By query its search; None = it shares nothing."""
        if len(members) == 1 or not call.has_new:
            return [None] * len(members)
        if admission not in self._searches:
            self._searches[admission] = Searches(self.plan, [runner.query for runner in members])
        return self._searches[admission].of_call(call.events, [runner.parts.matcher for runner in members])

    def _evicted(self, members: Sequence[QueryRunner], carries: Sequence[Carry], clock: int) -> dict[str, int]:
        """Evicts what queries that share an admission do not need any more; by title, how many keys
        were forgotten.

        carries: of the same queries. One of which a block was cut off gets an admission of its own.
        """
        shared, counts = members[0].admission, dict[str, int]()
        leaving = [place for place, carry in enumerate(carries) if len(members) > 1 and carry.cut_off.any()]
        for place in leaving:
            runner = members[place]
            runner.admission = shared.parted(runner.parts)
            self._own, self._searches = None, {}
            counts[runner.query.title] = runner.admission.evict(carries[place], clock)
        staying = [place for place in range(len(members)) if place not in leaving]
        if staying:
            count = shared.evict(carries[staying[0]], clock)
            counts |= dict.fromkeys((members[place].query.title for place in staying), count)
        return counts

    def _results(
        self,
        outcomes: Mapping[str, QueryOutcome],
        refused: pa.Table,
        errors: pa.Table,
        changes: Account,
        routed: pa.Table | None,
    ) -> Results:
        """The results of all queries as one; adds to the ledger.

        outcomes: by title, in the order of the queries; of those that had something to do
        changes: of the ledger, beside those of the outcomes
        """
        for outcome in outcomes.values():
            changes.update(outcome.account)
        self._account.update(changes)
        outputs, discarded, adjusted = (
            [getattr(outcome, name) for outcome in outcomes.values() if len(getattr(outcome, name))]
            for name in ("outputs", "discarded", "adjusted")
        )
        return Results(
            matches={title: outcome.matches for title, outcome in outcomes.items() if outcome.matches is not None},
            outputs=rows_of(NO_OUTPUTS, [self._new_stopped(), errors, *outputs]),
            discarded=rows_of(no_discards(self.plan), [refused, *discarded]),
            ledger=ledger_table(changes),
            found={title: outcome.found for title, outcome in outcomes.items() if outcome.found is not None},
            adjusted=rows_of(NO_ADJUSTED, adjusted),
            routed=routed,
        )

    def _new_stopped(self) -> pa.Table:
        """Error rows for instances that do not run, each reported once."""
        new = [item for item in self.plan.stopped if [item.query, item.instance] not in self._reported]
        self._reported += [[item.query, item.instance] for item in new]
        return stopped_instances(new)
