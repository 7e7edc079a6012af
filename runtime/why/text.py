"""All answers to a question, as text for people, and without the values of hidden fields."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from textwrap import fill
from typing import Any

from querylang.dataclass import asdict, dataclass, field, replace
from querylang.plan.expression import FieldOf, walk
from querylang.plan.model import QueryPlan
from querylang.printable import masked, one_line
from runtime.why.answers import Awaited, Candidate, Change, Checked, EventAt, Explanation, Reason, Side, Status, plain
from runtime.why.clauses import What
from runtime.why.reasons import place_text, short_time, value_text

# All answers to a question, and as text for people.


@dataclass(frozen=True, slots=True)
class Why:
    """All answers to a question, in the order of the queries.

    question: what was asked, in words
    remarks: what was not looked at
    """

    question: str
    answers: tuple[Explanation, ...]
    remarks: tuple[str, ...] = field(default=())

    def __iter__(self) -> Iterator[Explanation]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def __str__(self) -> str:
        """As the command prints it."""
        return why_text(self)

    def _repr_pretty_(self, printer: Any, _is_recursive: bool, /) -> None:
        """What a notebook shows; the signature is IPython's."""
        printer.text(str(self))

    def to_plain(self) -> dict[str, Any]:
        """As `--json` prints it; without secrets, as all that is printed."""
        return dict(plain(asdict(self)))


_WORDS = {
    Status.MATCHED: "matched",
    Status.NOT: "no match",
    Status.NOT_YET: "not yet",
    Status.REFUSED: "refused",
}


def why_text(why: Why) -> str:
    """All answers, one after the other."""
    parts = ["\n".join(_explanation(item)) for item in why.answers]
    return "\n\n".join([*parts, *(f"({masked(one_line(remark))})" for remark in why.remarks)])


def _explanation(item: Explanation) -> Iterator[str]:
    key = ", ".join(f"{name} {value}" for name, value in item.key.items())
    yield _line(0, f"{item.title}{', ' if key else ''}{key}: {_WORDS[item.status]}")
    if item.event is not None:
        yield _line(2, _event(item.event, with_name=False))
    if not any(item.says == candidate.reason.says for candidate in item.candidates[:1]):
        yield _line(2, item.says)
    if item.match_id is not None:
        yield _line(2, f"match {item.match_id}")
    for event in item.events:
        yield _line(4, _event(event))
    for checked in item.conditions:
        yield _line(4, f"{checked.clause}: {checked.says}")
    if item.others:
        yield _line(2, "other candidates:")
    for other in item.others:
        yield _line(4, f"{', '.join(_event(event) for event in other.events)}: {other.says}")
    if item.awaited is not None:
        yield from _awaited(item.awaited)
    if item.change is not None:
        yield from _change(item.change, 2)
    for number, candidate in enumerate(item.candidates, 1):
        yield from _candidate(number, candidate)
    for cause in item.causes:
        yield from (f"    {line}" for line in _explanation(cause))


def _event(event: EventAt, *, with_name: bool = True) -> str:
    place = place_text(event.row, event.place)
    moment = event.time or event.source_time or event.arrival or "no time"
    name = f"{event.name} = " if event.name and with_name else ""
    of = "" if place.startswith("routed") else "of "
    return f"{name}{event.text or event.event} {of}{place}, {short_time(moment)}"


def _candidate(number: int, candidate: Candidate) -> Iterator[str]:
    yield _line(2, f"{number}. {_reason(candidate.reason)}")
    for event in candidate.events:
        yield _line(7, _event(event))
    yield _line(5, "nothing else fails" if candidate.is_whole else "the search went no further here")
    if candidate.change is not None:
        yield from _change(candidate.change, 5)


def _reason(reason: Reason) -> str:
    return f"{reason.what}: {reason.says}"


def _change(change: Change, indent: int) -> Iterator[str]:
    yield _line(indent, f"the least change, which was tried: {change.before} -> {change.after}")
    if change.query:
        yield f"{' ' * (indent + 4)}the line to paste: {masked(one_line(change.text))}"  # whole: text may be in it
    if change.costs:
        yield _line(indent, f"what it costs: {change.costs}")


def _awaited(item: Awaited) -> Iterator[str]:
    reach = "" if item.due is None else f": the watermark has to reach {short_time(item.due)}"
    yield _line(2, f"it waits for {item.what}{reach}")
    yield _line(2, f"the watermark is {short_time(item.watermark or 'not known yet')}; it is held by {item.held_by}")
    latest = (
        "not before another record comes"
        if item.latest is None
        else f"when the clock reaches {short_time(item.latest)}"
    )
    yield _line(2, f"at the latest it comes {latest}")
    yield _line(2, f"what lets time advance: {item.setting}")


def _line(indent: int, text: str) -> str:
    """A line, or several where it is long."""
    shown, before = masked(one_line(text)), " " * indent
    if len(before) + len(shown) <= WIDEST:
        return before + shown
    return fill(
        shown,
        WIDEST,
        initial_indent=before,
        subsequent_indent=f"{before}   ",
        break_long_words=False,
        break_on_hyphens=False,
    )


WIDEST = 110
"""Columns of a line, unless a word is longer."""


