"""What a candidate fails for, and what holds for a match, in words and with the values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from querylang.plan.expression import Aggregate, Binary, EndOf, Expression, FieldOf, Fold, Literal, PrevOf, Unary, walk
from querylang.plan.model import Condition, Gap, Where, Within, Without, known
from querylang.plan.routing import ROUTE_SOURCE
from querylang.plan.text import INPUT_NAMES, Names, duration_text, expression_text
from runtime.exact_times import with_exact_times
from runtime.instants import NO_TIME
from runtime.interpreter import Context, EvaluationError, Event, PlanWorld, evaluate, event_text, holds, run_action
from runtime.matching.find_every import aggregates_of
from runtime.matching.interface import Bindings
from runtime.matching.reference import ReleasedEvent, positions_of
from runtime.results.for_users import RowOf, plain_value, row_number
from runtime.results.matched import Coordinates
from runtime.timestamps import format_time
from runtime.why.answers import Checked, EventAt, Reason, Side
from runtime.why.clauses import Clause, What
from runtime.why.history import KeyEvent
from runtime.why.searching import Near, Searching, superseded_in

SECOND = 1_000_000
_COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")


def short_time(moment: str) -> str:
    """A time as people write it: no fraction of zeros, and no day where tables have none."""
    return moment.removeprefix("1970-01-01T").replace(".000000Z", "" if moment.startswith("1970-01-01T") else "Z")


def moment_text(micros: int) -> str:
    """A time in a sentence."""
    return short_time(format_time(micros))


def event_at(event: ReleasedEvent, name: str, row_of: RowOf) -> EventAt:
    """An event of the key for users."""
    assert isinstance(event, KeyEvent), "the history has made it"
    source, partition, offset = event.place
    values = dict(event.value.values)
    return EventAt(
        name=name,
        event=event.value.type.name,
        source=source,
        partition=partition,
        offset=offset,
        row=row_number(row_of, *event.place),
        time=format_time(event.time),
        source_time=None if event.source_time == NO_TIME else format_time(event.source_time),
        arrival=format_time(event.arrival),
        fields={name: plain_value(value) for name, value in values.items()},
        text=event_text(event.value.type, values),
    )


def place_text(row: int | None, place: Coordinates) -> str:
    """Where an event is from, in a sentence."""
    if place[0].startswith(ROUTE_SOURCE):
        return f"routed by {place[0].removeprefix(ROUTE_SOURCE)}"
    source, partition, offset = place
    of = f"partition {partition} of {source}" if partition else source
    return f"offset {offset} of {of}" if row is None else f"row {row}"


class Reasons:
    """Words for one query and key."""

    def __init__(self, searching: Searching, row_of: RowOf) -> None:
        self._searching, self._row_of = searching, row_of
        self.query = searching.query
        self._names = Names.of(self.query)
        self._world = PlanWorld(searching.history.plan, self.query)

    def events_of(self, bound: Bindings) -> tuple[EventAt, ...]:
        """The members of a candidate in the order of their names; a run oldest first."""
        events = self._searching.events
        return tuple(
            event_at(events[position], self.query.terms[term].name, self._row_of)
            for term in sorted(bound)
            for position in reversed(bound[term])
        )

    def at(self, position: int, bound: Bindings | None = None) -> EventAt:
        """One event."""
        return event_at(self._searching.events[position], self._name(position, bound or {}), self._row_of)

    def _name(self, position: int, bound: Bindings) -> str:
        return next((self.query.terms[term].name for term in sorted(bound) if position in bound[term]), "")

    def _shown(self, position: int, bound: Bindings) -> str:
        """An event in a sentence: its name in the pattern, and its row."""
        event = self._searching.events[position]
        assert isinstance(event, KeyEvent), "the history has made it"
        row, name = row_number(self._row_of, *event.place), self._name(position, bound)
        place = place_text(row, event.place)
        return f"`{name}` ({place})" if name else f"{event.value.type.name} ({place})"

    # What a candidate fails for.

    def reason(self, near: Near, latest: int) -> Reason:
        """What a candidate fails for."""
        clause, text = near.clause, near.clause.text(self.query)
        match clause.what:
            case What.WINDOW:
                return self._window(near, latest, text)
            case What.RETAIN:
                return self._retain(near, latest, text)
            case What.UNIQUE:
                return self._unique(near, text)
            case What.USED:
                return self._used(near, latest, text)
            case What.ORDER:
                return self._order(near)
            case What.NEVER_CAME:
                return self._never(near, latest)
        return self._condition(near, latest, text)

    def _window(self, near: Near, latest: int, text: str) -> Reason:
        assert near.position is not None, "an event has left its window"
        item = self.query.inputs[near.clause.index]
        events, length = self._searching.events, known(item.within or 0)
        age = events[latest].time - events[near.position].time
        over = age - length
        too_long = "exactly that long is too long" if not over else f"{duration_text(over)} too long"
        says = (
            f"{self._shown(near.position, near.bound)} had left its window: it was {duration_text(age)} old when "
            f"{self._shown(latest, near.bound)} came, and the window is {duration_text(length)} ({too_long})"
        )
        return Reason(str(What.WINDOW), text, says, event=self.at(near.position, near.bound), by=over / SECOND)

    def _retain(self, near: Near, latest: int, text: str) -> Reason:
        assert near.position is not None, "an event has left its window"
        item, serve = self.query.inputs[near.clause.index], self._searching.history.events.serve(near.clause.index)
        newer = int(serve[near.position + 1 : latest + 1].sum())
        says = (
            f"{self._shown(near.position, near.bound)} had left its window: {newer} newer {item.name} came after it, "
            f"and the newest {known(item.retain or 0)} are kept"
        )
        by = float(newer + 1 - known(item.retain or 0))
        return Reason(str(What.RETAIN), text, says, event=self.at(near.position, near.bound), by=by)

    def _unique(self, near: Near, text: str) -> Reason:
        assert near.position is not None, "an event has left its window"
        by = superseded_in(self._searching.events[near.position], near.clause.index)
        says = f"{self._shown(near.position, near.bound)} was replaced by a newer one of the same values, {self._shown(by, {})}"
        return Reason(str(What.UNIQUE), text, says, event=self.at(by))

    def _used(self, near: Near, latest: int, text: str) -> Reason:
        assert near.position is not None, "an event was used"
        before = self._searching.skipped_by(latest)
        assert before is not None, "a match has used it"
        at, bound = before
        says = (
            f"{self._shown(near.position, near.bound)} was passed over by `{text}`, after the match of "
            f"{self._shown(at, bound)}"
        )
        return Reason(str(What.USED), text, says, event=self.at(at, bound))

    def _order(self, near: Near) -> Reason:
        assert near.position is not None, "an event is not the one directly before"
        later = [position for position in positions_of(near.bound) if position > near.position]
        between = near.position + 1
        says = (
            f"{self._shown(near.position, near.bound)} is not directly before {self._shown(min(later), near.bound)}: "
            f"{self._shown(between, near.bound)} is between them"
        )
        return Reason(str(What.ORDER), "=> or consecutive", says, event=self.at(between))

    def _never(self, near: Near, latest: int) -> Reason:
        assert near.state is not None, "the search ended in a state"
        transitions = self.query.automaton.states[near.state].transitions
        names = dict.fromkeys(self.query.terms[term].name for item in transitions for term in item.binds)
        inputs = sorted({number for item in transitions for number in item.inputs})
        types = " or ".join(self.query.inputs[item].name for item in inputs)
        named = " or ".join(f"`{name}`" for name in names)
        if near.bound:
            says = (
                f"no {types} that could be {named} came before {self._shown(min(positions_of(near.bound)), near.bound)}"
            )
        else:  # a `find every` asks for each of its events, whatever it serves
            says = f"a match ends with {types} that could be {named}, and {self._shown(latest, {})} could not"
        later = self._later(latest, [item.inputs for item in transitions])
        if later is None:
            return Reason(str(What.NEVER_CAME), "", f"{says}, for this key" if near.bound else says)
        behind = self._searching.events[later].time - self._searching.events[latest].time
        how = "at the same time, but behind it in order" if not behind else f"{duration_text(behind)} after it"
        says += f"; the first one came {how}, {self._shown(later, {})}: a match ends with its newest event"
        return Reason(str(What.ORDER), "", says, event=self.at(later), by=behind / SECOND)

    def _later(self, latest: int, wanted: Sequence[Sequence[int]]) -> int | None:
        """The first event behind one that serves all inputs of some transition."""
        life, events = self._searching.history.life(latest), self._searching.history.events
        for position in range(latest + 1, min(life.stop, latest + 1 + 4_000)):
            if any(set(inputs) <= set(events.inputs_at(position)) for inputs in wanted):
                return position
        return None

    def _condition(self, near: Near, latest: int, text: str) -> Reason:
        condition = self.query.conditions[near.clause.index]
        matcher, events = self._searching.matcher(), self._searching.events
        index, what = near.clause.index, str(near.clause.what)
        is_late, wait = index in self.query.decided_late, self._searching.wait
        due = events[latest].time + wait if is_late and wait is not None else None
        match condition:
            case Where():
                sides, says, by = self.where(index, near.bound)
                return Reason(what, text, f"`{text}` does not hold: {says}", sides, by=by)
            case Within(duration=duration):
                times = matcher.range_times(index, events, near.bound, due)
                span = max(times) - min(times)
                over = span - known(duration)
                too_long = "exactly that long is too long" if not over else f"{duration_text(over)} too long"
                says = f"`{text}` does not hold: from first to last it is {duration_text(span)} ({too_long})"
                return Reason(what, text, says, by=over / SECOND)
            case Gap(duration=duration):
                before, after = matcher.gap_times(index, events, near.bound) or (0, 0)
                short = before + known(duration) - after
                says = (
                    f"`{text}` was not over: what follows came {duration_text(after - before)} after it began, "
                    f"{duration_text(short)} too early"
                )
                return Reason(what, text, says, by=short / SECOND)
            case Without(name=name):
                search = self._searching.search(latest)
                key = self._searching.scope(latest) if due is None else self._searching.until(latest, due)
                blocking = matcher.blocking(index, events, near.bound, search, key, due)
                if not blocking:
                    return Reason(what, text, f"`{text}` does not hold")
                sides = self._without_sides(condition, near.bound, blocking[0])
                shown = f" ({_sides_text(sides)})" if sides else ""
                more = f", and {len(blocking) - 1} more" if len(blocking) > 1 else ""
                says = f"`{text}` does not hold: `{name}` is there, {self._shown(blocking[0], {})}{shown}{more}"
                return Reason(what, text, says, sides, event=self.at(blocking[0]))

    # What holds for a match.

    def checked(self, latest: int, bound: Bindings) -> tuple[Checked, ...]:
        """All conditions of a match."""
        found = []
        for index, condition in enumerate(self.query.conditions):
            text = Clause.of_condition(self.query, index).text(self.query)
            found.append(self._checked(index, condition, text, latest, bound))
        return tuple(found)

    def _checked(self, index: int, condition: Condition, text: str, latest: int, bound: Bindings) -> Checked:
        matcher, events = self._searching.matcher(), self._searching.events
        wait = self._searching.wait
        due = events[latest].time + wait if index in self.query.decided_late and wait is not None else None
        match condition:
            case Where():
                sides, says, _ = self.where(index, bound)
                return Checked(text, sides, says)
            case Within(duration=duration):
                if not matcher.is_asked(index, bound):
                    return Checked(text, (), _NOT_ASKED)
                times = matcher.range_times(index, events, bound, due)
                span = max(times) - min(times)
                return Checked(text, (), f"{duration_text(span)}, shorter than {duration_text(known(duration))}")
            case Gap():
                pair = matcher.gap_times(index, events, bound)
                after = _NOT_ASKED if pair is None else f"what follows came {duration_text(pair[1] - pair[0])} later"
                return Checked(text, (), after)
            case Without(name=name):
                return Checked(text, (), f"no `{name}` in its range" if matcher.is_asked(index, bound) else _NOT_ASKED)

    def where(self, index: int, bound: Bindings) -> tuple[tuple[Side, ...], str, float | None]:
        """The parts of a `where` with their values, both in words, and how far they are apart."""
        condition = self.query.conditions[index]
        assert isinstance(condition, Where), "who asks has seen that it is"
        matcher, events = self._searching.matcher(), self._searching.events
        question = matcher.questions[index]
        if question is None:
            plain = matcher.context(events, bound)
            sides = _sides(condition.condition, plain, self._names)
            return sides, _sides_text(sides), _distance(condition.condition, plain)
        answers = list(matcher.asking(events, bound).answers(question))
        if not answers:
            return (), _NOT_ASKED, None
        failing = next((item for item in answers if item[2]), None)
        iteration, context, _ = failing or answers[0]
        sides = _sides(question.expression, context, self._names)
        where = ", ".join(self._shown(position, bound) for position in iteration.values())
        more = "" if failing is not None or len(answers) < 2 else f", and so for {len(answers) - 1} more"
        says = f"{_sides_text(sides)}{f' at {where}' if where else ''}{more}"
        return sides, says, _distance(question.expression, context)

    def _without_sides(self, condition: Without, bound: Bindings, position: int) -> tuple[Side, ...]:
        if condition.condition is None:
            return ()
        events, extra = self._searching.events, len(self.query.terms)
        names = self._names.with_term(condition.name)
        question = self._searching.matcher().questions[self.query.conditions.index(condition)]
        if question is not None:
            return ()
        context = self._searching.matcher().context(events, {**bound, extra: (position,)})
        return _sides(condition.condition, context, names)

    def filter_sides(self, item: int, event: Event) -> tuple[Side, ...]:
        """The parts of an input's filter with their values."""
        condition = self.query.inputs[item].filter
        assert condition is not None, "it has refused an event"
        return filter_sides(condition, event, self._world)

    def having(self, latest: int) -> Reason:
        """The `having` of a `find every` that does not hold."""
        every = self.query.every
        assert every is not None, "only these have it"
        events, matcher = self._searching.events, self._searching.matcher()
        ((_, values),) = matcher.aggregated(events, self._searching.scope(latest), latest)
        known_values: dict[Aggregate, Any] = {}
        for node, value in zip(aggregates_of(self.query), values, strict=True):
            is_event = every.term_of(node) is not None and value is not None
            known_values[node] = events[value].value if is_event else value  # type: ignore[index]
        context = Context(
            keys=matcher.keys_of(events[latest]), aggregates=known_values, world=self._world, invoke=run_action
        )
        for condition in every.having:
            asked = with_exact_times(every.expanded(condition))
            if not holds(asked, context):
                text = f"having {expression_text(condition, self._names)}"
                sides = _sides(asked, context, self._names)
                says = f"`{text}` does not hold: {_sides_text(sides)}"
                return Reason(str(What.HAVING), text, says, sides, by=_distance(asked, context))
        return Reason(str(What.HAVING), "", "a `having` does not hold")


