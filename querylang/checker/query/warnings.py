"""Warnings: what a query does not use, keys that it keeps, dear searches, and no match at all."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cache
from typing import Any

from querylang.checker.checked import Diagnostics
from querylang.checker.expressions.inference import conjuncts
from querylang.dataclass import dataclass, fields, is_dataclass
from querylang.errors import Mistake
from querylang.plan.constants import NoValueError, is_constant, value_of
from querylang.plan.expression import Binary, EndOf, Expression, FieldOf, Fold, KeyOf, PrevOf, Type, walk
from querylang.plan.model import ACCEPT, Automaton, Between, Duration, Gap, QueryPlan, Where, Within, Without
from querylang.plan.remembering import MOST_BOUND, search_cost
from querylang.plan.text import duration_text
from querylang.source import Span
from querylang.syntax import ast


def warn_of_unused(query: ast.Query, plan: QueryPlan, diagnostics: Diagnostics) -> None:
    """Warn of unused inputs and parameters of a query without mistakes."""
    _warn_of_unused_inputs(query, plan, diagnostics)
    _warn_of_unused_parameters(query, diagnostics)
    _warn_of_kept_keys(query, plan, diagnostics)


def _warn_of_kept_keys(query: ast.Query, plan: QueryPlan, diagnostics: Diagnostics) -> None:
    """The first input whose events stay for every key, however old they are."""
    states = plan.automaton.states if plan.every is not None else plan.automaton.states[1:]
    kept = {number for state in states for transition in state.transitions for number in transition.inputs}
    kept |= {item.input for item in plan.conditions if isinstance(item, Without)}
    nodes = query.inputs.items if isinstance(query.inputs, ast.Inputs) else ()
    for index, node in enumerate(nodes):
        is_kept = index in kept and plan.inputs[index].within is None
        if plan.keys and is_kept and isinstance(node, ast.InputDefinition):
            diagnostics.warn(Mistake.KEPT_KEYS, node.event.span, event=(node.role or node.event).text)
            return


def _warn_of_unused_inputs(query: ast.Query, plan: QueryPlan, diagnostics: Diagnostics) -> None:
    """Inputs that matter nowhere; those of a pattern with `=>` count between its events."""
    if any(item.follows for state in plan.automaton.states for item in state.transitions):
        return
    used = {term.input for term in plan.terms}
    used |= {item.input for item in plan.conditions if isinstance(item, Without)}
    nodes = query.inputs.items if isinstance(query.inputs, ast.Inputs) else ()
    for index, node in enumerate(nodes):
        if index not in used and isinstance(node, ast.InputDefinition):
            diagnostics.warn(Mistake.UNUSED_INPUT, node.event.span, event=(node.role or node.event).text)


def _warn_of_unused_parameters(query: ast.Query, diagnostics: Diagnostics) -> None:
    if not isinstance(query.parameters, ast.Parameters):
        return
    used = set(_names(query.inputs, query.find, query.actions))
    for node in query.parameters.items:
        if isinstance(node, ast.ParameterDefinition) and node.name.text not in used:
            diagnostics.warn(Mistake.UNUSED_PARAMETER, node.name.span, name=node.name.text)


def _names(*parts: Any) -> Iterator[str]:
    """The names that are used as values anywhere in these parts of a tree."""
    waiting: list[Any] = list(parts)
    while waiting:
        part = waiting.pop()
        kind: Any = type(part)
        if kind is tuple:
            waiting += part
        elif kind is ast.NameUse:
            yield part.name.text
        else:
            waiting += [getattr(part, name) for name in _parts_of(kind)]


@cache
def _parts_of(kind: Hashable) -> tuple[str, ...]:
    """The fields of a node class that may hold other nodes."""
    if not is_dataclass(kind) or kind in (ast.Name, ast.Constant, Span):
        return ()
    return tuple(item.name for item in fields(kind) if item.name != "span")


# Queries that certainly never match: too few events kept, a false condition. Only what holds for
# all data is reported. A condition that mentions a name of an `or` is left out, because it is
# ignored where that name is unset.

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


DEAR_FROM = 3
"""The power from which on the cost of a search is warned of."""


def warn_of_dear_repeats(repeats: Sequence[ast.PatternRepeat], plan: QueryPlan, diagnostics: Diagnostics) -> None:
    """Warn of the first open repeat if searches may be ended, or be far dearer than others."""
    is_limited = any(isinstance(item, Within) and item.between is None for item in plan.conditions)
    is_short = is_limited or all(item.retain is not None for item in plan.inputs)
    open_ones = [item for item in repeats if item.most is None and not item.is_consecutive]
    if is_short or plan.finds_all or not open_ones:
        return
    cost = search_cost(plan)
    if cost.is_ended:
        diagnostics.warn(Mistake.MANY_CHOICES, open_ones[0].span, steps=f"{MOST_BOUND:,}")
    elif cost.power >= DEAR_FROM:
        diagnostics.warn(Mistake.DEAR_REPEAT, open_ones[0].span, power=cost.power_text)


def warn_of_no_match(find: ast.Find, plan: QueryPlan, diagnostics: Diagnostics) -> None:
    """Warn where a query without mistakes can never match."""
    _warn_of_few_events(find, plan, diagnostics)
    _warn_of_long_waits(find, plan, diagnostics)
    _warn_of_false_conditions(find, plan, diagnostics)


def _warn_of_few_events(find: ast.Find, plan: QueryPlan, diagnostics: Diagnostics) -> None:
    """The pattern needs more events of an input at once than are kept."""
    for index, item in enumerate(plan.inputs):
        needed = _fewest(plan.automaton, index)
        facts: dict[str, str | int] = {"needed": needed, "event": item.name}
        if item.unique and set(item.unique) <= set(item.keys) and needed > 1:
            diagnostics.warn(Mistake.NEVER_UNIQUE, find.pattern.span, **facts)
        elif isinstance(item.retain, int) and needed > item.retain:
            diagnostics.warn(Mistake.NEVER_KEPT, find.pattern.span, **facts, kept=item.retain)


def _fewest(automaton: Automaton, item: int) -> int:
    """The least number of events of an input that a match has."""
    fewest = {0: 0}
    waiting = [0]
    while waiting:
        state = waiting.pop()
        for transition in automaton.states[state].transitions if state != ACCEPT else ():
            count = fewest[state] + (item in transition.inputs)
            if count < fewest.get(transition.target, count + 1):
                fewest[transition.target] = count
                waiting.append(transition.target)
    ends = [state for state in fewest if state == ACCEPT or automaton.states[state].accepts is not None]
    return min((fewest[state] for state in ends), default=0)


def _warn_of_long_waits(find: ast.Find, plan: QueryPlan, diagnostics: Diagnostics) -> None:
    """A `within` whose range has a `wait` in it that takes as long, or longer."""
    nodes = [clause for clause in find.clauses if isinstance(clause, ast.Within)]
    conditions = [item for item in plan.conditions if isinstance(item, Within)]
    if len(nodes) != len(conditions):  # the lengths of some are not known
        return
    for node, item in zip(nodes, conditions, strict=True):
        for wait, is_inside in (
            (plan.leading, item.between is not None and item.between.leading),
            (plan.trailing, item.between is not None and item.between.trailing),
        ):
            if wait is None or not is_inside:
                continue
            _warn_of_long_wait(wait.duration, item, node, diagnostics)
        for number, gap in enumerate(plan.gaps):
            if _is_across(gap, number, item.between, plan):
                _warn_of_long_wait(gap.duration, item, node, diagnostics)


def _warn_of_long_wait(wait: Duration, item: Within, node: ast.Within, diagnostics: Diagnostics) -> None:
    if isinstance(wait, int) and isinstance(item.duration, int) and wait >= item.duration:
        diagnostics.warn(Mistake.NEVER_WITHIN, node.span, wait=duration_text(wait))


def _is_across(gap: Gap, number: int, between: Between | None, plan: QueryPlan) -> bool:
    """Whether a range always has what is before a wait in it, and its point or what is after it."""
    if any(plan.terms[term].is_optional for term in (*gap.before, *gap.after)):
        return False
    if between is None:
        return True
    return bool(set(gap.before) & set(between.terms)) and (
        number in between.middle or bool(set(gap.after) & set(between.terms))
    )


def _warn_of_false_conditions(find: ast.Find, plan: QueryPlan, diagnostics: Diagnostics) -> None:
    nodes = [part for clause in find.clauses if isinstance(clause, ast.Where) for part in conjuncts(clause.condition)]
    conditions = [item for item in plan.conditions if isinstance(item, Where)]
    if len(nodes) != len(conditions):  # the types of some are not known
        return
    limits: dict[tuple[int, str], _Limits] = {}
    for term, named in enumerate(plan.terms):
        for part in _parts(plan.inputs[named.input].filter):
            _add(limits, part, term)
    for node, item in zip(nodes, conditions, strict=True):
        terms = [plan.terms[term] for term in item.mentions]
        is_addition = any(isinstance(part, PrevOf | EndOf | Fold) for part in walk(item.condition))
        if is_addition or any(term.is_optional or term.group is not None for term in terms):
            continue
        mistake = _mistake(item.condition, plan, limits)
        if mistake is not None:
            diagnostics.warn(mistake, _span(node))


def compares_fields_often(plan: QueryPlan) -> bool:
    """Whether several constants are compared with one field of an event of the pattern.

    Only then can they leave no value, and `warn_of_no_match` depends on what they are.
    """
    wholes: list[tuple[int | None, Expression | None]] = []
    wholes += [(term, plan.inputs[named.input].filter) for term, named in enumerate(plan.terms)]
    wholes += [(None, item.condition) for item in plan.conditions if isinstance(item, Where)]
    seen = set[tuple[int, str]]()
    for term, whole in wholes:
        for part in _parts(whole):
            if not isinstance(part, Binary) or part.operator not in _MIRRORED:
                continue
            for one, other in ((part.left, part.right), (part.right, part.left)):
                if isinstance(one, FieldOf) and is_constant(other):
                    place = (one.term if term is None else term), one.field
                    if place in seen:
                        return True
                    seen.add(place)
    return False


def _span(node: Any) -> Span:
    span: Span = node.span
    return span


def _mistake(part: Expression, plan: QueryPlan, limits: dict[tuple[int, str], _Limits]) -> Mistake | None:
    """Why a condition never holds, beside those before it; None = it may."""
    if is_constant(part):
        try:
            return None if value_of(part) else Mistake.NEVER_TRUE
        except NoValueError:
            return Mistake.NEVER_TRUE
    if _compares_keys(part, plan):
        return Mistake.NEVER_OTHER_KEY
    return None if _add(limits, part) else Mistake.NEVER_TOGETHER


def _compares_keys(part: Expression, plan: QueryPlan) -> bool:
    """Whether it says that two events of a match have different keys."""
    if not isinstance(part, Binary) or part.operator not in ("!=", "<", ">"):
        return False
    keys = [_key(side, plan) for side in (part.left, part.right)]
    return keys[0] is not None and keys[0] == keys[1] and part.left.type is not Type.FLOAT  # NaN is not itself


def _key(side: Expression, plan: QueryPlan) -> int | None:
    """The key that an expression is; None = it is something else."""
    match side:
        case KeyOf(index=index):
            return index
        case FieldOf(type=type_, term=term, field=name):
            keys = plan.inputs[plan.terms[term].input].keys
            own = FieldOf(type_, 0, name)
            return keys.index(own) if own in keys else None
    return None


@dataclass(slots=True)
class _Limits:
    """What conditions leave of the values of a field: at least `low`, at most `high`.

    Each with whether the value itself is left out; None: there is no such limit.
    """

    low: tuple[Any, bool] | None = None
    high: tuple[Any, bool] | None = None

    def add(self, operator: str, value: Any) -> bool:
        """Add a comparison; False = no value is left."""
        if operator in (">", ">=", "="):
            new = (value, operator == ">")
            self.low = new if self.low is None or new > self.low else self.low
        if operator in ("<", "<=", "="):
            new = (value, operator == "<")
            is_tighter = self.high is None or (value, not new[1]) < (self.high[0], not self.high[1])
            self.high = new if is_tighter else self.high
        if self.low is None or self.high is None:
            return True
        (low, is_above), (high, is_below) = self.low, self.high
        return not (low > high or (low == high and (is_above or is_below)))


def _add(limits: dict[tuple[int, str], _Limits], part: Expression, term: int | None = None) -> bool:
    """Note what a comparison of a field with a constant says; False = nothing is left.

    term: of the event, where the condition is a filter
    """
    if not isinstance(part, Binary) or part.operator not in _MIRRORED:
        return True
    for one, other, sign in (
        (part.left, part.right, part.operator),
        (part.right, part.left, _MIRRORED[part.operator]),
    ):
        if isinstance(one, FieldOf) and is_constant(other) and one.type == other.type:
            try:
                value: Any = value_of(other)
            except NoValueError:
                return True
            of_field = limits.setdefault((one.term if term is None else term, one.field), _Limits())
            if one.type == Type.INTEGER and sign in ("<", ">"):
                return of_field.add(f"{sign}=", value + (1 if sign == ">" else -1))
            return of_field.add(sign, value)
    return True


def _parts(condition: Expression | None) -> Iterator[Expression]:
    """The parts between the `and`s of a filter."""
    match condition:
        case None:
            return
        case Binary(operator="and", left=left, right=right):
            yield from _parts(left)
            yield from _parts(right)
        case _:
            yield condition
