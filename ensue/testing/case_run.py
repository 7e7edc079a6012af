"""Run cases on executors, and ask why of a case that fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from ensue import executors
from ensue.answer import Replay
from ensue.asking_why import table_of
from ensue.changing import script_of
from ensue.executors import Job, even_splits
from ensue.plans import Fitted, fitted
from ensue.queries import Compiled, Queries, load
from ensue.testing import case_check
from ensue.testing.cases import Case
from querylang.dataclass import dataclass
from querylang.errors import EnsueError, InputError, QueryErrors
from querylang.parameters import with_instances
from querylang.printable import masked, one_line
from runtime.admission import Outcome as Admitted
from runtime.reading import PLACES, STANDARD
from runtime.replay import Records, epoch_steps, measured_replay, read_ordered, replay_steps
from runtime.results.schemas import Results
from runtime.why import Asking, EventAt, Explanation, Status, Why

# Run cases on executors: from a case to what it expects and what was observed.
#
# Spark runs all cases of a test run in one job, when the first of them is needed. A case that
# cannot be run keeps its own error.

MICRO_BATCHES = (1, 2, 3)
"""Numbers of micro-batches in which each case is streamed; also with one per row."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The lines of a case, expected and observed; `what` says how the case was run."""

    what: str
    expected: list[case_check.Line]
    observed: list[case_check.Line]


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
    yield Outcome(
        "embedded, row by row", case_check.expected_lines(case), case_check.observed_by_step(case, job.plan, steps)
    )
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
    observed = case_check.observed_by_time(case, job.plan, job.records, results)
    return Outcome(what, case_check.at_times(case_check.expected_lines(case)), observed)


# Why the first difference of a failing case: what a missing match lacked, how another came.
#
# It is asked of the embedded engine, whichever executor has failed: results are the same on all.

MOST_LINES = 12
"""Lines of an explanation below the tables."""

_NEARER = (Status.NOT, Status.NOT_YET, Status.REFUSED, Status.MATCHED)
"""Of several answers about a row, the one that says most of a match that did not come is first."""


def why_differs(case: Case, outcome: Outcome, difference: int) -> str:
    """The explanation in a few lines; empty where only times differ, or nothing is known."""
    try:
        lines = list(_Differing(case, outcome, difference).lines())
    except EnsueError as error:
        lines = [f"why: {masked(one_line(str(error)))}"]
    except Exception as error:  # noqa: BLE001 # our own failure hides no difference
        lines = [f"why: it cannot be said: {type(error).__name__}"]
    return "\n".join(lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], "  …"])