_NOT_ASKED = "not asked: what it is about is not there"


def filter_sides(condition: Expression, event: Event, world: PlanWorld) -> tuple[Side, ...]:
    """The parts of an input's filter with their values."""
    return _sides(condition, Context([event], world=world, invoke=run_action), INPUT_NAMES)


def sides_text(sides: Sequence[Side]) -> str:
    """The parts in words."""
    return _sides_text(sides)


def _sides(expression: Expression, context: Context, names: Names) -> tuple[Side, ...]:
    """The values that decide an expression: of sides of its comparisons, then of fields."""
    sides = [node for node in _parts(expression) if not isinstance(node, Literal)]
    plain = [node for node in sides if not any(isinstance(inner, Fold | EndOf | Aggregate) for inner in walk(node))]
    fields = [inner for node in plain for inner in walk(node) if isinstance(inner, FieldOf | PrevOf)]
    found = {expression_text(node, names): _value(node, context) for node in (*sides, *fields)}
    return tuple(Side(text, value) for text, value in found.items())


def _value(node: Expression, context: Context) -> Any:
    try:
        return plain_value(evaluate(node, context))
    except EvaluationError as error:
        return f"{_FAILS}{error}"


_FAILS = "fails: "


def _distance(expression: Expression, context: Context) -> float | None:
    """How far the two sides of a comparison are apart; None = it is not one of two numbers."""
    if not isinstance(expression, Binary) or expression.operator not in _COMPARISONS:
        return None
    numbers = [_value(side, context) for side in (expression.left, expression.right)]
    if not all(isinstance(item, int | float) and not isinstance(item, bool) for item in numbers):
        return None
    return float(abs(numbers[0] - numbers[1]))


