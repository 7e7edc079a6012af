"""Which records of a call each admission looks at, where many queries share a stream.

An index over the filters of all inputs (`runtime.admission.filter_index`) finds them in one pass.
So an admission works on its own records only. The others are counted for it, by their kinds: they
are filtered or unrelated, whatever they hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.dataclass import dataclass, replace
from querylang.plan.model import Plan
from runtime.admission import FilterIndex, FoundRecords, Moves, Outcome, Selector
from runtime.column_types import Integers, one_chunk
from runtime.columns.arrivals import RecordKind
from runtime.columns.keys import group_rows
from runtime.columns.rows import RepeatedTexts
from runtime.engine.call_rows import CallRecords
from runtime.engine.query_runner import QueryOutcome
from runtime.engine.shared_admission import SharedAdmission
from runtime.reading import ControlEvents
from runtime.results.ledger import RECEIVED, WORD_OF, Account

FEW = 4
"""So few admissions look at all records: an index costs more."""

_AT_ONCE = 1 << 18
"""Records of several admissions that are copied at once, at least."""


@dataclass(slots=True)
class Pairs:
    """Pairs of a query and a record.

    count: all of them
    looked_at: those of which not the event type alone or the index has said what becomes of them
    """

    count: int = 0
    looked_at: int = 0

    def add(self, looked_at: int, count: int) -> None:
        """Adds those of a call."""
        self.looked_at += looked_at
        self.count += count


@dataclass(frozen=True, slots=True)
class Offered:
    """What is offered to an admission in a call.

    records: gives its records; asked at most once
    count: how many these are
    steps: their numbers in the call; None = they are all records
    unseen: the ledger's counts of the others, for a query without a name
    """

    records: Callable[[], CallRecords]
    count: int
    steps: Integers | None
    unseen: Account

    def stepped(self, outcome: QueryOutcome) -> QueryOutcome:
        """The outcome with the numbers that the records have in the call."""
        return outcome if self.steps is None else outcome.with_steps(self.steps)


_NONE_UNSEEN: Account = Counter()


class LookedAt:
    """What is looked at in a call: all records by all admissions."""

    def offered(self, admission: SharedAdmission, records: CallRecords) -> Offered:  # noqa: ARG002
        """What an admission is offered; each is asked once.

        records: those of the call, perhaps with some that queries have routed
        """
        return Offered(lambda: records, len(records.kinds), None, _NONE_UNSEEN)

    def found(self, members: Mapping[str, SharedAdmission]) -> FamilyRecords:  # noqa: ARG002
        """What a family finds in a call without records.

        members: by title the admissions of its queries
        """
        return FamilyRecords(_NO_ROWS, _NO_ROWS, None, 0, _NONE_UNSEEN)


@dataclass(frozen=True, slots=True)
class FamilyRecords:
    """The records of a family in a call, in their order; a record may be there for many members.

    owner: the number of the member
    rows: the number of the record
    shared: all records of the call, whose rows may share cells; None = they do not
    count: how many pairs of a member and a record have been looked at
    unseen: the ledger's counts of all others, with the titles of the members
    """

    owner: Integers
    rows: Integers
    shared: pa.Table | None
    count: int
    unseen: Account


_NO_ROWS = np.empty(0, np.int64)

EVERYTHING = LookedAt()


class Looking:
    """What the admissions of an engine look at; made anew when these change."""

    def __init__(self, plan: Plan, admissions: Sequence[SharedAdmission]) -> None:
        self.admissions = admissions
        self._filters = _filters_of(plan, [admission.parts.selector for admission in admissions])
        self._places = {admission: place for place, admission in enumerate(admissions)}

    def of_call(self, records: CallRecords, apart: Collection[SharedAdmission]) -> LookedAt:
        """What is looked at in a call; `apart`: admissions whose queries have a family."""
        texts = RepeatedTexts(records.table)
        rows = self._filters.index.found(texts, records.kinds)
        rows.add(range(len(self.admissions)), np.flatnonzero(records.kinds == RecordKind.CONTROL))
        alone = [place for place, admission in enumerate(self.admissions) if admission not in apart]
        return _Found(records, texts.shared(), self._places, rows, self._filters, alone)


@dataclass(frozen=True, slots=True)
class _Filters:
    """The filters of admissions.

    selectors: theirs, by place
    unseen_of: by place, which of `unseen` it has
    unseen: by kind of record, the outcome of those that the index does not find
    """

    selectors: Sequence[Selector]
    index: FilterIndex
    unseen_of: Integers
    unseen: Sequence[NDArray[np.int8]]


_FILTERS: dict[tuple[int, ...], _Filters] = {}
"""By the identities of selectors, which are kept in them; the last used are the last.

