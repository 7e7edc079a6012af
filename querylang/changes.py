"""Do a change: from the queries that run before it to those that run after it.

A wrong change changes nothing, and its outcome says all that is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from querylang.dataclass import dataclass, field, replace
from querylang.errors import InputError, QueryErrors, did_you_mean, listed
from querylang.load import compile_for_known
from querylang.parameters import INSTANCE_NAME, InstanceError, needed
from querylang.plan.expression import Type
from querylang.plan.lookups import stored_lookups
from querylang.plan.model import EventType, Input, Plan, QueryPlan, Table, known
from querylang.plan.routing import (
    UNCHANGED,
    Change,
    DeployQuery,
    Outcome,
    RemoveInstance,
    ReplaceQuery,
    SetParameters,
    UndeployQuery,
    cycle_of,
    receivers,
)
from querylang.running import LIVE, ChangeError, Running, RunningQuery, Version, with_events
from querylang.source import Source
from querylang.syntax.parser import parse

Schemas = Mapping[str, Mapping[str, Type]]

Infer = Callable[[str], Schemas]
"""Gives the fields of event types that neither the text nor the known types define, from data."""


def nothing_inferred(_text: str) -> Schemas:
    """There is no data to see fields in."""
    return {}


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a change takes place.

    place: arrival, µs
    furthest: the furthest source time that has been seen there, µs
    is_before_all: whether no record arrived before, so that no text has anything to hand over
    """

    place: int
    furthest: int
    is_before_all: bool = False

    @property
    def reached(self) -> int:
        """The later of both."""
        return max(self.place, self.furthest)


@dataclass(frozen=True, slots=True)
class Applied:
    """A change that is done, or refused.

    heirs: by title of an instance, the title of the one whose state it takes over; those with the
        same title take it over anyway
    outcomes: one per query instance that is concerned; a refused change has one `error`
    plan: of what runs then, with the settings of the run; None = it was not asked for, or refused
    """

    running: Running
    outcomes: tuple[Outcome, ...]
    heirs: Mapping[str, str] = field(default_factory=dict)
    plan: Plan | None = None

    @property
    def is_refused(self) -> bool:
        """Whether nothing has changed."""
        return any(item.kind == "error" for item in self.outcomes)


Check = Callable[[Plan], Plan]
"""Gives a plan the settings of the run, among them ordering policies.

Raises InputError if it cannot run here: for want of a source, or because of its ordering.
"""

_LASTING = (
    "with the `ordering` of its source nobody knows when the old text has given its last match, so it runs on"
    " beside the new one; a replacement with `--now` ends it"
)


_HANDING_OVER = (
    "; a text that is replaced runs on until it has given its last match. A replacement with `--now` ends it at once"
)


def _without_replaced(running: Running) -> Running:
    """The same without texts that others have replaced."""
    queries = {name: replace(query, versions=query.versions[-1:]) for name, query in running.queries.items()}
    return replace(running, queries=queries)


def _anything(plan: Plan) -> Plan:
    return plan


def apply(
    change: Change, running: Running, moment: Moment, *, infer: Infer = nothing_inferred, check: Check = _anything
) -> Applied:
    """What runs after a change, and what became of it."""
    try:
        return with_plan(_applied(change, running, moment, infer), check)
    except (ChangeError, InputError) as error:
        return Applied(running, (refusal(change, str(error)),))


def with_plan(applied: Applied, check: Check) -> Applied:
    """The same with its plan; old texts continue whose events an ordering policy may bring late.

    Raises InputError if it cannot run here.
    """
    plan = check(applied.running.plan())
    circle = cycle_of(receivers(plan.queries))
    if circle:
        path = ", which feeds ".join(repr(name) for name in circle)
        way_out = "" if cycle_of(receivers(_without_replaced(applied.running).plan().queries)) else _HANDING_OVER
        raise InputError(f"{path}: queries must not feed each other{way_out}")
    ordered = {query.name for query in plan.queries if any(item.policy is not None for item in query.inputs)}
    queries = dict(applied.running.queries)
    for name in ordered & queries.keys():
        *old, current = queries[name].versions
        queries[name] = replace(queries[name], versions=(*(replace(version, done=None) for version in old), current))
    outcomes = tuple(
        replace(item, text=f"{item.text}; {_LASTING}")
        if item.kind == "replaced" and item.query in ordered and len(queries[item.query].versions) > 1
        else item
        for item in applied.outcomes
    )
    return replace(applied, running=replace(applied.running, queries=queries), outcomes=outcomes, plan=plan)


