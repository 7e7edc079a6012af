"""Take changed files over into what runs, three-way: live changes stay where files do not change.

What the files said before, what they say now and what runs are compared, query by query and value
by value. What has changed in the files is done. All else stays as it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from querylang.changes import (
    Applied,
    Moment,
    bound,
    deployed,
    is_same_text,
    removed_outcome,
    replaced,
    set_outcome,
    undeployed,
)
from querylang.dataclass import dataclass, replace
from querylang.plan.model import EventType, QueryPlan
from querylang.plan.routing import Outcome
from querylang.running import FILE, LIVE, Running, RunningQuery, annotated_as, with_events, without_hidden

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FileChange:
    """What files of queries and values said, and what they say now.

    returns: whether what the files have comes back if it was removed live
    """

    before: Running
    files: Running
    returns: bool


def merge(change: FileChange, running: Running, moment: Moment) -> Applied:
    """What runs once the files have been applied; raises ChangeError if they cannot be.

    Without outcomes, nothing that runs has changed.
    """
    applied = Applied(replace(running, events=_events(change, running)), ())
    for query in change.files.queries.values():
        before, running_query = change.before.queries.get(query.name), running.queries.get(query.name)
        if running_query is not None:
            applied = _merged(applied, before, query, running_query, change, moment)
        elif change.returns or before is None or not _is_same(before, query):
            applied = deployed(applied, query)
    for name in change.before.queries:
        if name not in change.files.queries and name in running.queries:
            applied = undeployed(applied, running.queries[name])
    return applied


def _events(change: FileChange, running: Running) -> tuple[EventType, ...]:
    """All event types; live annotations stay where those of the files have not changed."""
    before = {event.name: event.annotations for event in change.before.events}
    same = {event.name for event in change.files.events if before.get(event.name) == event.annotations}
    all_types = with_events(running.events, change.files.events)
    return annotated_as(all_types, (event for event in running.events if event.name in same))


def _is_same(one: RunningQuery, other: RunningQuery) -> bool:
    return is_same_text(one.current.template, other.current.template) and one.instances == other.instances


def _merged(
    applied: Applied,
    before: RunningQuery | None,
    query: RunningQuery,
    live: RunningQuery,
    change: FileChange,
    moment: Moment,
) -> Applied:
    """The merge of one query that runs."""
    template, running = query.current.template, live.current.template
    has_changed = before is None or not is_same_text(before.current.template, template)
    is_new = has_changed and not is_same_text(template, running)
    instances, outcomes = _instances(before, query, live, returns=change.returns)
    last = template if is_new else running
    merged = replace(
        live,
        instances=instances,
        origin=FILE if is_same_text(template, last) else LIVE,
        value_origins={name: _origin(name, values, query, last) for name, values in instances.items()},
        hidden={name: _hidden(name, values, query, live) for name, values in instances.items()},
    )
    if is_new:
        applied = replaced(applied, merged, template, moment)
    else:
        bound(merged)
        applied = replace(applied, running=applied.running.with_query(merged))
    return replace(applied, outcomes=(*applied.outcomes, *outcomes))


def _instances(
    before: RunningQuery | None, query: RunningQuery, own: RunningQuery, *, returns: bool
) -> tuple[dict[str, Values], list[Outcome]]:
    """The instances of one query with their values, and what becomes of them."""
    earlier: Mapping[str, Values] = {} if before is None else before.instances
    result, outcomes = dict(own.instances), []
    for name, wanted in query.instances.items():
        has, was = own.instances.get(name), earlier.get(name)
        if has is None:
            if returns or was != wanted:
                result[name] = wanted
                outcomes.append(set_outcome(query.name, name, query.shown(name), is_new=True))
            continue
        before_all = None if before is None or was is None else _all(before.current.template, was)
        changes = _changes(before_all, _all(query.current.template, wanted))
        left = {key: value for key, value in has.items() if key not in changes or key in wanted}
        result[name] = {**left, **{key: wanted[key] for key in changes if key in wanted}}
        if result[name] != has and _all(query.current.template, result[name]) != _all(own.current.template, has):
            shown = without_hidden(changes, query.hidden.get(name, {}))
            outcomes.append(set_outcome(query.name, name, shown, is_new=False))
    for name in earlier:
        if name not in query.instances and name in own.instances:
            del result[name]
            outcomes.append(removed_outcome(query.name, name))
    return result, outcomes


def _hidden(name: str, values: Values, query: RunningQuery, own: RunningQuery) -> dict[str, str]:
    """What is shown in place of values: as the files say it where the values are theirs."""
    wanted, shown = query.instances.get(name, {}), query.hidden.get(name, {})
    kept = own.hidden.get(name, {})
    sides = {key: shown if key in wanted and wanted[key] == value else kept for key, value in values.items()}
    return {key: side[key] for key, side in sides.items() if key in side}


def _changes(before: Values | None, after: Values) -> dict[str, Any]:
    """The values that have changed in the files; None = there were none."""
    return {key: value for key, value in after.items() if before is None or key not in before or before[key] != value}


def _all(template: QueryPlan, values: Values) -> dict[str, Any]:
    """The values of all parameters of a text; those that it does not know are left out."""
    defaults = {item.name: item.value for item in template.parameters if item.default is not None}
    given = {item.name: values[item.name] for item in template.parameters if item.name in values}
    return {**defaults, **given}


def _origin(name: str, values: Values, query: RunningQuery, last: QueryPlan) -> str:
    wanted = query.instances.get(name)
    return FILE if wanted is not None and _all(last, values) == _all(last, wanted) else LIVE
