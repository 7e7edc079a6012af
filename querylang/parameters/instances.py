"""Make the plan of all query instances from the values of parameters.

Values are given by query and instance,

    {Rising: {eu: {least: 10.0}, us: {least: 20.0}}}

or, for one instance without a name, `{Rising: {least: 10.0}}`; if only one query takes parameters,
`{least: 10.0}`. All mistakes are raised together as `FileErrors`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from querylang.errors import FileErrors, did_you_mean, listed
from querylang.parameters.binding import InstanceError, StoppedError, bind
from querylang.parameters.given_values import NOTHING, Given, Path
from querylang.plan.model import Plan, QueryPlan, Stopped

INSTANCE_NAME = re.compile(r"[\w-][\w.-]*")
"""The name of an instance; it is part of names of folders."""


def with_instances(plan: Plan, given: Given = NOTHING, *, is_check: bool = False) -> Plan:
    """The plan with each query replaced by its instances.

    An instance has no name if no parameter needs a value. A query whose parameters need values and
    get none has no instance and is left out. An instance whose values leave a window or a wait
    without length is stopped (`Plan.stopped`), and the others run. With `is_check` that is a
    mistake like others. Raises FileErrors for values that no query takes, and if no instance is
    left.
    """
    mistakes: Mistakes = []
    wanted = _by_query(plan.queries, given.values, mistakes)
    made: list[QueryPlan] = []
    stopped: list[tuple[Path, Stopped]] = []
    for query in plan.queries:
        for path, name, values in wanted.get(query.name, [] if needed(query) else [DEFAULT]):
            try:
                made.append(bind(query, values, name, given.hidden_in(path)))
            except StoppedError as error:
                stopped.append((path, Stopped(query.name, name, str(error))))
            except InstanceError as error:
                mistakes.append((path, str(error)))
    if mistakes or not made or is_check:
        mistakes += [(path, item.reason) for path, item in stopped]
    if not made and not mistakes:
        mistakes = [((), missing(query)) for query in plan.queries]
    if mistakes:
        found = [(given.line_of(path), message) for path, message in mistakes]
        raise FileErrors(given.origin, sorted(found, key=lambda mistake: mistake[0] or 0))
    return replace(plan, queries=tuple(made), stopped=tuple(item for _, item in stopped))


def hidden_values(plan: Plan, given: Given) -> dict[str, dict[str, dict[str, str]]]:
    """By query, instance and parameter, what is shown in place of values that may be secret."""
    hidden: dict[str, dict[str, dict[str, str]]] = {}
    for query, instances in _by_query(plan.queries, given.values, []).items():
        for path, name, _ in instances:
            shown = given.hidden_in(path)
            if shown:
                hidden.setdefault(query, {})[name] = shown
    return hidden


def needed(query: QueryPlan) -> list[str]:
    """The parameters without a default."""
    return [parameter.name for parameter in query.parameters if parameter.default is None]


def missing(query: QueryPlan) -> str:
    """The message that a query has no instance."""
    names = needed(query)
    return f"query '{query.name}' has no instance; {_quoted(names)} {'needs' if len(names) == 1 else 'need'} a value"


Mistakes = list[tuple[Path, str]]
"""The path of each wrong value, and what is wrong with it."""

Instance = tuple[Path, str, Mapping[str, Any]]
"""Its path, its name, its values."""

DEFAULT: Instance = ((), "", {})


def _by_query(queries: Sequence[QueryPlan], values: Mapping[str, Any], mistakes: Mistakes) -> dict[str, list[Instance]]:
    if not values:
        return {}
    taking = [query.name for query in queries if query.parameters]
    if not taking:
        mistakes.append(((), "these queries have no parameters"))
        return {}
    if not any(isinstance(value, Mapping) for value in values.values()):
        if len(taking) == 1:
            return {taking[0]: [((), "", values)]}
        mistakes.append(((), f"name the query: {_quoted(taking)} take parameters"))
        return {}
    found = {}
    for name, value in values.items():
        if name in taking:
            found[name] = _instances(name, value, mistakes)
        else:
            mistakes.append(((name,), _unknown_query(name, taking, queries)))
    return found


def _instances(query: str, value: Any, mistakes: Mistakes) -> list[Instance]:
    if not isinstance(value, Mapping):
        mistakes.append(((query,), f"'{query}' is a query: its parameters are a mapping of names to values"))
        return []
    if not any(isinstance(inner, Mapping) for inner in value.values()):
        return [((query,), "", value)]
    found: list[Instance] = []
    for name, inner in value.items():
        path = (query, str(name))
        if not isinstance(inner, Mapping):
            mistakes.append((path, f"'{name}' must be an instance with values, as those beside it are"))
        elif not INSTANCE_NAME.fullmatch(str(name)):
            mistakes.append((path, f"'{name}' is not a name of an instance; use letters, digits, _, - and dots"))
        else:
            found.append((path, str(name), inner))
    return found


def _unknown_query(name: str, taking: Sequence[str], queries: Sequence[QueryPlan]) -> str:
    if name in {query.name for query in queries}:
        return f"query '{name}' has no parameters"
    return f"unknown query '{name}'{did_you_mean(str(name), taking)}"


def _quoted(names: Sequence[str]) -> str:
    return listed(f"'{name}'" for name in names)
