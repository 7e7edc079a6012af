"""Records of the epochs between changes of the queries, and engines that change epochs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import takewhile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from job_engine.wire.packed_rows import GroupRecords
from job_engine.wire.partition_groups import PartitionGroup, count_uses, is_refused_once
from job_engine.wire.program import Notice, Program, Stage
from querylang.dataclass import dataclass, field, replace
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals, as_known, come_before
from runtime.engine import Engine
from runtime.instants import EARLIEST, NEVER, NO_TIME
from runtime.results.ledger import ledger_table
from runtime.results.outputs import change_rows
from runtime.results.schemas import NO_LEDGER, Results


@dataclass(frozen=True, slots=True)
class Pieces:
    """The released records of a partition group.

    own: those of this bucket among which this group reports what no query can read
    others: the other ones of this bucket
    copies: those that every bucket has
    controls: the control events of both
    ledger: counts of records that are left out
    """

    own: Arrivals
    others: Arrivals
    copies: Arrivals
    controls: Arrivals
    ledger: pa.Table = field(default_factory=lambda: NO_LEDGER)

    @property
    def all(self) -> Arrivals:
        """The records that are processed."""
        return Arrivals.concat([self.own, self.others, self.copies])

    def changed(self, change: Callable[[Arrivals], Arrivals]) -> Pieces:
        """The same with other records."""
        return Pieces(change(self.own), change(self.others), change(self.copies), change(self.controls), self.ledger)

    def split(self, stage: Stage) -> tuple[Pieces, Pieces]:
        """Those before a stage, and the others."""
        return (
            self.changed(lambda arrivals: _chosen(arrivals, _is_before(arrivals, stage))),
            self.changed(lambda arrivals: _chosen(arrivals, ~_is_before(arrivals, stage))),
        )

    def have_begun(self, stage: Stage) -> bool:
        """Whether the record is among them that has asked for a stage."""
        if stage.behind is None:
            return False
        is_last = _is_before(self.copies, stage) & ~_is_before(self.copies, stage, or_is=False)
        return bool(is_last.any())

    def of_stage(self, stage: Stage, number: int) -> Pieces:
        """The same as the queries of a stage see them.

        Event types that it does not know are unknown. What no query can read is counted by each
        group, and reported by one.
        """
        group = stage.groups[number]
        known = self.changed(lambda arrivals: Arrivals(as_known(arrivals.table, group.plan.events, stage.known)))
        is_refused = is_refused_once(known.others.system("kind"))
        if not is_refused.any():
            return known
        account = count_uses(known.others, group.uses(known.others), is_refused)
        return replace(known, others=_chosen(known.others, ~is_refused), ledger=ledger_table(account))


def _is_before(arrivals: Arrivals, stage: Stage, *, or_is: bool = True) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which records arrived before a stage; `or_is`: also the one that has asked for it."""
    begins = NO_TIME if stage.begins is None else stage.begins
    if stage.behind is None:
        return arrivals.system("arrival") <= begins
    return come_before(arrivals.table, (begins, *stage.behind), or_are=or_is)