Nothing in them changes. A job makes an engine per bucket and micro-batch, and a replay its own.
"""

_MOST_FILTERS = 2


def _filters_of(plan: Plan, selectors: Sequence[Selector]) -> _Filters:
    asked = id(plan.events), *map(id, selectors)
    known = _FILTERS.pop(asked, None)
    if known is None:
        unseen: dict[bytes, int] = {}
        unseen_of = [unseen.setdefault(own.outcome_unseen.tobytes(), len(unseen)) for own in selectors]
        index = FilterIndex(plan, [selector.wanted for selector in selectors])
        known = _Filters(selectors, index, np.array(unseen_of), [np.frombuffer(own, np.int8) for own in unseen])
    _FILTERS[asked] = known
    for key in list(_FILTERS)[:-_MOST_FILTERS]:
        _FILTERS.pop(key, None)
    return known


class _Found(LookedAt):
    """The records that the index has found in a call.

    Those of several admissions are copied at once, in the order in which these are asked.
    """

    def __init__(
        self,
        records: CallRecords,
        shared: pa.Table,
        places: Mapping[SharedAdmission, int],
        rows: FoundRecords,
        filters: _Filters,
        alone: Sequence[int],
    ) -> None:
        """`rows`: by place of an admission.

        shared: as of `FamilyRecords`
        alone: the places of admissions that are offered their records
        """
        self._records, self._shared, self._places, self._rows = records, shared, places, rows
        self._filters, self._alone = filters, alone
        sources = one_chunk(records.table.column("_source"))
        self._names: list[str] = sources.dictionary.to_pylist()
        source = sources.indices.to_numpy().astype(np.int64) * len(Outcome)
        self._outcomes = [source + own[records.kinds] for own in filters.unseen]
        self._counts = [np.bincount(own, minlength=len(self._names) * len(Outcome)) for own in self._outcomes]
        self._accounts = [self._account(own) for own in self._counts]
        self._copies = self._copied_in_order()
        self._made: dict[int, CallRecords] = {}

    def offered(self, admission: SharedAdmission, records: CallRecords) -> Offered:
        """As of `LookedAt`."""
        place = self._places[admission]
        rows = self._rows.of(place)
        if records is not self._records or len(rows) == len(records.kinds):
            return super().offered(admission, records)
        return Offered(lambda: self._own(place), len(rows), rows, self._unseen(place, rows))

    def found(self, members: Mapping[str, SharedAdmission]) -> FamilyRecords:
        """As of `LookedAt`."""
        places = [self._places[admission] for admission in members.values()]
        owner, rows = self._rows.by_record(places)
        count = len(rows)
        partly = [at for at, place in enumerate(places) if self._filters.selectors[place].looks_at_more]
        if partly:
            passes = self._passes(places, partly, owner, rows)
            owner, rows = owner[passes], rows[passes]
        return FamilyRecords(
            owner, rows, self._shared, count, self._unseen_of_members(list(members), places, owner, rows)
        )

    def _passes(
        self, places: Sequence[int], partly: Sequence[int], owner: Integers, rows: Integers
    ) -> NDArray[np.bool_]:
        """By record of a family, whether no filter excludes it.

        places: by member
        partly: the members whose filters exclude some of the records that the index finds
        owner, rows: as of `FamilyRecords`
        """
        passes, (start, order) = np.ones(len(rows), np.bool_), group_rows(owner, len(places))
        for at in partly:
            own = order[start[at] : start[at + 1]]
            if len(own):
                numbers, selector = rows[own], self._filters.selectors[places[at]]
                passes[own] = selector.passes(self._records.table, numbers, self._records.kinds[numbers])
        return passes

    def _unseen_of_members(
        self, titles: Sequence[str], places: Sequence[int], owner: Integers, rows: Integers
    ) -> Account:
        """The counts of records that are not of a member; by member its title and its place."""
        account, unseen_of = dict[tuple[str, str, str], int](), self._filters.unseen_of[places]
        for own, counts in enumerate(self._counts):
            known, some = np.flatnonzero(counts), np.flatnonzero(unseen_of == own)
            number = np.full(len(counts), -1, np.int64)
            number[known] = np.arange(len(known))
            member = np.full(len(titles), -1, np.int64)
            member[some] = np.arange(len(some))
            is_own = slice(None) if len(some) == len(titles) else unseen_of[owner] == own
            codes = member[owner[is_own]]
            if len(known) > 1:
                codes = codes * len(known) + number[self._outcomes[own][rows[is_own]]]
            left = np.tile(counts[known], len(some)) - np.bincount(codes, minlength=len(some) * len(known))
            words = [(self._names[place // len(Outcome)], WORD_OF[place % len(Outcome)]) for place in known.tolist()]
            for place, count in zip(np.flatnonzero(left).tolist(), left[left != 0].tolist(), strict=True):
                title, (source, word) = titles[some[place // len(known)]], words[place % len(known)]
                received = title, source, RECEIVED
                account[received] = account.get(received, 0) + count
                account[title, source, word] = count
        return Counter(account)

    def _own(self, place: int) -> CallRecords:
        if not len(self._rows.of(place)):
            return chosen_records(self._records, _NO_ROWS)
        while place not in self._made:
            self._made.update(next(self._copies))
        return self._made.pop(place)

    def _unseen(self, place: int, rows: Integers) -> Account:
        own = int(self._filters.unseen_of[place])
        if not len(rows):
            return self._accounts[own]
        counts = self._counts[own]
        return self._account(counts - np.bincount(self._outcomes[own][rows], minlength=len(counts)))

    def _account(self, counts: Integers) -> Account:
        account: Account = Counter()
        for place in np.flatnonzero(counts).tolist():
            source, word = self._names[place // len(Outcome)], WORD_OF[place % len(Outcome)]
            account["", source, RECEIVED] += int(counts[place])
            account["", source, word] += int(counts[place])
        return account

    def _copied_in_order(self) -> Iterator[dict[int, CallRecords]]:
        some: list[int] = []
        count, most = 0, max(_AT_ONCE, len(self._records.kinds))
        for place in self._alone:
            rows = self._rows.of(place)
            if 0 < len(rows) < len(self._records.kinds):
                some.append(place)
                count += len(rows)
                if count >= most:
                    yield self._copied(some)
                    some, count = [], 0
        if some:
            yield self._copied(some)

    def _copied(self, places: Sequence[int]) -> dict[int, CallRecords]:
        whole = chosen_records(self._records, np.concatenate([self._rows.of(place) for place in places]))
        copied: dict[int, CallRecords] = {}
        begin = 0
        for place in places:
            own = slice(begin, begin + len(self._rows.of(place)))
            begin = own.stop
            copied[place] = replace(
                whole,
                table=whole.table.slice(own.start, own.stop - own.start),
                kinds=whole.kinds[own],
                arrival=whole.arrival[own],
                moves=Moves(whole.moves.is_moved[own], whole.moves.without_idle[own]),
                controls=_chosen_controls(self._records.controls, self._rows.of(place)),
            )
        return copied


def chosen_records(records: CallRecords, rows: Integers) -> CallRecords:
    """These records of a call; its control events keep their numbers."""
    moves = records.moves
    if len(rows) == len(records.kinds) and bool((rows == np.arange(len(rows))).all()):
        return replace(records, is_found=True)  # nothing has to be copied
    return replace(
        records,
        table=records.table.take(pa.array(rows)),
        kinds=records.kinds[rows],
        arrival=records.arrival[rows],
        moves=Moves(moves.is_moved[rows], moves.without_idle[rows]) if len(moves.is_moved) else moves,
        is_found=True,
    )


def _chosen_controls(controls: ControlEvents, rows: Integers) -> ControlEvents:
    """The same control events with their numbers among `rows`, which have all of them."""
    if len(controls.leeways) == 1 and not controls.heartbeats:
        return controls

    def number(record: int) -> int:
        return int(np.searchsorted(rows, record))

    first, *leeways = controls.leeways
    return ControlEvents(
        [first, *((number(record), change) for record, change in leeways)],
        {number(record): event for record, event in controls.heartbeats.items()},
        [],
    )
