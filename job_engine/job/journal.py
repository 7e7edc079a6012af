"""What runs on a checkpoint since its queries were changed.

A journal is plain data. It says which epochs there are, and what became of each change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import dropwhile
from typing import Annotated, Any

from job_engine.job.checkpoint.progress import JobProgress
from job_engine.job.plan_rules import Finish, would_chain
from job_engine.place import Place
from job_engine.wire.clock_sources import ClockSource
from job_engine.wire.gathering import Gathered, across_keys, gathered_behind, gathered_together, group_names
from job_engine.wire.plan_text import plan_text
from job_engine.wire.program import Epoch, History, Notice, Program
from querylang.changes import Applied, Moment, apply, refusal, with_instances_of, with_plan
from querylang.dataclass import dataclass, replace
from querylang.errors import InputError, listed
from querylang.merging import FileChange, merge
from querylang.parameters import bind
from querylang.plan.model import Plan, QueryPlan
from querylang.plan.routing import (
    Change,
    DeployQuery,
    Outcome,
    feeders,
    has_chains,
    routes_between,
    taken_types,
    with_routes,
)
from querylang.running import ChangeError, Running, RunningQuery, Version, known_value, with_events
from runtime.instants import EARLIEST
from runtime.timestamps import format_time

HistoryName = Annotated[str, re.compile(r"\d{20}(-joined)?")]
"""The name of a folder with what a history has left."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A command that asks for no change, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class HistoryCommand:
    """Queries that have run over the history, and are to be deployed.

    text: of the queries
    folder: where the states are that they have, in the checkpoint
    since: records that arrived before, µs, are left out; None = none are
    accepts_gap: whether records may be missing
    """

    text: str
    folder: HistoryName
    since: int | None = None
    accepts_gap: bool = False


@dataclass(frozen=True, slots=True)
class InstancesCommand:
    """The names of a query and of its shadow, which was deployed before."""

    query: str
    shadow: str


Asked = FileChange | InstancesCommand | HistoryCommand | Change | Mistake
"""What a command asks for."""


def _all_fit(before: Sequence[Plan], plan: Plan) -> None:
    """Matches of all plans have their place, as in files."""


@dataclass(frozen=True, slots=True)
class Taking:
    """How a change is taken.

    command: the number of the command that asks for it
    moment: where it takes place, unless that is before the change before it
    batch: the last micro-batch before it
    finish: gives plans the settings of the job
    sources: of the job
    crosses: as of `Program`
    epoch: the least number of an epoch that a bucket is in
    refuse_mixtures: raises InputError if matches have no place beside those of earlier plans
    """

    command: int
    moment: Moment
    batch: int
    finish: Finish
    sources: tuple[ClockSource, ...] = ()
    crosses: bool = False
    epoch: int = 0
    refuse_mixtures: Callable[[Sequence[Plan], Plan], None] = _all_fit


@dataclass(frozen=True, slots=True)
class HiddenPlan:
    """An instance in a plan that has values which may be secret.

    place: its number among the queries of the plan
    template: the plan of its text, whose parameters have no values
    values, hidden: as of `RunningQuery`
    """

    place: int
    template: QueryPlan
    instance: str
    values: Mapping[str, Any]
    hidden: Mapping[str, str]

    @property
    def plan(self) -> QueryPlan:
        """The instance with its values."""
        values = {name: known_value(value) for name, value in self.values.items()}
        return bind(self.template, values, self.instance, self.hidden)


@dataclass(frozen=True, slots=True)
class JournalEpoch:
    """An epoch, with its plan.

    plan: with the settings of the job, without annotations of event types
    hidden: instances of the plan with values that are not written down
    number, begins, heirs, history, behind: as of `Epoch`
    """

    number: int
    plan: Plan
    hidden: tuple[HiddenPlan, ...] = ()
    begins: int | None = None
    heirs: tuple[tuple[str, str], ...] = ()
    history: History | None = None
    behind: tuple[int, int, int] | None = None

    @staticmethod
    def of(
        number: int,
        plan: Plan,
        running: Running,
        begins: int | None = None,
        heirs: tuple[tuple[str, str], ...] = (),
    ) -> JournalEpoch:
        """An epoch in which these queries run; `plan`: theirs, with the settings of the job."""
        return JournalEpoch(number, plan.without_annotations(), (), begins, heirs).hiding(running)

    def hiding(self, running: Running) -> JournalEpoch:
        """The same without values that may be secret, as these queries know them."""
        return replace(self, hidden=hidden_plans(running, self.plan))

    @property
    def names(self) -> set[str]:
        """Of its queries."""
        return {query.name for query in self.plan.queries}

    def with_queries(self, queries: tuple[QueryPlan, ...], plan: Plan) -> JournalEpoch:
        """The same in which more queries run, and what feeds them does.

        plan: that of all queries, which knows their event types
        """
        events = with_events(self.plan.events, plan.events)
        feeding = feeders(plan.queries, {query.name for query in queries})
        routing = {query.title: query for query in plan.queries if query.name in feeding}
        own = (routing.get(query.title, query) for query in self.plan.queries)
        return replace(self, plan=replace(self.plan, events=events, queries=(*own, *queries)))

    def sent(self, histories: Place) -> Epoch:
        """As buckets get it; `histories`: where the folder of a history is."""
        history = self.history
        if history is not None:
            history = replace(history, folder=str((histories / history.folder).resolve()))
        return Epoch(self.number, plan_text(self.plan), self.begins, self.heirs, history, self.behind)