def _chosen(arrivals: Arrivals, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Arrivals:
    return arrivals if rows.all() else arrivals.take(np.flatnonzero(rows))


def followed(engine: Engine, stage: Stage, number: int) -> tuple[Engine, pa.Table]:
    """The engine of a group in the next stage, and changes of the ledger."""
    plan = stage.groups[number].plan
    if plan.queries == engine.plan.queries and not stage.heirs:
        return engine, NO_LEDGER
    return engine.followed_by(plan, stage.heirs)


def passed_over(program: Program, group: PartitionGroup, records: Iterable[GroupRecords]) -> list[Results]:
    """What is given of released records that cannot concern any query of the group.

    The group has not waited for their sources, so its clock, and its epoch, may be later ones. They
    are counted for the queries of their own epoch.
    """
    results = []
    for item in records:
        for own, known in _by_stage(program, group, item.arrivals):
            account = count_uses(known, own.uses(known), np.ones(len(known), np.bool_))
            results.append(Results(ledger=ledger_table(account)))
            refused = is_refused_once(known.system("kind"))
            if item.refuses and refused.any():
                given = Engine(Plan(own.plan.events, ())).process(_chosen(known, refused))
                results.append(replace(given, ledger=NO_LEDGER))
    return results


def _by_stage(program: Program, group: PartitionGroup, arrivals: Arrivals) -> Iterator[tuple[PartitionGroup, Arrivals]]:
    """Records by the epoch that they belong to, as it knows them, with the group as it is then."""
    if not program.epochs:
        yield group, arrivals
        return
    stages = program.stages
    number = np.searchsorted(_ends(stages), arrivals.system("arrival"), side="left")
    for place in np.unique(number).tolist():
        stage, own = stages[place], stages[place].groups[group.number]
        early = _chosen(arrivals, number == place)
        yield own, Arrivals(as_known(early.table, own.plan.events, stage.known))


def _ends(stages: Sequence[Stage]) -> Sequence[int]:
    """The last arrivals of the stages, ascending."""
    return [*(NEVER if stage.begins is None else stage.begins for stage in stages[1:]), NEVER]


def without_silent(results: Results, plan: Plan, silent: Collection[str]) -> Results:
    """What is given out of results: all but what queries of these titles give; the ledger stays."""
    names = [(query.name, query.instance) for query in plan.queries if query.title in silent]
    if not names:
        return results
    outputs, discarded = results.outputs, results.discarded
    is_own = [(row["query"], row["instance"]) in names for row in outputs.select(["query", "instance"]).to_pylist()]
    if any(is_own):
        outputs = outputs.filter(pc.invert(pa.array(is_own, pa.bool_())))
    if discarded is not None and len(discarded):
        titles = pa.array([query.public_title for query in plan.queries if query.title in silent])
        discarded = discarded.filter(pc.invert(pc.is_in(discarded.column("query"), titles)))
    matches = {title: table for title, table in results.matches.items() if title not in silent}
    return replace(results, matches=matches, outputs=outputs, discarded=discarded)


def new_notices(
    program: Program, reported: int, epoch: int, *, has_ended: bool, begin: int | None
) -> tuple[int, list[Results]]:
    """The notices that were not reported, as outputs, and the number of the last one.

    epoch: the least number of an epoch that an engine is in
    has_ended: time advances without records until no timer is left
    begin: the first arrival of the step, for changes before all records, which wait for it or for
        the end; None = nothing was read
    """

    def is_due(notice: Notice) -> bool:
        if notice.place == EARLIEST and begin is None and not has_ended:
            return False
        return notice.epoch <= epoch

    left = (notice for notice in program.notices if notice.number > reported)
    new = list(takewhile(is_due, left))
    places = [notice.place if begin is None or notice.place != EARLIEST else begin for notice in new]
    rows = [Results(outputs=change_rows(notice.outcomes, place)) for notice, place in zip(new, places, strict=True)]
    return max([reported, *(notice.number for notice in new)]), rows


@dataclass(frozen=True, slots=True)
class QueriesAt:
    """The titles of the queries of each group, by the arrival of records.

    ends: last arrivals of the epochs, ascending
    titles: by epoch and group
    """

    ends: Sequence[int]
    titles: Sequence[Sequence[Sequence[str]]]

    @staticmethod
    def of(program: Program, groups: Sequence[PartitionGroup], but: Collection[str] = ()) -> QueriesAt:
        """Those of a program; `but`: titles that are left out."""
        if not program.epochs:
            return QueriesAt((NEVER,), (_titles(groups, but),))
        stages = program.stages
        return QueriesAt(_ends(stages), tuple(_titles(stage.groups, but) for stage in stages))

    def counted(self, held: Sequence[GroupRecords]) -> tuple[GroupRecords, ...]:
        """Records that are counted as held now."""
        if len(self.ends) == 1:
            return tuple(replace(item, counted=None) for item in held)
        return tuple(replace(item, counted=self._titles(item.group)) for item in held)

    def _titles(self, group: int) -> tuple[tuple[int, tuple[str, ...]], ...]:
        return tuple((end, tuple(titles[group])) for end, titles in zip(self.ends, self.titles, strict=True))

    def by_arrival(self, records: GroupRecords) -> Iterator[tuple[Arrivals, Sequence[str]]]:
        """Records with the titles of the queries that run when they arrive."""
        return self.of_counted(self.counted([records])[0])

    def of_counted(self, records: GroupRecords) -> Iterator[tuple[Arrivals, Sequence[str]]]:
        """Records that were counted, with the titles of the queries that they were counted for.

        What was counted does not follow from the epochs that are known now: control events wait for
        their time, and changes that came meanwhile may concern them.
        """
        if records.counted is None:
            yield records.arrivals, self.titles[0][records.group]
        elif records.counted:
            ends = [end for end, _ in records.counted]
            epoch = np.searchsorted(ends, records.arrivals.system("arrival"), side="left")
            for number in np.unique(epoch).tolist():
                yield _chosen(records.arrivals, epoch == number), records.counted[number][1]


def _titles(groups: Sequence[PartitionGroup], but: Collection[str]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(query.title for query in group.plan.queries if query.title not in but) for group in groups)
