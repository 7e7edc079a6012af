"""What a condition about runs asks: of which events, and when that is known.

A condition that names runs, the event before or a fold is asked by the rules of `docs/matching.md`:
ignored where something that it is about does not exist, and else asked of each event of its run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from querylang.dataclass import dataclass
from querylang.plan.expression import EndOf, Expression, Fold, PrevOf, each_terms_of, terms_of, walk
from querylang.plan.model import (
    ACCEPT,
    Automaton,
    Between,
    Condition,
    Gap,
    QueryPlan,
    Term,
    Transition,
    Where,
    Within,
    Without,
    mentioned_terms,
)


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


# On which of the events bound so far the rest of a search depends.
#
# Where two paths reach a state at the same event, and the events on which its future depends are
# the same, they are completed alike. By these the reference matcher stores what a search has found.
# `querylang.plan.remembering` says what the kernels store.


@dataclass(frozen=True, slots=True)
class Past:
    """Of the events bound so far, those on which a state's future depends.

    - `whole`: the terms of which all events count.
    - `ends`: those of which the newest and the oldest event count.
    - `oldest`, `newest`: those of which only that one does.
    - `counted`: those of which only the number of events counts.
    - `is_all`: all events count, so no two paths are alike.
    """

    whole: tuple[int, ...]
    ends: tuple[int, ...]
    oldest: tuple[int, ...]
    counted: tuple[int, ...]
    is_all: bool = False
    newest: tuple[int, ...] = ()

    def key(self, bindings: Mapping[int, tuple[int, ...]]) -> tuple[object, ...]:
        """What must be equal."""
        get = bindings.get
        return (
            *(get(term) for term in self.whole),
            *((run[0], run[-1]) if (run := get(term)) else None for term in self.ends),
            *(run[-1] if (run := get(term)) else None for term in self.oldest),
            *(run[0] if (run := get(term)) else None for term in self.newest),
            *(len(get(term, ())) for term in self.counted),
        )


def pasts(query: QueryPlan) -> tuple[Past, ...]:
    """By state of the query's automaton."""
    needs = Needs(query)
    return tuple(
        _joined([needs.of(check, number) for check in sorted(checks)])
        for number, checks in enumerate(pending_of(query.automaton))
    )


def counted_states(query: QueryPlan) -> tuple[bool, ...]:
    """By state, whether what it binds counts for the limit of a search.

    So it does where dead ends cannot be stored, or are different for each choice of the events of a
    run: where a condition that is still to be checked depends on all of these, or on how they were
    chosen, and where all candidates are wanted.
    """
    states = query.automaton.states
    if not query.has_runs or query.finds_all:
        return (query.has_runs,) * len(states)
    return (False, *(is_of_choices(past, query.terms) for past in pasts(query)[1:]))


def is_of_choices(past: Past, terms: Sequence[Term]) -> bool:
    """Whether it is different for each choice of the events of a run."""
    return past.is_all or any(terms[term].group is not None for term in past.whole)


def _joined(needs: Sequence[Past]) -> Past:
    def all_of(name: str) -> tuple[int, ...]:
        return tuple(sorted({term for need in needs for term in getattr(need, name)}))

    return Past(
        all_of("whole"),
        all_of("ends"),
        all_of("oldest"),
        all_of("counted"),
        any(need.is_all for need in needs),
        all_of("newest"),
    )


_EVERYTHING = Past((), (), (), (), is_all=True)


class Needs:
    """What the conditions of a query depend on. States ask for the same ones: each is read once.

    questions: by condition, as of `question_of`
    """

    def __init__(self, query: QueryPlan) -> None:
        self.questions = [question_of(condition, query.terms) for condition in query.conditions]
        self._query = query
        self._still_open = from_here_on(query.automaton, lambda transition: transition.binds)
        self._plain = [
            None if question is not None else _need_of(condition, query)
            for condition, question in zip(query.conditions, self.questions, strict=True)
        ]

    def of(self, check: int, state: int) -> Past:
        """What a condition depends on that is still to be checked in a state."""
        question, plain = self.questions[check], self._plain[check]
        if question is not None:
            return _of_question(question, self._query.conditions[check], self._still_open[state])
        assert plain is not None, "a condition that is not a question"
        return plain


def _need_of(condition: Condition, query: QueryPlan) -> Past:
    """What a condition depends on that is not a question."""
    terms = query.terms
    mentioned = tuple(sorted(mentioned_terms(condition, len(terms))))
    match condition:
        case Where():
            return Past(mentioned, (), (), ())
        case Within(between=between):
            return Past((), _named(between, query), (), ())
        case Gap(before=before, after=after):
            return Past((), (), after, (), newest=before)
        case Without(input=number, between=between, condition=expression):
            bound = [] if between is None else [term for term, item in enumerate(terms) if item.input == number]
            of_expression = () if expression is None else mentioned
            return Past((*bound, *of_expression), _named(between, query), (), ())
    raise AssertionError("every kind of condition is known")


def _named(between: Between | None, query: QueryPlan) -> tuple[int, ...]:
    """The terms on which a range depends; the point of a wait depends on those before it."""
    if between is None:
        return ()
    return (*between.terms, *(term for number in between.middle for term in query.gaps[number].before))


def _of_question(question: Question, condition: Condition, still_open: set[int]) -> Past:
    mentions = tuple(sorted(question.mentions))
    waits_for_plain = bool(question.plain & still_open)
    if isinstance(condition, Without) or (question.prevs and (question.is_whole or waits_for_plain)):
        return _EVERYTHING
    if question.is_whole:
        folded = {term for fold in question.folds if fold.function != "count" for term in fold.terms}
        whole = folded.union(question.runs)
        first = {end.term for end in question.ends if end.function == "first"} - whole
        last = {end.term for end in question.ends if end.function != "first"} - whole
        counted = {term for fold in question.folds for term in fold.terms} - whole
        others = tuple(term for term in mentions if term not in first | last | counted)
        return Past(others, (), tuple(sorted(first)), tuple(sorted(counted)), newest=tuple(sorted(last)))
    if waits_for_plain:
        return Past(mentions, (), (), ())
    asked = {*question.runs, *question.prevs}
    return Past(tuple(sorted(question.plain)), (), tuple(sorted(asked)), ())


def pending_of(automaton: Automaton) -> list[set[int]]:
    """By state, the conditions that it checks, or states after it."""
    return from_here_on(
        automaton, lambda transition: transition.checks, [set(state.accepts or ()) for state in automaton.states]
    )


def from_here_on(
    automaton: Automaton, what: Callable[[Transition], Iterable[int]], at_ends: Sequence[set[int]] | None = None
) -> list[set[int]]:
    """By state, `what` its transitions have, or those of states after it, and what ends have."""
    states = automaton.states
    result = [{number for transition in state.transitions for number in what(transition)} for state in states]
    for number, at_end in enumerate(at_ends or ()):
        result[number] |= at_end
    size = -1
    while size != (size := sum(map(len, result))):
        for number in reversed(range(len(states))):
            for transition in states[number].transitions:
                if transition.target != ACCEPT:
                    result[number] |= result[transition.target]
    return result