def _parts(expression: Expression) -> Iterator[Expression]:
    match expression:
        case Binary(operator="and" | "or" | "xor", left=left, right=right):
            yield from _parts(left)
            yield from _parts(right)
        case Unary(operator="not" | "is null", operand=operand):
            yield from _parts(operand)
        case Binary(operator=operator, left=left, right=right) if operator in _COMPARISONS:
            yield left
            yield right
        case _:
            yield expression


def _sides_text(sides: Sequence[Side]) -> str:
    return ", ".join(f"{side.text} {value_text(side.value)}" for side in sides)


def value_text(value: Any) -> str:
    """What a sentence says of the value of a side."""
    match value:
        case None:
            return "is null"
        case bool():
            return "is true" if value else "is false"
        case str():
            return value if value.startswith(_FAILS) else f'is "{value}"'
    return f"is {value}"


def nearness(reason: Reason, lengths: Mapping[str, float]) -> float:
    """How near a candidate is: by how much it fails, as a share of what is allowed; 1 = no number.

    lengths: by clause what is allowed, in seconds; other clauses compare numbers
    """
    if reason.by is None:
        return 1.0
    allowed = lengths.get(reason.clause)
    if allowed is None:
        numbers = [abs(side.value) for side in reason.sides if isinstance(side.value, int | float)]
        allowed = max(numbers, default=1.0)
    return reason.by / allowed if allowed else reason.by
