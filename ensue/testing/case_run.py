"""Run cases on executors: from a case to what it expects and what was observed.

Spark runs all cases of a test run in one job, when the first of them is needed. A case that cannot
be run keeps its own error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ensue import executors
from ensue.changing import script_of
from ensue.executors import Job, even_splits
from ensue.plans import Fitted, fitted
from ensue.queries import Compiled, Queries, load
from ensue.testing.case_check import Line, at_times, expected_lines, observed_by_step, observed_by_time
from ensue.testing.cases import Case
from querylang.dataclass import dataclass
from querylang.errors import EnsueError, QueryErrors
from querylang.parameters import with_instances
from runtime.reading import PLACES, STANDARD
from runtime.replay import Records, epoch_steps, read_ordered, replay_steps
from runtime.results.schemas import Results

MICRO_BATCHES = (1, 2, 3)
"""Numbers of micro-batches in which each case is streamed; also with one per row."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The lines of a case, expected and observed; `what` says how the case was run."""

    what: str
    expected: list[Line]
    observed: list[Line]


def prepare(case: Case) -> Job:
    """Compile the case's query and read its rows; raises QueryErrors, InputError."""
    return prepared(case)[0]


def prepared(case: Case) -> tuple[Job, Compiled]:
    """The same, and what its plan was made of."""
    queries = load(case.query if case.query is not None else case.text or "")
    case = case.with_events(queries.input_types)
    ready = _fitted(case, queries)
    template, columns = ready.template, ready.columns
    given = with_instances(template, case.parameters)
    tables = [case.table(given)]
    plan, records = read_ordered(tables, given, columns, case.orderings)
    assert isinstance(records, Records), "the rows of a case are in memory"
    changing = script_of(template, given, records, tables, columns, case.orderings)
    compiled = Compiled(queries, ready.schemas, case.parameters)
    if changing is None:
        return Job(plan, records, flush=False), compiled
    script, of_all = changing
    return Job(script.plan, of_all, flush=False, script=script), compiled


def _fitted(case: Case, queries: Queries) -> Fitted:
    """The case's query, and how its rows are read.

    The rows say the fields of types that nothing defines and it mentions.
    """
    try:
        return Fitted(queries.template(), (STANDARD,), {})
    except QueryErrors:
        if not queries.open_types:
            raise
        rows = [
            {"at": row.given["at"], "event": row.event}
            | row.fields
            | {name: value for name, value in row.places.items() if name in PLACES}
            for row in case.rows
        ]
        return fitted(queries, [rows], STANDARD)


def run_embedded(case: Case) -> Iterator[Outcome]:
    """Run the case row by row, and all rows at once."""
    job = prepare(case)
    if job.script is None:
        steps = list(replay_steps(job.plan, job.records, flush=job.flush))
    else:
        assert isinstance(job.records, Records), "the rows of a case are in memory"
        steps = list(epoch_steps(job.script, job.records, flush=job.flush))
    yield Outcome("embedded, row by row", expected_lines(case), observed_by_step(case, job.plan, steps))
    yield _outcome("embedded, all at once", case, job, executors.embedded(job))


RUNS = {"local": executors.local, "batch": executors.batch, "stream": executors.stream}
"""How jobs run, by the executor."""


class JobRuns:
    """The cases of a test run on one executor of jobs; all run when the first is needed."""

    def __init__(self, executor: str, cases: Sequence[Case]) -> None:
        self._executor = executor
        self._cases = list(cases)
        self._outcomes: dict[int, list[Outcome] | EnsueError] = {}

    def outcomes(self, case: Case) -> list[Outcome]:
        """The outcomes of one case; raises the case's own error."""
        if not self._outcomes:
            self._run()
        found = self._outcomes[id(case)]
        if isinstance(found, EnsueError):
            raise found
        return found

    def _run(self) -> None:
        runs: list[tuple[Case, str, Job]] = []
        for case in self._cases:
            try:
                job = prepare(case)
            except EnsueError as error:
                self._outcomes[id(case)] = error
                continue
            self._outcomes[id(case)] = []
            runs += [(case, what, variant) for what, variant in self._variants(job)]
        jobs = [job for _, _, job in runs]
        found = RUNS[self._executor](jobs)
        for (case, what, job), results in zip(runs, found, strict=True):
            outcomes = self._outcomes[id(case)]
            assert isinstance(outcomes, list), "only cases without an error were run"
            outcomes.append(_outcome(what, case, job, results))

    def _variants(self, job: Job) -> list[tuple[str, Job]]:
        if self._executor == "batch":
            return [("batch", job)]
        count = len(job.records.rows)
        splits = dict.fromkeys(even_splits(count, number) for number in (*MICRO_BATCHES, count))
        return [
            (
                f"{self._executor}, {len(cuts) + 1} micro-batches",
                Job(job.plan, job.records, job.flush, cuts, job.script),
            )
            for cuts in splits
        ]


def _outcome(what: str, case: Case, job: Job, results: Results) -> Outcome:
    observed = observed_by_time(case, job.plan, job.records, results)
    return Outcome(what, at_times(expected_lines(case)), observed)
