"""The clauses of a query that can keep a candidate from being a match; and the query without one.

A clause that is lifted never keeps a candidate from being a match; all others hold as before. So
what a search finds with a clause lifted, and not without, fails for this clause alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from querylang.dataclass import dataclass, replace
from querylang.plan.describe import condition_text
from querylang.plan.model import Condition, Gap, Input, QueryPlan, Where, Within, Without
from querylang.plan.text import INPUT_NAMES, Names, count_text, duration_text, expression_text


class What(StrEnum):
    """What a candidate, a match or a record fails for."""

    FILTER = "filter"
    KEY = "key"
    LATE = "late"
    WINDOW = "window"
    RETAIN = "retain"
    UNIQUE = "with unique"
    USED = "used"
    ORDER = "order"
    WHERE = "where"
    WITHIN = "within"
    WITHOUT = "without"
    WAIT = "wait"
    HAVING = "having"
    NEVER_CAME = "never came"
    SUPPRESSED = "suppressed"
    NOT_NEW = "not new"
    LIMIT = "limit"


_LONG = 1_000_000_000_000_000
"""µs: longer than any table."""

_OF_CONDITIONS: dict[type[Condition], What] = {
    Where: What.WHERE,
    Within: What.WITHIN,
    Without: What.WITHOUT,
    Gap: What.WAIT,
}


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause. `index`: of its condition, or of its input; 0 for those of the whole query."""

    what: What
    index: int = 0

    @staticmethod
    def of_condition(query: QueryPlan, index: int) -> Clause:
        """The clause that a condition is."""
        return Clause(_OF_CONDITIONS[type(query.conditions[index])], index)

    @property
    def is_condition(self) -> bool:
        """Whether `index` is that of a condition."""
        return self.what in _OF_CONDITIONS.values()

    def text(self, query: QueryPlan) -> str:
        """As it is written; the values of parameters are filled in."""
        if self.is_condition:
            return condition_text(query.conditions[self.index], query, Names.of(query))
        item = query.inputs[self.index] if query.inputs else None
        assert item is not None, "a query has inputs"
        match self.what:
            case What.WINDOW if item.within is not None:
                return f"{_input_text(item)} within {duration_text(item.within)}"
            case What.RETAIN if item.retain is not None:
                return f"{_input_text(item)} retain {count_text(item.retain)}"
            case What.UNIQUE:
                values = ", ".join(expression_text(part, INPUT_NAMES) for part in item.unique)
                return f"{_input_text(item)} with unique {values}"
            case What.FILTER if item.filter is not None:
                return _input_text(item, expression_text(item.filter, INPUT_NAMES))
            case What.LATE if item.wait is not None:
                return f"{_input_text(item)} wait {duration_text(item.wait)}"
            case What.USED if query.skip is not None:
                skip = query.skip
                place = "past last event" if skip.term is None else f"to {skip.to} {query.terms[skip.term].name}"
                return f"after match skip {place}"
            case What.KEY:
                return f"key {', '.join(query.key_names)}"
        return str(self.what)


def _input_text(item: Input, filter_: str = "") -> str:
    """An input with its role, as far as it is written before its key."""
    return f"{item.event}({filter_})" + ("" if item.role is None else f" as {item.role}")


def clauses_of(query: QueryPlan) -> Iterator[Clause]:
    """Those that can be lifted, in the order in which a search asks them."""
    for index, item in enumerate(query.inputs):
        if item.within is not None:
            yield Clause(What.WINDOW, index)
        if item.retain is not None:
            yield Clause(What.RETAIN, index)
        if item.unique:
            yield Clause(What.UNIQUE, index)
    if query.skip is not None:
        yield Clause(What.USED)
    if any(item.follows for state in query.automaton.states for item in state.transitions):
        yield Clause(What.ORDER)
    for index in range(len(query.conditions)):
        yield Clause.of_condition(query, index)


def lifted(query: QueryPlan, clause: Clause | None) -> QueryPlan:
    """The query without a clause; `with unique` and what is used are lifted by who searches."""
    if clause is None:
        return query
    index = clause.index
    match clause.what:
        case What.WINDOW:
            return _with_input(query, index, within=None)
        case What.RETAIN:
            return _with_input(query, index, retain=None)
        case What.ORDER:
            return _with_transitions(query, follows=False)
    if clause.is_condition:
        return _without_condition(query, index)
    return query


def _with_input(query: QueryPlan, index: int, **changes: None) -> QueryPlan:
    inputs = list(query.inputs)
    inputs[index] = replace(inputs[index], **changes)  # type: ignore[arg-type]  # `within` or `retain`
    return replace(query, inputs=tuple(inputs))


def _with_transitions(query: QueryPlan, *, follows: bool) -> QueryPlan:
    states = tuple(
        replace(state, transitions=tuple(replace(item, follows=follows) for item in state.transitions))
        for state in query.automaton.states
    )
    return replace(query, automaton=replace(query.automaton, states=states))


def _without_condition(query: QueryPlan, index: int) -> QueryPlan:
    """Conditions keep their indexes: nothing asks this one any more.

    Engines evict by a `within` of the whole pattern, asked or not: so it becomes very long.
    """
    conditions = list(query.conditions)
    own = conditions[index]
    if isinstance(own, Within):
        conditions[index] = replace(own, duration=_LONG)

    def left(checks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(check for check in checks if check != index)

    states = tuple(
        replace(
            state,
            transitions=tuple(replace(item, checks=left(item.checks)) for item in state.transitions),
            accepts=None if state.accepts is None else left(state.accepts),
        )
        for state in query.automaton.states
    )
    automaton = replace(query.automaton, states=states)
    late = left(query.decided_late)
    return replace(query, automaton=automaton, conditions=tuple(conditions), decided_late=late)