@dataclass(frozen=True, slots=True)
class Taken:
    """A change that was done or refused.

    command: number of the command that asked for it; 0 = time alone has brought it
    place: in the order of arrival, µs
    batch: the last micro-batch before it
    """

    command: int
    place: int
    batch: int
    notice: Notice

    @property
    def errors(self) -> list[str]:
        """What was wrong."""
        return [item.text for item in self.notice.outcomes if item.kind == "error"]


@dataclass(frozen=True, slots=True)
class EndedRoute:
    """Event types that a query routed until its text ended, or one came that does not.

    query: its name
    events: the names of the types
    place: arrival, µs, up to which it routed
    """

    query: str
    events: tuple[str, ...]
    place: int


@dataclass(frozen=True, slots=True)
class Journal:
    """The queries of a checkpoint, and what became of changes.

    running: what runs after the last change
    since: by query, the place of its last change, µs; others run since the beginning
    epochs: oldest first; at least one
    taken: changes that may not be reported yet, oldest first
    gathered: as of `Program`, of the queries of all epochs; None = there never were any
    ended: what was routed by texts that are not kept, the last of each name and types
    """

    running: Running
    since: Mapping[str, int]
    epochs: tuple[JournalEpoch, ...]
    taken: tuple[Taken, ...]
    gathered: Gathered | None = None
    ended: tuple[EndedRoute, ...] = ()

    @staticmethod
    def begin(running: Running, plan: Plan, gathered: Gathered | None = None) -> Journal:
        """The journal of a job whose queries never changed.

        plan: as of `JournalEpoch.of`
        gathered: as of `Program`
        """
        return Journal(running, {}, (JournalEpoch.of(0, plan, running),), (), gathered or None)

    def gathered_in(self, program: Program) -> Journal:
        """The same with the groups that queries have which have fed each other in version 6 of the
        record, or have crossed before the checkpoint was moved.

        program: what the files say, with the groups that the record has: of those that were brought
            together by a move, also once the queries that they crossed with have ended
        """
        if self.gathered is not None and not program.crosses:
            together = across_keys(program.sources)
            known = dict(self.gathered) | {title: name for title, name in program.gathered or () if name == together}
            return replace(
                self, gathered=gathered_together(tuple(known.items()), self.plans_and_heirs(), program.sources)
            )
        if self.gathered is not None or not program.gathered:
            return self
        titles = {query.title for epoch in self.epochs for query in epoch.plan.queries}
        return replace(self, gathered=tuple((title, across_keys(program.sources)) for title in sorted(titles)))

    def plans_and_heirs(self) -> list[tuple[Plan, Mapping[str, str]]]:
        """Of each epoch."""
        return [(epoch.plan, dict(epoch.heirs)) for epoch in self.epochs]

    @property
    def is_fed(self) -> bool:
        """Whether what is routed reaches other queries, and not only in their texts."""
        return has_chains(self.plan.queries) or not would_chain(self.running.plan())

    @property
    def plan(self) -> Plan:
        """What runs after the last change, with the settings of the job."""
        return self.epochs[-1].plan

    @property
    def histories(self) -> set[str]:
        """The folders of histories that some bucket may not have taken over yet."""
        return {epoch.history.folder for epoch in self.epochs if epoch.history is not None}

    def annotated_by(self, files: Running) -> Journal:
        """The journal with annotations of event types; where none were kept, those of the files."""
        return replace(self, running=self.running.annotated_by(files))

    def changed(self, asked: Asked, taking: Taking) -> Journal:
        """The journal after one more change, which may be refused."""
        before, taking = self._before(taking)
        return _changed(before, asked, taking)

    def joined(self, asked: HistoryCommand, taking: Taking, folder: str) -> Journal:
        """The journal after queries were deployed that have run over the history.

        folder: the name of the folder with the states that buckets take over
        """
        before, taking = self._before(taking)
        running = before.running.plan().queries
        titles, names = {query.title for query in running}, {query.name for query in running}
        left = {name for epoch in before.epochs for name in epoch.names} - names
        after = _changed(before, asked, taking)
        if after.taken[-1].errors:
            return after
        new = tuple(query for query in after.plan.queries if query.title not in titles)
        if not new:
            return before.refused("DeployQuery: a history needs values for all parameters", taking)
        problem = _unfit_for_history(after.plan.queries, {query.name for query in new}, before.since)
        problem = problem or _lacking_history(
            after.plan.queries, {query.name for query in new}, before.ended, asked.since
        )
        if problem is not None:
            return before.refused(f"DeployQuery: {problem}", taking)
        ended = [query.name for query in new if query.name in left]
        if ended:
            reason = f"DeployQuery: records of the '{ended[0]}' that has ended are still to be processed; try later"
            return before.refused(reason, taking)
        earlier = tuple(epoch.with_queries(new, after.plan) for epoch in before.epochs)
        last = replace(after.epochs[-1], history=History(folder, tuple(query.title for query in new)))
        return replace(after, epochs=(*earlier, last))

    def refused(self, reason: str, taking: Taking) -> Journal:
        """The journal after a change that cannot be done."""
        before, taking = self._before(taking)
        place = taking.moment.place
        notice = Notice(before.next_notice, place, (Outcome("error", "", "", reason),))
        return replace(before, taken=(*before.taken, Taken(taking.command, place, taking.batch, notice)))

    def _before(self, taking: Taking) -> tuple[Journal, Taking]:
        """The journal at the moment of a change, before it, and the change at this moment.

        It follows the last one, which may wait for its time, and what a flush has ended before its
        time.
        """
        journal, moment = self, taking.moment
        while journal.epochs[-1].number < taking.epoch and (done := journal.running.next_done()) is not None:
            journal = journal.handed_over(done, taking.batch, taking.finish)
        last = journal.epochs[-1].begins
        place = moment.place if last is None else max(moment.place, last)
        taking = replace(taking, moment=replace(moment, place=place))
        return journal.handed_over(place, taking.batch, taking.finish), taking

    @property
    def next_notice(self) -> int:
        """The number of the next notice."""
        return self.taken[-1].notice.number + 1 if self.taken else 1

    def handed_over(self, place: int | None, batch: int, finish: Finish) -> Journal:
        """The journal with the ends of texts that have handed over at a place; None = ever."""
        journal = self
        while (done := journal.running.next_done()) is not None and (place is None or done <= place):
            running, names = journal.running.without_done(done)
            outcomes = tuple(Outcome("handed_over", name, "", f"the old text of '{name}' has ended") for name in names)
            epoch = _next_epoch(journal, running, finish(running.plan()), done)
            taken = Taken(0, done, batch, Notice(journal.next_notice, done, outcomes, epoch.number))
            ended = _ended_routes(journal, running, done)
            epochs, all_taken = (*journal.epochs, epoch), (*journal.taken, taken)
            journal = replace(journal, running=running, epochs=epochs, taken=all_taken, ended=ended)
        return journal

    def settled(self, progress: JobProgress, batch: int) -> Journal:
        """The same without epochs that have ended in all buckets, and changes that were reported.

        progress: behind `batch`, the last micro-batch
        """
        earliest = progress.epoch
        least = _kept_from(self.epochs, min(earliest, self.epochs[-1].number))

        def is_reported(item: Taken) -> bool:
            if item.place == EARLIEST and progress.furthest is None:  # it waits for the time of the first record
                return False
            return item.batch < batch and item.notice.epoch <= earliest

        # they are reported in order; the last one stays, because numbers of later ones follow it
        taken = tuple(dropwhile(is_reported, self.taken[:-1]))
        taken += self.taken[-1:]
        left = (epoch for epoch in self.epochs if epoch.number >= least)
        # no bucket asks for a history any more that all have got
        epochs = tuple(replace(epoch, history=None) if epoch.number <= earliest else epoch for epoch in left)
        return replace(self, epochs=epochs, taken=taken)

    def program(self, program: Program, histories: Place) -> Program:
        """What the buckets run.

        program: what the files say
        histories: where folders of histories are
        """
        gathered = self.gathered_in(program).gathered or ()
        epochs = tuple(epoch.sent(histories) for epoch in self.epochs)
        whole = plan_text(_all_queries([epoch.plan for epoch in self.epochs]))
        notices = tuple(item.notice for item in self.taken)
        return replace(program, plans=(whole,), epochs=epochs, notices=notices, gathered=gathered)


