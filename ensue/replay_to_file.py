"""A replay whose matches go to a file, piece by piece, in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from ensue.background.processes import compile_for_next_time
from ensue.changing import asks_for_changes
from ensue.data_options import DataOptions, stop_time
from ensue.embedded import idle_queries
from ensue.parameters import read_parameters
from ensue.plans import as_tables, fitted
from ensue.queries import Queries, load
from ensue.rendering.left_over import held
from ensue.rendering.match_files import match_file, refuse_bad_path, refuse_several_queries
from querylang.errors import InputError
from querylang.parameters import with_instances
from querylang.plan.model import Plan, QueryPlan
from runtime.engine.engine import Engine
from runtime.matching.choose import slow_queries
from runtime.policies.plan_policies import parse_orderings
from runtime.policies.settings_text import parse_forget_keys, with_forget_keys
from runtime.replay.loading import files_to_read, plan_for_files
from runtime.replay.order import in_order
from runtime.replay.records import FileToRead, NotSortedError, Reading, arrived_by
from runtime.replay.replay import replay_calls
from runtime.results.ledger import late_warning
from runtime.results.schemas import Results

_MOST_UNKNOWN = 100

Progress = Callable[[int], None]
"""Is called with how many records have been processed."""


@dataclass(slots=True)
class Written:
    """What a replay has found, beside the matches in its file.

    rows: records that were processed
    matches, outputs: how many there were
    discarded: how many records were discarded, by reason
    unreadable: source and text of the first rows that could not be read
    unknown: the first event types that no query knows
    ledger: the accounts
    waiting: how many matches wait at the end
    next_due: when the next of them is due, µs; None = none waits
    warnings: what is suspicious in the tables, a line each
    idle: queries without an instance
    slow: queries that run on the reference matcher, a line each
    """

    rows: int = 0
    matches: int = 0
    outputs: int = 0
    discarded: Counter[str] = field(default_factory=Counter)
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    unknown: dict[str, None] = field(default_factory=dict)
    ledger: pa.Table | None = None
    waiting: int = 0
    next_due: int | None = None
    warnings: Sequence[str] = ()
    idle: Sequence[QueryPlan] = ()
    slow: Sequence[str] = ()

    @property
    def unknown_types(self) -> Sequence[str]:
        """The event types of the records; none if the queries know one."""
        lost = self.discarded["malformed"] + self.discarded["unknown_type"]
        return list(self.unknown) if lost == self.rows else ()

    def add(self, results: Results, most: int) -> None:
        """Counts the results of a call; keeps the text of at most so many unreadable rows."""
        self.matches += sum(map(len, results.matches.values()))
        self.outputs += len(results.outputs)
        if results.discarded is None or not len(results.discarded):
            return
        self.discarded.update(results.discarded.column("reason").to_pylist())
        rows = results.discarded.select(["reason", "source", "text"]).to_pylist()
        for row in rows:
            if row["reason"] == "unknown_type" and len(self.unknown) < _MOST_UNKNOWN:
                self.unknown[row["text"]] = None
        malformed = [(row["source"], row["text"]) for row in rows if row["reason"] == "malformed"]
        self.unreadable += malformed[: most - len(self.unreadable)]


def replay_to_file(
    queries: Queries | Path,
    events: Sequence[Path],
    options: DataOptions,
    out: Path,
    *,
    until: str | None = None,
    flush: bool = True,
    progress: Progress | None = None,
    most_shown: int = 5,
) -> Written:
    """Run queries over files, and write the matches to a new file. Raises InputError, QueryErrors.

    Files that are not sorted by arrival are read a second time, and sorted beside the new file.
    """
    refuse_bad_path(out)
    loaded, paths = load(queries), [Path(path) for path in as_tables(list(events))]
    stop = stop_time(until)
    ready = fitted(loaded, paths, options.columns)
    template = ready.template
    orderings = parse_orderings(options.ordering)
    instances = with_instances(template, read_parameters(options.parameters))
    files = files_to_read(paths, instances, ready.columns, orderings)
    plan = plan_for_files(paths, instances, ready.columns, orderings)
    plan = with_forget_keys(plan, parse_forget_keys(options.forget_keys))
    refuse_several_queries(out, plan)
    run = _Run(plan, files, out, stop, flush=flush, progress=progress, most_shown=most_shown)
    try:
        written = run.with_pieces(Reading.sorted_pieces)
    except NotSortedError:
        parent, name = out.parent, f".{out.name}."
        with TemporaryDirectory(".runs", name, parent) as folder, held(Path(folder)):
            written = run.with_pieces(lambda reading: reading.pieces_by_runs(Path(folder)))
    compile_for_next_time()
    written.idle, written.slow = idle_queries(template, plan), slow_queries(plan)
    return written


@dataclass(frozen=True, slots=True)
class _Run:
    plan: Plan
    files: Sequence[FileToRead]
    out: Path
    until: int | None
    flush: bool
    progress: Progress | None
    most_shown: int

    def with_pieces(self, pieces_of: Callable[[Reading], Iterator[pa.Table]]) -> Written:
        reading, written, engine = Reading(self.files), Written(), Engine(self.plan)

        def report(rows: int) -> None:
            written.rows = rows
            if self.progress is not None:
                self.progress(rows)

        with match_file(self.out, self.plan, reading.row_of) as file:
            pieces = arrived_by(pieces_of(reading), self.until)
            for results in replay_calls(engine, pieces, until=self.until, flush=self.flush, progress=report):
                if asks_for_changes(results):
                    raise InputError("control events change the queries in these tables; replay them without --out")
                ordered = in_order(self.plan, results)
                file.write(ordered)
                written.add(ordered, self.most_shown)
        written.waiting, written.next_due = engine.waiting()
        written.ledger = engine.ledger()
        late = late_warning(written.ledger)
        written.warnings = (*reading.warnings, *([] if late is None else [late]))
        return written
