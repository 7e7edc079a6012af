"""Answers without the values of some fields.

Events show values, keys do, and so do parts of conditions, proposed constants, and the text of a
record that cannot be read. What is left names places, times, lengths and clauses.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from querylang.dataclass import dataclass, replace
from querylang.plan.expression import FieldOf, walk
from querylang.plan.model import QueryPlan
from runtime.why.answers import Candidate, Change, Checked, EventAt, Explanation, Reason, Side
from runtime.why.clauses import What
from runtime.why.reasons import value_text
from runtime.why.text import Why

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
