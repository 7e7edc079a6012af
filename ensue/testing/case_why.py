"""Why the first difference of a failing case: what a missing match lacked, how another came.

It is asked of the embedded engine, whichever executor has failed: results are the same on all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from ensue.answer import Replay
from ensue.asking_why import table_of
from ensue.testing import case_run
from ensue.testing.case_check import Line, clock_text, results_by_match, text_of_result
from ensue.testing.case_run import prepared
from ensue.testing.cases import Case
from querylang.errors import EnsueError, InputError
from querylang.printable import masked, one_line
from runtime.admission import Outcome
from runtime.replay import measured_replay
from runtime.why import Asking, EventAt, Explanation, Status, Why

MOST_LINES = 12
"""Lines of an explanation below the tables."""

_NEARER = (Status.NOT, Status.NOT_YET, Status.REFUSED, Status.MATCHED)
"""Of several answers about a row, the one that says most of a match that did not come is first."""


def why_differs(case: Case, outcome: case_run.Outcome, difference: int) -> str:
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

    def __init__(self, case: Case, outcome: case_run.Outcome, difference: int) -> None:
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
            yield f"why: {text_of_result(item)} came"
            yield from self._of_match(item, line.at)
        if not self._missing and not self._surplus and self._discards_differ() and line.row is not None:
            word = "not discarded" if self._got is None or self._got.discard is None else "discarded"
            yield f"why: row {line.row} was {word}"
            yield from _shown(self._best(self._of_row(line.row)))

    def _discards_differ(self) -> bool:
        wanted, got = self._wanted, self._got
        return wanted is not None and got is not None and wanted.discard != got.discard

    # A match that did not come.

    def _of_missing(self, item: object, line: Line) -> tuple[list[str], bool]:
        """The lines, and whether they explain the match that came instead."""
        name = text_of_result(item)
        other = next((found for found in self._outcome.observed if item in found.out), None)
        if other is not None:
            return [f"why: {name} came at {clock_text(other.at)} instead", *self._of_match(item, other.at)], False
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
            is_out = answer.status is Status.REFUSED or _what(answer) == Outcome.FILTERED.word
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

    def _rows_at(self, line: Line) -> list[int]:
        """The rows of a line, or of its time where executors do not say more, that are events."""
        rows = enumerate(self._outcome.expected, 1)
        numbers = [number for number, other in rows if other.row == line.row or other.at == line.at]
        return [number for number in numbers if self._case.rows[number - 1].event is not None]

    # A match that came and was not expected.

    def _of_match(self, item: object, at: int) -> Iterator[str]:
        replayed = self._replay
        for time, match, results in results_by_match(self._case, replayed.plan, replayed.records, replayed.results):
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