def _unfit_for_history(queries: Sequence[QueryPlan], new: Collection[str], changed: Collection[str]) -> str | None:
    """Why queries cannot run over the history; None = they can.

    What feeds them runs over it, too: it has to be what ran then. What they would feed has
    given its matches already.

    queries: of the job, with them
    new: their names
    changed: the names of queries that have changed while the job ran
    """
    for feeding, fed, _ in routes_between(queries):
        if feeding in new and fed not in new:
            return f"'{feeding}' feeds '{fed}', which has run without it; deploy it without a history"
    for name in sorted(feeders(queries, new)):
        if name in changed:
            return f"'{name}', which feeds it, has changed while the job ran; deploy it without a history"
    return None


def _lacking_history(
    queries: Sequence[QueryPlan], new: Collection[str], ended: Sequence[EndedRoute], since: int | None
) -> str | None:
    """Why a history would lack what queries took in the job; None = it has all.

    queries, new: as of `_unfit_for_history`
    since: as of `HistoryCommand`
    """
    running = {*new, *feeders(queries, new)}
    taken = frozenset[str]().union(*(taken_types(query) for query in queries if query.name in running))
    lacking = [route for route in ended if taken.intersection(route.events) and (since is None or since <= route.place)]
    if not lacking:
        return None
    last = max(lacking, key=lambda route: route.place)
    events = listed([f"'{event}'" for event in last.events if event in taken])
    return (
        f"'{last.query}' routed {events} until {format_time(last.place)}, and that text is not kept: begin behind it,"
        " with a later --from, or deploy it without a history"
    )


