"""Queries in this process: what `ensue.replay` and the command line run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from ensue.answer import Replay
from ensue.background import compile_for_next_time
from ensue.changing import asks_for_changes, script_of
from ensue.data_options import DataOptions, read_parameters, stop_time
from ensue.plans import as_tables, fitted
from ensue.queries import Compiled, Queries, load_and_warn
from querylang.dataclass import dataclass
from querylang.errors import InputError
from querylang.parameters import with_instances
from querylang.plan.model import Plan, QueryPlan
from runtime.matching.choose import warn_if_slow
from runtime.policies.plan_policies import parse_orderings
from runtime.policies.settings_text import parse_forget_keys, with_forget_keys
from runtime.reading import NoTimesError
from runtime.replay import (
    FileRecords,
    Records,
    Script,
    Step,
    epoch_steps,
    measured_replay,
    read_ordered,
    replay_epochs,
    replay_steps,
)
from runtime.results.for_users import Plain
from runtime.threads import rare_collections

_EACH_ITS_OWN = '; where each table names its times differently, write `@TimeFrom("NAME")` above each event instead'

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
    with rare_collections():
        to_replay = read(queries, events, options, until=until, flush=flush, progress=progress)
        warn_if_slow(to_replay.plan, to_replay.records.about())
        return to_replay.replay(progress)


def read(
    queries: Queries | str | Path,
    events: Any,
    options: DataOptions,
    *,
    until: str | float | datetime | None = None,
    flush: bool = True,
    progress: Progress | None = None,
) -> ToReplay:
    """Read the queries and the tables, compile the queries for them; as of `ensue.replay`."""
    loaded, tables = load_and_warn(queries), as_tables(events)
    stop = stop_time(until)
    ready = fitted(loaded, tables, options.columns)
    template, columns = ready.template, ready.columns
    instances = with_instances(template, read_parameters(options.parameters))
    reading = None if progress is None else partial(progress, "reading")
    orderings, forget_keys = parse_orderings(options.ordering), parse_forget_keys(options.forget_keys)
    lookup_tables = options.lookup_tables
    try:
        plan, records = read_ordered(tables, instances, columns, orderings, reading)
    except NoTimesError as error:
        raise InputError(f"{error}{_EACH_ITS_OWN * (len(tables) > 1)}") from None

    def finish(own: Plan) -> Plan:
        return lookup_tables.bound(with_forget_keys(own, forget_keys))

    def script(records: Records) -> tuple[Script, Records] | None:
        return script_of(template, instances, records, tables, columns, orderings, finish)

    compiled = Compiled(loaded, ready.schemas, read_parameters(options.parameters))
    return ToReplay(finish(plan), template, records, script, stop, flush, compiled)


@dataclass(frozen=True)
class ToReplay:
    """A replay whose records are read, and which has not begun.

    plan: the queries at its start, with the settings of the run
    template: these queries before they got their parameters
    script: gives the plans that hold one after the other, and the records read for all of them;
        None = no control event changes the queries
    stop: time at which to stop, µs; None = after the last row
    flush: after the last row, advance time until no timer is left
    compiled: what the plan was made of
    """

    plan: Plan
    template: Plan
    records: Records | FileRecords
    script: Callable[[Records], tuple[Script, Records] | None]
    stop: int | None
    flush: bool
    compiled: Compiled

    def replay(self, progress: Progress | None = None) -> Replay:
        """The results of all records."""
        with rare_collections():
            return self._replayed(progress)

    def _replayed(self, progress: Progress | None) -> Replay:
        if isinstance(self.records, Records) and (changing := self.script(self.records)) is not None:
            return self._changed(*changing)
        replaying = None if progress is None else partial(progress, "replay")
        results, figures = measured_replay(
            self.plan, self.records, until=self.stop, flush=self.flush, progress=replaying
        )
        if isinstance(self.records, FileRecords) and asks_for_changes(results):
            changing = self.script(self.records.whole())
            if changing is not None:
                return self._changed(*changing)
        compile_for_next_time()
        idle = idle_queries(self.template, self.plan)
        return Replay(self.plan, self.records, results, figures, self.stop, self.flush, idle, compiled=self.compiled)

    def steps(self) -> tuple[Plan, Iterator[Plain]]:
        """All queries that run, and the steps as `--format steps` prints them.

        The first steps are there before the last are known.
        """
        records = self.records if isinstance(self.records, Records) else self.records.whole()
        changing = self.script(records)
        if changing is None:
            steps = replay_steps(self.plan, records, until=self.stop, flush=self.flush, is_for_people=False)
        else:
            steps = epoch_steps(*changing, until=self.stop, flush=self.flush, is_for_people=False)
        return self.plan if changing is None else changing[0].plan, _plain(steps)

    def _changed(self, script: Script, records: Records) -> Replay:
        """A replay whose control events change the queries."""
        results, figures = replay_epochs(script, records, until=self.stop, flush=self.flush)
        idle = idle_queries(self.template, script.plan)
        return Replay(script.plan, records, results, figures, self.stop, self.flush, idle, script)


def idle_queries(template: Plan, plan: Plan) -> tuple[QueryPlan, ...]:
    """The queries that have no instance."""
    running = {query.name for query in plan.queries}
    return tuple(query for query in template.queries if query.name not in running)


def _plain(steps: Iterable[Step]) -> Iterator[Plain]:
    for step in steps:
        yield step.to_plain()
    compile_for_next_time()
