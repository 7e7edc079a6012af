"""What a condition about runs asks: of which events, and when that is known.

A condition that names runs, the event before or a fold is asked by the rules of `docs/matching.md`:
ignored where something that it is about does not exist, and else asked of each event of its run.
"""

from __future__ import annotations

from collections.abc import Sequence

from querylang.dataclass import dataclass
from querylang.plan.expression import EndOf, Expression, Fold, PrevOf, each_terms_of, terms_of, walk
from querylang.plan.model import Condition, Gap, QueryPlan, Term, Where, Within, Without


@dataclass(frozen=True, slots=True)
class Question:
    """A condition about runs.

    - `mentions`: all its terms.
    - `runs`: those of one run or group of which each event is asked.
    - `plain`: those that are one event.
    - `prevs`: those whose event before is asked for.
    - `is_whole`: it is asked of whole runs, once.
    """

    expression: Expression
    mentions: frozenset[int]
    runs: tuple[int, ...]
    plain: frozenset[int]
    prevs: frozenset[int]
    folds: tuple[Fold, ...]
    ends: tuple[EndOf, ...]
    is_whole: bool

    @property
    def folded(self) -> tuple[int, ...]:
        """The runs of which folds, or first and last events, are taken."""
        of_folds = [term for fold in self.folds for term in fold.terms]
        return (*of_folds, *(end.term for end in self.ends))

    @property
    def only_last(self) -> frozenset[int]:
        """The runs of which it asks for the last event only, which is the first to be bound.

        So it need not wait until these are complete.
        """
        others = {term for fold in self.folds for term in fold.terms}
        others |= {end.term for end in self.ends if end.function != "last"}
        return frozenset(end.term for end in self.ends) - others - self.prevs - frozenset(self.runs)


def question_of(condition: Condition, terms: Sequence[Term]) -> Question | None:
    """The question; None: the condition names no run, no event before and no fold."""
    if isinstance(condition, Within | Gap) or condition.condition is None:
        return None
    expression = condition.condition
    known = range(len(terms))
    mentions = terms_of(expression).intersection(known)
    nodes = list(walk(expression))
    folds = tuple(node for node in nodes if isinstance(node, Fold))
    ends = tuple(node for node in nodes if isinstance(node, EndOf))
    prevs = frozenset(node.term for node in nodes if isinstance(node, PrevOf))
    runs = frozenset(term for term in mentions if terms[term].group is not None)
    if not (runs or prevs or folds or ends):
        return None
    return Question(
        expression=expression,
        mentions=mentions | (frozenset(condition.mentions) if isinstance(condition, Where) else frozenset()),
        runs=tuple(sorted(runs & each_terms_of(expression))),
        plain=mentions - runs,
        prevs=prevs,
        folds=folds,
        ends=ends,
        is_whole=bool(folds or ends or isinstance(condition, Without)),
    )


def has_additions(query: QueryPlan) -> bool:
    """Whether its kernel is that of repeats, `=>`, `prev`, `find all` and waits between steps."""
    if query.has_runs or query.finds_all or query.gaps:
        return True
    return any(question_of(condition, query.terms) is not None for condition in query.conditions)