def _ended_routes(journal: Journal, running: Running, place: int) -> tuple[EndedRoute, ...]:
    """What texts that are not kept routed, once others run from a place on.

    The plans of a job say what is routed only where a query takes it: one may that comes later.
    """
    if place == EARLIEST or not journal.is_fed:  # nothing has been routed
        return journal.ended
    left = {query.title: query for query in running.plan().queries}
    changed = [query for query in journal.running.plan().queries if left.get(query.title) is not query]
    kept = [left[query.title] for query in changed if query.title in left]
    routes = {query.title: query.routes for query in with_routes(kept, running.events)}
    found = {(item.query, item.events): item for item in journal.ended}
    for query in with_routes(changed, journal.running.events):
        events = tuple(event for event in query.routes if event not in routes.get(query.title, ()))
        if events:
            found[query.name, events] = EndedRoute(query.name, events, place)
    return tuple(found.values())


def _changed(journal: Journal, asked: Asked, taking: Taking) -> Journal:
    applied = _applied(asked, taking, journal.running)
    gathered = journal.gathered
    if applied.plan is not None:
        try:
            gathered = _gathered(journal, applied.plan, applied.heirs, taking)
            taking.refuse_mixtures([epoch.plan for epoch in journal.epochs], applied.plan)
        except InputError as error:
            applied = Applied(journal.running, (_refusal(asked, error),))
    place, number = taking.moment.place, journal.next_notice
    notice = Notice(number, place, applied.outcomes)
    taken = (*journal.taken, Taken(taking.command, place, taking.batch, notice))
    if applied.plan is None or not applied.outcomes:
        epochs = (*journal.epochs[:-1], journal.epochs[-1].hiding(applied.running))
        return replace(journal, running=applied.running, epochs=epochs, taken=taken)
    epoch = _next_epoch(journal, applied.running, applied.plan, place, tuple(sorted(applied.heirs.items())))
    since = {**journal.since, **{item.query: place for item in applied.outcomes}}
    epochs, ended = (*journal.epochs, epoch), _ended_routes(journal, applied.running, place)
    return Journal(applied.running, since, epochs, taken, gathered, ended)


def _gathered(journal: Journal, plan: Plan, heirs: Mapping[str, str], taking: Taking) -> Gathered | None:
    """The gathered queries behind a change; raises InputError if it cannot be.

    plan, heirs: behind it
    """
    if journal.gathered is None and not has_chains(plan.queries):
        return None
    others = _all_queries([epoch.plan for epoch in journal.epochs]).queries
    known = group_names(others, taking.sources, journal.gathered or ())
    known |= {title: known[heir] for title, heir in heirs.items()}
    return gathered_behind(plan, taking.sources, known, others, crosses=taking.crosses)


