"""What an expression knows of repeated names: for folds, and for the event before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from querylang.plan.expression import Expression

PREV = "prev"
"""A name everywhere but before brackets in a condition."""

ENDS = ("first", "last")
FOLDS = (*ENDS, "count", "sum", "avg", "min", "max")


@dataclass(frozen=True, slots=True)
class Run:
    """A repeated name. `may_be_empty`: where it is used it may have no event."""

    name: str
    term: int
    group: int
    may_be_empty: bool


@dataclass(frozen=True, slots=True)
class Repeats:
    """The repeated names of a pattern.

    - `single`: what each name of the pattern means inside a fold: one event.
    - `is_block`: what may have no value is an optional.
    - `before`: by term, those whose events can be directly before; None: `prev` has no meaning
      here, or the pattern has a mistake.
    - `is_prev_usable`: it is a condition.
    """

    runs: Mapping[str, Run] = field(default_factory=dict)
    single: Mapping[str, Expression | None] = field(default_factory=dict)
    is_block: bool = False
    is_prev_usable: bool = False
    before: Callable[[int], frozenset[int] | None] = field(default=lambda _term: None, compare=False)
    event_names: tuple[str | None, ...] = ()

    def run_of(self, term: int) -> Run | None:
        """The run of a term; None: it is one event."""
        return next((run for run in self.runs.values() if run.term == term), None)
