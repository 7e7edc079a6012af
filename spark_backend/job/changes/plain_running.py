"""The queries that run, as JSON can hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from querylang.changes.running import Running, RunningQuery, Version
from querylang.plan.model import Plan
from spark_backend.wire.plan_text import load_plan, plan_text


def running_to_plain(running: Running) -> dict[str, Any]:
    """The queries as JSON can hold them; equal for equal ones."""
    templates: Sequence[Version] = [version for query in running.queries.values() for version in query.versions]
    plan = Plan(running.events, tuple(version.template for version in templates), running.stopped)
    return {
        "plan": plan_text(plan),
        "queries": [
            {
                "name": query.name,
                "versions": [[version.starts, version.ends, version.done] for version in query.versions],
                "instances": {name: dict(values) for name, values in query.instances.items()},
                "origin": query.origin,
                "value_origins": dict(query.value_origins),
            }
            for query in running.queries.values()
        ],
        "editions": dict(running.editions),
    }


def running_of_plain(data: Mapping[str, Any]) -> Running:
    """The inverse of `running_to_plain`; raises KeyError, TypeError or ValueError."""
    plan = load_plan(data["plan"])
    templates = iter(plan.queries)
    queries = {}
    for item in data["queries"]:
        versions = tuple(Version(next(templates), *bounds) for bounds in item["versions"])
        queries[item["name"]] = RunningQuery(versions, item["instances"], item["origin"], item["value_origins"])
    return Running(plan.events, queries, data["editions"], plan.stopped)
