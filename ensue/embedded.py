"""Queries in this process: what `ensue.replay` and the command line run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ensue.background import compile_for_next_time
from ensue.data_options import DataOptions
from ensue.parameters import read_parameters
from ensue.plans import as_tables, template_for
from ensue.queries import Queries, load
from ensue.result import Replay
from querylang.parameters.instances import with_instances
from querylang.plan.model import Plan, QueryPlan
from runtime.columns.timestamps import parse_time
from runtime.policies.forget_keys import parse_forget_keys, with_forget_keys
from runtime.policies.plan_policies import parse_orderings
from runtime.replay.loading import read_ordered
from runtime.replay.replay import measured_replay


def replay(
    queries: Queries | str | Path,
    events: Any,
    options: DataOptions,
    *,
    until: str | float | None = None,
    flush: bool = True,
) -> Replay:
    """Read the queries and the tables, compile the queries for them, replay; see `ensue.replay`."""
    loaded, tables = load(queries), as_tables(events)
    stop = None if until is None else parse_time(str(until))
    template = template_for(loaded, tables, options.columns)
    instances = with_instances(template, read_parameters(options.parameters))
    plan, records = read_ordered(tables, instances, options.columns, parse_orderings(options.ordering))
    plan = with_forget_keys(plan, parse_forget_keys(options.forget_keys))
    results, figures = measured_replay(plan, records, until=stop, flush=flush)
    compile_for_next_time()
    return Replay(plan, records, results, figures, stop, flush, idle_queries(template, plan))


def idle_queries(template: Plan, plan: Plan) -> tuple[QueryPlan, ...]:
    """The queries that have no instance."""
    running = {query.name for query in plan.queries}
    return tuple(query for query in template.queries if query.name not in running)