def refusal(change: Change, reason: str) -> Outcome:
    """The outcome of a change that is not done."""
    query = change.query if isinstance(change, SetParameters | RemoveInstance) else ""
    query = change.name if isinstance(change, UndeployQuery) else query
    instance = change.instance if isinstance(change, SetParameters | RemoveInstance) else ""
    return Outcome("error", query, instance, f"{type(change).__name__}: {' '.join(reason.split())}")


def _applied(change: Change, running: Running, moment: Moment, infer: Infer) -> Applied:
    match change:
        case DeployQuery():
            return _deployed(change, running, infer)
        case ReplaceQuery():
            return _replaced(change, running, moment, infer)
        case UndeployQuery():
            return undeployed(Applied(running, ()), _known(change.name, running))
        case SetParameters():
            return _set(change, running)
        case RemoveInstance():
            return _removed(change, running)


def undeployed(before: Applied, query: RunningQuery) -> Applied:
    """What runs without a query."""
    outcomes = [Outcome("undeployed", query.name, name, f"'{query.name}' is undeployed") for name in _own(query)]
    return Applied(before.running.without(query.name), (*before.outcomes, *outcomes), before.heirs)


def _own(query: RunningQuery) -> list[str]:
    """The names of its instances; an idle query has one outcome, too."""
    return list(query.instances) or [""]


def _deployed(change: DeployQuery, running: Running, infer: Infer) -> Applied:
    plan, events = compiled(change.text, running.events, infer, running.tables)
    runs = [query for query in plan.queries if query.name in running.queries]
    taken = [query.name for query in runs if len(runs) == len(plan.queries) or _is_other_text(query, running)]
    if taken:
        names = listed(f"'{name}'" for name in taken)
        raise ChangeError(f"{names} {'runs' if len(taken) == 1 else 'run'} already; replace or undeploy first")
    applied = Applied(replace(running, events=events), ())
    for query in plan.queries:
        if query.name in running.queries:
            applied = _unchanged(applied, query.name)
            continue
        instances: dict[str, Mapping[str, Any]] = {} if needed(query) else {"": {}}
        applied = deployed(applied, RunningQuery((Version(query),), instances, LIVE, dict.fromkeys(instances, LIVE)))
    return applied


def _is_other_text(query: QueryPlan, running: Running) -> bool:
    """Whether the query of this name has another text."""
    return not is_same_text(query, running.queries[query.name].current.template)


def deployed(before: Applied, query: RunningQuery) -> Applied:
    """What runs with a query more; raises ChangeError if its values are wrong."""
    running, name = before.running, query.name
    edition = running.editions.get(name, 0)
    new = replace(query, versions=(Version(replace(query.current.template, edition=edition)),))
    bound(new)
    running = replace(running.with_query(new), editions={**running.editions, name: edition + 1})
    waits = "" if query.instances else "; it runs once an instance has values for its parameters"
    outcome = Outcome("deployed", name, "", f"'{name}' is deployed{waits}")
    return Applied(running, (*before.outcomes, outcome), before.heirs)


def _replaced(change: ReplaceQuery, running: Running, moment: Moment, infer: Infer) -> Applied:
    plan, events = compiled(change.text, running.events, infer, running.tables)
    applied = Applied(replace(running, events=events), ())
    for template in plan.queries:
        old = _known(template.name, running)
        if is_same_text(template, old.current.template):
            applied = _unchanged(applied, template.name)
            continue
        applied = replaced(applied, replace(old, origin=LIVE), template, moment, now=change.now)
    return applied


def _unchanged(before: Applied, name: str) -> Applied:
    """A query that has the text already: a file is sent whole, whatever of it has changed."""
    outcome = Outcome(UNCHANGED, name, "", f"'{name}' has this text already")
    return replace(before, outcomes=(*before.outcomes, outcome))


def is_same_text(one: QueryPlan, other: QueryPlan) -> bool:
    """Whether two texts of a query mean the same; what they route depends on the text alone."""
    return replace(one, edition=other.edition, routes=other.routes) == other


