"""The queries that run, as JSON can hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from querylang.changes.running import Changed, Running, RunningQuery, Version
from querylang.errors import counted
from querylang.plan.model import Plan
from runtime.json_reader import DamagedJson
from spark_backend.job.journal.hidden_values import PlainValue, Resolve, instance_words, masked, no_variables, unmasked
from spark_backend.wire.plan_text import load_plan, template_text


def running_to_plain(running: Running) -> dict[str, Any]:
    """The queries as files may hold them: without values that may be secret."""
    plain = _to_plain(running, [{name: _masked(query, name) for name in query.instances} for query in _all(running)])
    return plain | {"annotated": running.is_annotated}


def is_same(one: Running, other: Running) -> bool:
    """Whether the queries and their values are the same."""
    return one == other or _compared(one) == _compared(other)  # the first is fast, and nearly always true


def has_hidden(running: Running) -> bool:
    """Whether some values may be secret."""
    return any(shown for query in _all(running) for shown in query.hidden.values())


def _compared(running: Running) -> dict[str, Any]:
    """For comparison only: it has the values."""
    plain = _to_plain(running, [{name: _kept(values) for name, values in q.instances.items()} for q in _all(running)])
    return plain | {"hidden": [{name: shown for name, shown in q.hidden.items() if shown} for q in _all(running)]}


def _kept(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.kept if isinstance(value, Changed) else value for name, value in values.items()}


def _all(running: Running) -> Sequence[RunningQuery]:
    return list(running.queries.values())


def _masked(query: RunningQuery, name: str) -> dict[str, Any]:
    return masked(query.instances[name], query.hidden.get(name, {}))


def _to_plain(running: Running, instances: Sequence[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """`instances`: by query, what is written of the values of its instances."""
    templates: Sequence[Version] = [version for query in running.queries.values() for version in query.versions]
    plan = Plan(running.events, tuple(version.template for version in templates), running.stopped)
    return {
        "plan": template_text(plan),
        "queries": [
            {
                "name": query.name,
                "versions": [[version.starts, version.ends, version.done] for version in query.versions],
                "instances": own,
                "origin": query.origin,
                "value_origins": dict(query.value_origins),
            }
            for query, own in zip(running.queries.values(), instances, strict=True)
        ],
        "editions": dict(running.editions),
    }


class _PlainQuery(TypedDict):
    name: str
    versions: list[tuple[int | None, int | None, int | None]]
    instances: dict[str, dict[str, PlainValue]]
    origin: str
    value_origins: dict[str, str]


class PlainRunning(TypedDict):
    """The queries, as `running_to_plain` gives them."""

    plan: str
    queries: list[_PlainQuery]
    editions: dict[str, int]
    annotated: NotRequired[bool]


def running_of_plain(data: PlainRunning, resolve: Resolve = no_variables) -> Running:
    """The inverse of `running_to_plain`; raises DamagedJson.

    Raises InputError if the variable of a value is not set.
    """
    plan = load_plan(data["plan"])
    count = sum(len(item["versions"]) for item in data["queries"])
    if count != len(plan.queries) or not all(item["versions"] for item in data["queries"]):
        raise DamagedJson(f"its plan has {counted(len(plan.queries), 'text')} of queries, and its list {count}")
    templates = iter(plan.queries)
    queries = {}
    for item in data["queries"]:
        versions = tuple(Version(next(templates), *bounds) for bounds in item["versions"])
        instances: dict[str, dict[str, Any]] = {}
        hidden: dict[str, dict[str, str]] = {}
        for name, values in item["instances"].items():
            where = instance_words(item["name"], name)
            instances[name], shown = unmasked(values, versions[-1].template, where, resolve)
            hidden |= {name: shown} if shown else {}
        queries[item["name"]] = RunningQuery(versions, instances, item["origin"], item["value_origins"], hidden)
    return Running(plan.events, queries, data["editions"], plan.stopped, data.get("annotated", False))
