"""Queries in this process: what `ensue.replay` and the command line run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from ensue.background.processes import compile_for_next_time
from ensue.changing import asks_for_changes, script_of
from ensue.data_options import DataOptions, stop_time
from ensue.parameters import read_parameters
from ensue.plans import as_tables, template_for
from ensue.queries import Queries, load
from ensue.result import Replay
from querylang.parameters.instances import with_instances
from querylang.plan.model import Plan, QueryPlan
from runtime.policies.forget_keys import parse_forget_keys, with_forget_keys
from runtime.policies.plan_policies import parse_orderings
from runtime.replay.epochs import Script, replay_epochs
from runtime.replay.file_records import FileRecords
from runtime.replay.loading import read_ordered
from runtime.replay.records import Records
from runtime.replay.replay import measured_replay

Progress = Callable[[str, int], None]
"""Is called with what is being done, and to how many rows so far."""


def replay(
    queries: Queries | str | Path,
    events: Any,
    options: DataOptions,
    *,
    until: str | float | datetime | None = None,
    flush: bool = True,
    progress: Progress | None = None,
) -> Replay:
    """Read the queries and the tables, compile the queries for them, replay; see `ensue.replay`."""
    loaded, tables = load(queries), as_tables(events)
    stop = stop_time(until)
    template = template_for(loaded, tables, options.columns)
    instances = with_instances(template, read_parameters(options.parameters))
    reading = None if progress is None else partial(progress, "reading")
    replaying = None if progress is None else partial(progress, "replay")
    orderings, forget_keys = parse_orderings(options.ordering), parse_forget_keys(options.forget_keys)
    plan, records = read_ordered(tables, instances, options.columns, orderings, reading)
    plan = with_forget_keys(plan, forget_keys)
    if isinstance(records, Records):
        changing = script_of(template, instances, records, tables, options.columns, orderings, forget_keys)
        if changing is not None:
            return _changed(*changing, template, stop, flush=flush)
    results, figures = measured_replay(plan, records, until=stop, flush=flush, progress=replaying)
    if isinstance(records, FileRecords) and asks_for_changes(results):
        changing = script_of(template, instances, records.whole(), tables, options.columns, orderings, forget_keys)
        if changing is not None:
            return _changed(*changing, template, stop, flush=flush)
    compile_for_next_time()
    return Replay(plan, records, results, figures, stop, flush, idle_queries(template, plan))


def _changed(script: Script, records: Records, template: Plan, stop: int | None, *, flush: bool) -> Replay:
    """A replay whose control events change the queries."""
    results, figures = replay_epochs(script, records, until=stop, flush=flush)
    idle = idle_queries(template, script.plan)
    return Replay(script.plan, records, results, figures, stop, flush, idle, script)


def idle_queries(template: Plan, plan: Plan) -> tuple[QueryPlan, ...]:
    """The queries that have no instance."""
    running = {query.name for query in plan.queries}
    return tuple(query for query in template.queries if query.name not in running)