def replaced(
    before: Applied, query: RunningQuery, template: QueryPlan, moment: Moment, *, now: bool = False
) -> Applied:
    """What runs with another text of a query that runs; raises ChangeError if its values are wrong.

    query: as it is to run, but with its old text
    now: the new text begins at once, with empty windows
    """
    running, old = before.running, query.current
    edition = running.editions[template.name]
    new = Version(replace(template, edition=edition))
    heirs = dict(before.heirs)
    details: dict[str, str | int]
    if keeps_state(old.template, template, running.events):
        after = replace(query, versions=(*query.versions[:-1], replace(new, starts=old.starts)))
        pairs = zip(bound(after), bound(query), strict=True)
        heirs |= {own.title: was.title for own, was in pairs}
        details = {"state": "kept"}
    else:
        bound(replace(query, versions=(new,)))
        after, details = _handed_over(query, new, moment, now=now)
        bound(after)
    running = replace(running.with_query(after), editions={**running.editions, template.name: edition + 1})
    if old.template.nulls_fail and not template.nulls_fail:
        details = {**details, "nulls": "as in SQL"}
    if template.told and not old.template.shows_metadata:
        details = {**details, "metadata": "in results"}
    text = f"'{template.name}' is replaced"
    outcomes = [Outcome("replaced", template.name, name, text, details) for name in _own(after)]
    return Applied(running, (*before.outcomes, *outcomes), heirs)


def _handed_over(
    old: RunningQuery, new: Version, moment: Moment, *, now: bool
) -> tuple[RunningQuery, dict[str, str | int]]:
    """The query while its old text hands over to a new one.

    Where the new one begins at once, the old one has ended.
    """
    alone = replace(old, versions=(new,))
    plans = list(alone.plans())
    if moment.is_before_all:
        return alone, {"state": "new"}
    reaches = [reach_of(plan) for plan in plans]
    if now or None in reaches or not plans:
        return alone, {"handover": moment.reached, "state": "new"}
    handover = moment.reached + max(reach for reach in reaches if reach is not None)
    versions = []
    for version in old.versions:
        ends = handover if version.ends is None else min(version.ends, handover)
        if version.starts is not None and version.starts >= ends:
            continue
        versions.append(replace(version, ends=ends, done=_done(version, old, ends)))
    return replace(alone, versions=(*versions, replace(new, starts=handover))), {"handover": handover, "state": "new"}


def _done(version: Version, query: RunningQuery, ends: int) -> int | None:
    """The last arrival at which a version can still find a match before its end."""
    own = [settled_after(version.instance(name, values)) for name, values in query.instances.items()]
    if any(length is None for length in own):
        return None
    return ends - 1 + max((length for length in own if length is not None), default=0)


def _set(change: SetParameters, running: Running) -> Applied:
    query = _known(change.query, running)
    if not query.current.template.parameters:
        raise ChangeError(f"query '{query.name}' has no parameters")
    if change.instance and not INSTANCE_NAME.fullmatch(change.instance):
        raise ChangeError(f"'{change.instance}' is not a name of an instance; use letters, digits, _, - and dots")
    known = [parameter.name for parameter in query.current.template.parameters]
    for name in change.values:
        if name not in known:
            raise ChangeError(f"query '{query.name}': unknown parameter '{name}'{did_you_mean(name, known)}")
    before = query.instances.get(change.instance)
    values = {**(before or {}), **change.values}
    instances = {**query.instances, change.instance: values}
    shown = {name: text for name, text in query.hidden.get(change.instance, {}).items() if name not in change.values}
    changed = replace(
        query,
        instances=instances,
        value_origins={**query.value_origins, change.instance: LIVE},
        hidden={**query.hidden, change.instance: shown},
    )
    bound(changed)
    outcome = set_outcome(query.name, change.instance, change.values, is_new=before is None)
    return Applied(running.with_query(changed), (outcome,))


def with_instances_of(running: Running, query: str, shadow: str) -> Applied:
    """What runs when a shadow has got the instances of a query, with their values."""
    source, target = running.queries.get(query), running.queries.get(shadow)
    if source is None or target is None:
        text = f"there is no query '{query if source is None else shadow}'"
        return Applied(running, (Outcome("error", query, "", f"the shadow of '{query}': {text}"),))
    changed = replace(
        target,
        instances=source.instances,
        hidden=source.hidden,
        value_origins=dict.fromkeys(source.instances, LIVE),
    )
    try:
        bound(changed)
    except ChangeError as error:
        return Applied(running, (Outcome("error", shadow, "", str(error)),))
    outcomes = tuple(
        set_outcome(shadow, name, source.shown(name), is_new=name not in target.instances) for name in source.instances
    )
    return Applied(running.with_query(changed), outcomes)