class _Differing:
    """The first difference of an outcome: what is missing in its line, and what is too much."""

    def __init__(self, case: Case, outcome: Outcome, difference: int) -> None:
        self._case, self._outcome = case, outcome
        expected, observed = outcome.expected, outcome.observed
        wanted = expected[difference] if difference < len(expected) else None
        got = observed[difference] if difference < len(observed) else None
        if wanted is not None and got is not None and wanted.row != got.row:
            wanted = None  # a time between rows, of which a case expects nothing
        self._wanted, self._got = wanted, got
        expected_here, found_here = (() if line is None else line.out for line in (wanted, got))
        self._missing = _without(expected_here, found_here)
        self._surplus = _without(found_here, expected_here)

    def lines(self) -> Iterator[str]:
        """The explanation, line by line."""
        line = self._wanted or self._got
        assert line is not None, "a difference is of a line"
        missing, surplus = self._missing[:1], self._surplus[:1]
        for item in missing:
            lines, is_other = self._of_missing(item, line)
            if is_other:
                surplus = []
            yield from lines[: MOST_LINES // 2] if surplus else lines
        for item in surplus:
            yield f"why: {case_check.text_of_result(item)} came"
            yield from self._of_match(item, line.at)
        if not self._missing and not self._surplus and self._discards_differ() and line.row is not None:
            word = "not discarded" if self._got is None or self._got.discard is None else "discarded"
            yield f"why: row {line.row} was {word}"
            yield from _shown(self._best(self._of_row(line.row)))

    def _discards_differ(self) -> bool:
        wanted, got = self._wanted, self._got
        return wanted is not None and got is not None and wanted.discard != got.discard

    # A match that did not come.

    def _of_missing(self, item: object, line: case_check.Line) -> tuple[list[str], bool]:
        """The lines, and whether they explain the match that came instead."""
        name = case_check.text_of_result(item)
        other = next((found for found in self._outcome.observed if item in found.out), None)
        if other is not None:
            return [
                f"why: {name} came at {case_check.clock_text(other.at)} instead",
                *self._of_match(item, other.at),
            ], False
        rows = self._rows_of(item) or self._rows_at(line)
        answers = [answer for row in rows for answer in self._of_row(row)] or list(self._replay.why())
        members = frozenset(row + self._case.rows_before for row in self._rows_of(item))
        best = self._best(answers, members)
        kept = tuple(candidate for candidate in best.candidates if _is_of(candidate.events, members))
        others = tuple(other for other in best.others if _is_of(other.events, members))
        shown = _shown(replace(best, candidates=kept or best.candidates, others=others or best.others))
        return [f"why: {name} did not come", *shown], best.status is Status.MATCHED

    def _best(self, answers: Sequence[Explanation], members: frozenset[int] = frozenset()) -> Explanation:
        """The answer that says most of a match that did not come.

        First a candidate of the same events, then a refused record, then what lacks one thing only.

        members: rows of the match that was expected; none = not known
        """

        def rank(answer: Explanation) -> tuple[bool, bool, bool, int]:
            events = [*(item.events for item in answer.candidates), *(item.events for item in answer.others)]
            is_same = any(_is_of(own, members) for own in events)
            is_out = answer.status is Status.REFUSED or _what(answer) == Admitted.FILTERED.word
            is_whole = any(candidate.is_whole for candidate in answer.candidates)
            return not is_same, not (members and is_out), not is_whole, 0 if members else _NEARER.index(answer.status)

        return min(answers, key=rank)

    def _rows_of(self, item: object) -> list[int]:
        """The rows of a match's events, the last first; none = a result that is a text."""
        if not isinstance(item, tuple):
            return []
        rows = {row.given.get("id", number): number for number, row in enumerate(self._case.rows, 1)}
        each = (one for part in item for one in (part if isinstance(part, list) else [part]))
        return sorted({rows[one] for one in each if isinstance(one, int | str) and one in rows}, reverse=True)

    def _rows_at(self, line: case_check.Line) -> list[int]:
        """The rows of a line, or of its time where executors do not say more, that are events."""
        rows = enumerate(self._outcome.expected, 1)
        numbers = [number for number, other in rows if other.row == line.row or other.at == line.at]
        return [number for number in numbers if self._case.rows[number - 1].event is not None]

    # A match that came and was not expected.

    def _of_match(self, item: object, at: int) -> Iterator[str]:
        replayed = self._replay
        for time, match, results in case_check.results_by_match(
            self._case, replayed.plan, replayed.records, replayed.results
        ):
            if time == at and item in results:
                yield from _shown(next(iter(replayed.why(match=match["match_id"]))))
                return

    # What is asked.

    def _of_row(self, number: int) -> list[Explanation]:
        replayed = self._replay
        number += self._case.rows_before
        return list(self._asking.row(number, None, replayed.plan.queries, replayed.records.sources, as_latest=True))

    @cached_property
    def _asking(self) -> Asking:
        return Asking(table_of(self._replay))

    @cached_property
    def _replay(self) -> Replay:
        """The replay of the case, of which it can be asked."""
        job, compiled = prepared(self._case)
        if job.script is not None:
            raise InputError("it answers where no control event changes the queries; this case has one that does")
        results, figures = measured_replay(job.plan, job.records, flush=job.flush)
        return Replay(job.plan, job.records, results, figures, None, job.flush, compiled=compiled)


def _what(answer: Explanation) -> str:
    return "" if answer.reason is None else answer.reason.what


def _is_of(events: Sequence[EventAt], members: frozenset[int]) -> bool:
    return bool(members) and frozenset(event.row for event in events) == members


def _without(items: Sequence[object], others: Sequence[object]) -> list[object]:
    """Those of the items that are not among the others; equal ones count as often as they come."""
    left = list(others)
    found = []
    for item in items:
        if item in left:
            left.remove(item)
        else:
            found.append(item)
    return found


def _shown(answer: Explanation) -> list[str]:
    """An answer with its nearest candidate only."""
    short = replace(answer, candidates=answer.candidates[:1], others=answer.others[:1], causes=())
    return [f"  {line}" for line in str(Why("", (short,))).splitlines()]
