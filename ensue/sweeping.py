"""Many values of a query's parameters, tried against labels in one replay.

Each combination of the values is an instance of the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from itertools import product
from typing import TYPE_CHECKING, Any

from querylang.errors import InputError, did_you_mean, listed
from querylang.parameters import Given

if TYPE_CHECKING:
    from pathlib import Path

    from ensue.data_options import DataOptions
    from ensue.queries import Queries
    from ensue.rendering.scores import Backtest
    from querylang.plan.model import Plan, QueryPlan
    from runtime.scoring import Score

Values = Mapping[str, Sequence[Any]]
"""By name of a parameter, the values that are tried."""

MOST = 10_000
"""Combinations of values; each is an instance."""


def sweep(
    queries: Queries | str | Path,
    events: Any,
    options: DataOptions,
    labels: Any,
    vary: Values,
    *,
    within: str | timedelta | None = None,
    query: str | None = None,
    until: Any = None,
    flush: bool = True,
) -> Backtest:
    """The scores of all combinations of values; as of `ensue.sweep`. Raises InputError."""
    from ensue import embedded
    from ensue.data_options import read_parameters
    from ensue.plans import as_tables, fitted
    from ensue.queries import load_and_warn
    from ensue.rendering.scores import Backtest

    loaded, tables = load_and_warn(queries), as_tables(events)
    swept = swept_query(fitted(loaded, tables, options.columns).template, vary, query)
    instances = combinations(vary)
    given = with_values(read_parameters(options.parameters), swept, instances)
    result = embedded.replay(loaded, tables, replace(options, parameters=given), until=until, flush=flush)
    scores = {score.instance: score for score in result.backtest(labels, within=within, query=swept.name).scores}
    return Backtest(tuple(_with_values(scores, instances)), tuple(_stopped(result.plan, swept.name, instances)))


def _with_values(scores: Mapping[str, Score], instances: Mapping[str, Mapping[str, Any]]) -> Iterator[Score]:
    for name, values in instances.items():
        if name in scores:
            yield replace(scores[name], instance="", parameters=values)


def _stopped(plan: Plan, query: str, instances: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What did not run, and why."""
    for item in plan.stopped:
        if item.query == query and item.instance in instances:
            reason = item.reason.rpartition(f"instance '{item.instance}': ")[2]
            yield f"{_text(instances[item.instance])} was not tried: {reason}"


def _text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def swept_query(template: Plan, vary: Values, query: str | None) -> QueryPlan:
    """The query whose parameters are varied. Raises InputError."""
    if not vary:
        raise InputError("nothing is varied: name a parameter and its values, such as `least=1,2,5`")
    names = [item.name for item in template.queries]
    if not isinstance(query, str | None):
        raise InputError(f"query: {query!r} is not the name of a query; there are {listed(names)}")
    if query is not None and query not in names:
        raise InputError(f"there is no query '{query}'{did_you_mean(query, names)}; there are {listed(names)}")
    known = {item.name: [parameter.name for parameter in item.parameters] for item in template.queries}
    candidates = [item for item in template.queries if query in (None, item.name)]
    fitting = [item for item in candidates if set(vary) <= set(known[item.name])]
    if len(fitting) > 1:
        raise InputError(f"which query? {listed([item.name for item in fitting])} have these parameters; write `query`")
    if fitting:
        return fitting[0]
    there = list(dict.fromkeys(name for item in candidates for name in known[item.name]))
    missing = next((name for name in vary if name not in there), None)
    if missing is None:
        raise InputError(f"no query has all of these parameters: {listed(list(vary))}")
    if not there:
        raise InputError(f"there is no parameter '{missing}': `parameters {{ float {missing}; }}` declares one")
    raise InputError(f"there is no parameter '{missing}'{did_you_mean(missing, there)}; there are {listed(there)}")


def combinations(vary: Values) -> dict[str, dict[str, Any]]:
    """By name of an instance its values; the last parameter changes first. Raises InputError."""
    count = 1
    for name, values in vary.items():
        if isinstance(values, str) or not hasattr(values, "__len__") or not len(values):
            raise InputError(f"vary: {name!r} needs a list of values")
        count *= len(values)
    if count > MOST:
        raise InputError(f"{count:,} combinations of values are more than {MOST:,}")
    every = product(*vary.values())
    return {str(number): dict(zip(vary, values, strict=True)) for number, values in enumerate(every, 1)}


def with_values(given: Given, query: QueryPlan, instances: Mapping[str, Mapping[str, Any]]) -> Given:
    """What users gave, with an instance of a query for each combination.

    Raises InputError where values were given to instances of it.
    """
    names = {parameter.name for parameter in query.parameters}
    by_query = query.name in given.values and query.name not in names
    own = given.values[query.name] if by_query else {name: given.values[name] for name in given.values if name in names}
    if not isinstance(own, Mapping) or any(isinstance(value, Mapping) for value in own.values()):
        raise InputError(
            f"parameters: a sweep makes the instances of '{query.name}'; give the values of its other parameters once"
        )
    others = {
        name: value for name, value in given.values.items() if name != query.name and (by_query or name not in own)
    }
    return Given({**others, query.name: {name: {**own, **values} for name, values in instances.items()}}, given.origin)


# `--vary least=1,2,5` and `--vary least=1..5 by 0.5`.


def read_vary(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Values as the command line has them, by parameter. Raises InputError."""
    found = dict[str, list[Any]]()
    for text in texts:
        name, sign, values = (part.strip() for part in text.partition("="))
        if not sign or not name or not values:
            raise InputError(
                f"--vary: expected NAME=VALUES, such as `least=1,2,5` or `least=1..5 by 0.5`, not {text!r}"
            )
        if name in found:
            raise InputError(f"--vary: {name!r} is given twice")
        found[name] = _range(text, values) if ".." in values else _listed_values(text, values)
    return found


def _listed_values(text: str, values: str) -> list[Any]:
    """Values as in a list of YAML."""
    from runtime.yaml_reader import YamlError, read_nodes, value_of

    def wrong(_: object, reason: str) -> None:
        raise InputError(f"--vary: {text!r}: {reason}")

    try:
        node = read_nodes(f"[{values}]")
    except YamlError as error:
        raise InputError(f"--vary: {text!r}: expected values with commas between them") from error
    found = [] if node is None else value_of(node, wrong)
    if not isinstance(found, list) or not found:
        raise InputError(f"--vary: {text!r}: expected values with commas between them")
    return found


def _range(text: str, values: str) -> list[Any]:
    ends, _, step_text = values.partition(" by ")
    first_text, _, last_text = ends.partition("..")
    try:
        first, last = Decimal(first_text.strip()), Decimal(last_text.strip())
        step = Decimal(step_text.strip() or "1")
    except InvalidOperation:
        raise InputError(f"--vary: {text!r}: a range is written `FROM..TO by STEP`, with numbers") from None
    if not (first.is_finite() and last.is_finite() and step.is_finite()) or step <= 0 or last < first:
        raise InputError(f"--vary: {text!r}: a range goes up, with a step above 0")
    count = int((last - first) / step) + 1
    if count > MOST:
        raise InputError(f"--vary: {text!r}: {count:,} values are more than {MOST:,}")
    is_whole = all(part == part.to_integral_value() and "." not in str(part) for part in (first, step))
    return [int(first + step * number) if is_whole else float(first + step * number) for number in range(count)]