def _refusal(asked: Asked, error: InputError) -> Outcome:
    if isinstance(asked, Change):
        return refusal(asked, str(error))
    word = "DeployQuery" if isinstance(asked, HistoryCommand) else "the files"
    return Outcome("error", "", "", f"{word}: {error}")


def _all_queries(plans: Sequence[Plan]) -> Plan:
    """The queries of all plans, those of earlier plans first, as the last plan has each."""
    queries: dict[str, QueryPlan] = {}
    for plan in plans:
        queries.update({query.title: query for query in plan.queries})
    return Plan(plans[-1].events, tuple(queries.values()), plans[0].stopped)


def _kept_from(epochs: Sequence[JournalEpoch], earliest: int) -> int:
    """The number of the first epoch that is kept: buckets need one with queries, whose engines they
    have while no query runs. They have none yet of queries whose history they have not got."""
    histories = [epoch.history for epoch in epochs if epoch.history is not None and epoch.number > earliest]
    coming = {title for history in histories for title in history.titles}
    own = {epoch.number: any(query.title not in coming for query in epoch.plan.queries) for epoch in epochs}
    numbers = [number for number, has_queries in own.items() if number <= earliest and has_queries]
    has_queries = next((has_some for number, has_some in own.items() if number >= earliest), True)
    return earliest if has_queries or not numbers else numbers[-1]


def _next_epoch(
    journal: Journal, running: Running, plan: Plan, begins: int, heirs: tuple[tuple[str, str], ...] = ()
) -> JournalEpoch:
    """The one behind the last; `plan`: of what runs, with the settings of the job."""
    return JournalEpoch.of(journal.epochs[-1].number + 1, replace(plan, stopped=()), running, begins, heirs)


def _applied(asked: Asked, taking: Taking, running: Running) -> Applied:
    moment, finish = taking.moment, taking.finish
    match asked:
        case FileChange():
            return _with_files(asked, running, moment, finish)
        case InstancesCommand():
            applied = with_instances_of(running, asked.query, asked.shadow)
            return applied if applied.is_refused else with_plan(applied, finish)
        case HistoryCommand():
            return apply(DeployQuery(asked.text), running, moment, check=finish)
        case Mistake():
            return Applied(running, (Outcome("error", "", "", asked.reason),))
        case _:
            return apply(asked, running, moment, check=finish)


def _with_files(files: FileChange, running: Running, moment: Moment, finish: Finish) -> Applied:
    try:
        return with_plan(merge(files, running, moment), finish)
    except (ChangeError, InputError) as error:
        return Applied(running, (Outcome("error", "", "", f"the files: {' '.join(str(error).split())}"),))


def moment_of_change(progress: JobProgress, at: int | None) -> Moment:
    """Where a change takes place that is done now; `at`: as it was asked for."""
    place = place_of_change(progress.furthest, at)
    newest = place if progress.newest is None else progress.newest
    return Moment(place, max(place, newest), is_before_all=place == EARLIEST)


def place_of_change(furthest: int | None, at: int | None) -> int:
    """Where a change takes place that is done now."""
    return max(EARLIEST if furthest is None else furthest, EARLIEST if at is None else at)


def hidden_plans(running: Running, plan: Plan) -> tuple[HiddenPlan, ...]:
    """Those of a plan; `running`: what it was made of, before it got the settings of the job."""
    found = []
    numbers = {query.title: (place, query) for place, query in enumerate(plan.queries)}
    for query in running.queries.values():
        for name, shown in query.hidden.items():
            for version in query.versions if shown and name in query.instances else ():
                title = version.instance(name, query.instances[name], shown).title
                if title in numbers:
                    found.append(_hidden_plan(query, version, name, *numbers[title]))
    return tuple(found)


def _hidden_plan(query: RunningQuery, version: Version, name: str, place: int, plan: QueryPlan) -> HiddenPlan:
    own = {item.name for item in version.template.parameters}
    template = replace(
        version.template,
        starts=plan.starts,
        ends=plan.ends,
        edition=plan.edition,
        forget_keys=plan.forget_keys,
        inputs=tuple(
            replace(item, policy=finished.policy, sources=finished.sources)
            for item, finished in zip(version.template.inputs, plan.inputs, strict=True)
        ),
    )
    values = {key: value for key, value in query.instances[name].items() if key in own}
    found = HiddenPlan(place, template, name, values, query.hidden[name])
    assert found.plan == plan, "a plan that is written without its values can be made again"
    return found


def instance_words(query: str, instance: str) -> str:
    """An instance, as messages call it."""
    return f"instance '{instance}' of '{query}'" if instance else f"'{query}'"