# Answers without the values of some fields.
#
# Events show values, keys do, and so do parts of conditions, proposed constants, and the text of a
# record that cannot be read. What is left names places, times, lengths and clauses.

HIDDEN = "(hidden)"
"""In place of a value."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """Fields that are not shown: `FIELD` of all event types, or `TYPE.FIELD`."""

    names: Collection[str] = ()

    def __bool__(self) -> bool:
        return bool(self.names)

    def has(self, event: str, field: str) -> bool:
        """Whether a field of an event type is hidden."""
        return field in self.names or f"{event}.{field}" in self.names

    def fields(self, event: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The fields of an event."""
        return {name: HIDDEN if self.has(event, name) else value for name, value in fields.items()}

    def key(self, query: QueryPlan, key: Mapping[str, Any]) -> dict[str, Any]:
        """A key of a query."""
        hidden = set(self.keys(query))
        return {name: HIDDEN if name in hidden else value for name, value in key.items()}

    def keys(self, query: QueryPlan) -> Iterator[str]:
        """The names of those keys of a query that are made of hidden fields."""
        for place, name in enumerate(query.key_names):
            sources = [(item.event, item.keys[place]) for item in query.inputs if place < len(item.keys)]
            if any(self._mentions(event, key) for event, key in sources):
                yield name

    def _mentions(self, event: str, key: Any) -> bool:
        return any(isinstance(node, FieldOf) and self.has(event, node.field) for node in walk(key))

    def why(self, queries: Sequence[QueryPlan], why: Why) -> Why:
        """An answer; `queries`: those that it is about, for their keys."""
        if not self:
            return why
        keys = {query.name: tuple(self.keys(query)) for query in queries}
        return replace(why, answers=tuple(_Hiding(self, keys).explanation(item) for item in why.answers))


class _Hiding:
    """keys: by name of a query, the keys that are hidden."""

    def __init__(self, hidden: Hidden, keys: Mapping[str, Sequence[str]]) -> None:
        self._hidden, self._keys = hidden, keys
        fields = (name.rpartition(".")[2] for name in hidden.names)
        words = sorted({*fields, *(name for own in keys.values() for name in own)})
        self._word = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)")

    def explanation(self, item: Explanation) -> Explanation:
        key = {name: HIDDEN if name in self._keys.get(item.query, ()) else value for name, value in item.key.items()}
        says = item.says if item.reason is None else self._says(item.says, item.reason)
        return replace(
            item,
            key=key,
            says=_without_text(says, item.event),
            event=self._event(item.event),
            events=tuple(map(self._known, item.events)),
            conditions=tuple(map(self._checked, item.conditions)),
            others=tuple(replace(other, events=tuple(map(self._known, other.events))) for other in item.others),
            candidates=tuple(map(self._candidate, item.candidates)),
            reason=self._reason(item.reason, item.event),
            change=self._change(item.change),
            causes=tuple(map(self.explanation, item.causes)),
        )

    def _event(self, event: EventAt | None) -> EventAt | None:
        return None if event is None else self._known(event)

    def _known(self, event: EventAt) -> EventAt:
        if not event.fields:
            return replace(event, text=HIDDEN if event.text else "")
        fields = self._hidden.fields(event.event, event.fields)
        shown = ", ".join(f"{name} {value}" for name, value in fields.items())
        return replace(event, fields=fields, text=f"{event.event}({shown})")

    def _is_hidden(self, text: str) -> bool:
        """Whether a part of a query shows a hidden field, or calls what may read one."""
        return "(" in text or self._word.search(text) is not None

    def _sides(self, sides: Sequence[Side]) -> tuple[Side, ...]:
        return tuple(Side(side.text, HIDDEN) if self._is_hidden(side.text) else side for side in sides)

    def _says(self, says: str, of: Reason | Checked) -> str:
        for side in of.sides:
            if self._is_hidden(side.text):
                says = says.replace(f"{side.text} {value_text(side.value)}", f"{side.text} is hidden")
                says = says.replace(repr(side.value), "hidden") if isinstance(side.value, str) else says
        return says

    def _checked(self, checked: Checked) -> Checked:
        return replace(checked, sides=self._sides(checked.sides), says=self._says(checked.says, checked))

    def _reason(self, reason: Reason | None, event: EventAt | None = None) -> Reason | None:
        if reason is None:
            return None
        says = _without_text(self._says(reason.says, reason), event)
        by = None if any(self._is_hidden(side.text) for side in reason.sides) else reason.by
        return replace(reason, says=says, sides=self._sides(reason.sides), event=self._event(reason.event), by=by)

    def _candidate(self, candidate: Candidate) -> Candidate:
        reason = self._reason(candidate.reason)
        assert reason is not None, "a candidate fails for something"
        events = tuple(map(self._known, candidate.events))
        return replace(candidate, events=events, reason=reason, change=self._change(candidate.change))

    def _change(self, change: Change | None) -> Change | None:
        """A constant that would let hidden values match shows them."""
        shows = change is not None and change.what == What.WHERE and self._is_hidden(change.before)
        return None if shows else change


def _without_text(says: str, event: EventAt | None) -> str:
    """Without the text of a record that cannot be read: nobody knows where in it a field is."""
    return says if event is None or event.fields or not event.text else says.replace(event.text, HIDDEN)
