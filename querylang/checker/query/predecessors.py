"""Which terms can have the event directly before that of another term."""

from __future__ import annotations

from querylang.checker.query import automaton_builder
from querylang.checker.query.patterns import CheckedPattern
from querylang.plan.model import ACCEPT


class Predecessors:
    """For one pattern; the automaton is built when it is asked for the first time."""

    def __init__(self, pattern: CheckedPattern) -> None:
        self._pattern = pattern
        self._found: dict[int, frozenset[int]] | None = None

    def before(self, term: int) -> frozenset[int] | None:
        """The terms that can be bound directly before; None: the pattern has a mistake."""
        if self._pattern.tree is None or not self._pattern.has_all_inputs:
            return None
        if self._found is None:
            try:
                self._found = _found(self._pattern)
            except automaton_builder.TooLargeError:
                return None
        return self._found.get(term, frozenset())


def _found(pattern: CheckedPattern) -> dict[int, frozenset[int]]:
    assert pattern.tree is not None, "who asks has seen that it is there"
    states = automaton_builder.build(pattern.tree, pattern.plan_terms, (), (), has_leading=False).states
    found: dict[int, frozenset[int]] = {}
    for state in states:
        for transition in state.transitions:
            if transition.target == ACCEPT:
                continue
            older = frozenset(term for item in states[transition.target].transitions for term in item.binds)
            for term in transition.binds:
                found[term] = found.get(term, frozenset()) | older
    return found