def set_outcome(query: str, instance: str, values: Mapping[str, Any], *, is_new: bool) -> Outcome:
    """The outcome for an instance that has got values."""
    shown = ", ".join(f"{name}={value}" for name, value in values.items()) or "defaults"
    text = f"instance '{instance}' of '{query}' has {shown}"
    return Outcome("deployed" if is_new else "set", query, instance, text)


def _removed(change: RemoveInstance, running: Running) -> Applied:
    query = _known(change.query, running)
    if change.instance not in query.instances:
        hint = did_you_mean(change.instance, query.instances)
        raise ChangeError(f"query '{query.name}' has no instance '{change.instance}'{hint}")
    left = {name: values for name, values in query.instances.items() if name != change.instance}
    hidden = {name: shown for name, shown in query.hidden.items() if name != change.instance}
    left_query = replace(query, instances=left, hidden=hidden)
    return Applied(running.with_query(left_query), (removed_outcome(query.name, change.instance),))


def removed_outcome(query: str, instance: str) -> Outcome:
    """The outcome for an instance that has ended."""
    return Outcome("removed", query, instance, f"instance '{instance}' of '{query}' is removed")


def _known(name: str, running: Running) -> RunningQuery:
    query = running.queries.get(name)
    if query is None:
        raise ChangeError(f"there is no query '{name}'{did_you_mean(name, running.queries)}")
    return query


def bound(query: RunningQuery) -> list[QueryPlan]:
    """The plans of a query; raises ChangeError if its values are wrong."""
    try:
        return list(query.plans())
    except InstanceError as error:
        raise ChangeError(str(error)) from None


def compiled(
    text: str, known: Sequence[EventType], infer: Infer = nothing_inferred, tables: Sequence[Table] = ()
) -> tuple[Plan, tuple[EventType, ...]]:
    """The templates of a text, and all event types, its own last; raises ChangeError.

    tables: those that texts which run have defined
    """
    file, _ = parse(Source("query", text))
    defined = {item.name.text for item in file.events}
    used = [event for event in known if event.fields and event.name not in defined]
    own_tables = {item.name.text for item in file.tables}
    others = [table for table in tables if table.name not in own_tables]
    try:
        plan = compile_for_known(text, used, infer(text), others).plan
    except QueryErrors as errors:
        found = (f"line {error.span.line}: {error.message}" for error in errors.errors)
        raise ChangeError("; ".join(found)) from None
    if not plan.queries:
        raise ChangeError("the text has no query")
    return plan, with_events(known, plan.events)


# How far back a match can reach, and whether a changed query can keep the state it has.


def reach_of(query: QueryPlan) -> int | None:
    """The longest time, µs, from what a match depends on to its own time; None = it has no limit.

    query: an instance, whose durations are numbers
    """
    windows = [_with_new(_window(query, item), item) for item in query.inputs]
    waits = [known(wait.duration) * wait.most for wait in (query.leading, query.trailing) if wait is not None]
    if any(window is None for window in windows):
        return None
    return max((window for window in windows if window is not None), default=0) + sum(waits)


def _window(query: QueryPlan, item: Input) -> int | None:
    return query.within if item.within is None else known(item.within)


def _with_new(window: int | None, item: Input) -> int | None:
    """The longest time, µs, that decides which events count, and how long they count."""
    return window if window is None or item.new is None else window + known(item.new.within)


def settled_after(query: QueryPlan) -> int | None:
    """How long, µs, after a moment no earlier time can come any more; None = it is not known.

    query: an instance
    """
    if any(item.policy is not None for item in query.inputs):
        return None
    # definitive time is at least the clock less `wait`, whatever records and heartbeats say
    waits = [known(item.wait) for item in query.inputs if item.wait is not None]
    return max(waits) + _REORDER if waits else 0


_REORDER = 20_000_000
"""Leeway and reorder buffer of delayed events, as they are at the start, µs."""


def keeps_state(old: QueryPlan, new: QueryPlan, events: Sequence[EventType]) -> bool:
    """Whether templates differ at most in what is given out: block, selects, `having`, actions.

    events: all types that there are

    What is looked up for that is stored with events, so it has to be the same.
    """
    if (old.every is None) != (new.every is None) or _found(old) != _found(new):
        return False
    return stored_lookups(old, events) == stored_lookups(new, events)


def _found(query: QueryPlan) -> QueryPlan:
    """The query without what is given out."""
    return replace(
        query,
        block=(),
        slots=0,
        actions=(),
        every=None,
        selects=(),
        metadata=(),
        edition=0,
        shows_metadata=False,
        tables=(),
    )
