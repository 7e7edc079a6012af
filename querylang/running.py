"""The queries that run at a moment, and the event types that are known: texts, instances, plans."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from querylang.checker.catalogue import other_actions
from querylang.dataclass import dataclass, field, replace
from querylang.errors import InputError, QueryErrors
from querylang.parameters import NONE_HIDDEN, bind
from querylang.plan.model import EventType, Plan, QueryPlan, Stopped, Table
from querylang.source import Source
from querylang.syntax.ast import Broken
from querylang.syntax.parser import parse

FILE, LIVE = "file", "live"
"""Where a text or a value comes from."""

Hidden = Mapping[str, Mapping[str, str]]
"""By instance and parameter, what is shown in place of a value that may be secret: `${TOKEN}`."""


class ChangeError(Exception):
    """A change cannot be done; the message says all that is wrong."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A value that may be secret and has changed since it was written down; it equals no value.

    value: the one that its variable has now; nobody knows the earlier one
    kept: what was written down
    """

    value: Any = field(repr=False)
    kept: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Version:
    """A text of a query.

    template: its plan, whose parameters have no values; its edition tells texts of one name apart
    starts: event time, µs, of its first matches; None = there is no such limit
    ends: event time, µs, from which on the next version gives the matches
    done: arrival, µs, from which on it has nothing to give; None = it is not known
    """

    template: QueryPlan
    starts: int | None = None
    ends: int | None = None
    done: int | None = None

    def instance(self, name: str, values: Mapping[str, Any], hidden: Mapping[str, str] = NONE_HIDDEN) -> QueryPlan:
        """The plan of an instance; raises InstanceError. `hidden`: as of `bind`."""
        own = {key: known_value(value) for key, value in values.items() if key in _parameters(self.template)}
        bound = bind(self.template, own, name, {key: text for key, text in hidden.items() if key in own})
        if (bound.edition, bound.starts, bound.ends) == (self.template.edition, self.starts, self.ends):
            return bound
        return replace(bound, edition=self.template.edition, starts=self.starts, ends=self.ends)


@dataclass(frozen=True, slots=True)
class RunningQuery:
    """A query that runs.

    versions: oldest first; more than one while one hands over to the next
    instances: values by name of the instance
    origin: of its text
    value_origins: by instance, where its values come from
    hidden: what is shown in place of values that may be secret
    """

    versions: tuple[Version, ...]
    instances: Mapping[str, Mapping[str, Any]]
    origin: str = FILE
    value_origins: Mapping[str, str] = field(default_factory=dict)
    hidden: Hidden = field(default_factory=dict)
    _plans: list[QueryPlan] = field(default_factory=list, init=False, repr=False, compare=False)
    """What `plans` has found: a change leaves most queries as they are."""

    @property
    def current(self) -> Version:
        """The latest version."""
        return self.versions[-1]

    @property
    def name(self) -> str:
        """The name of the query."""
        return self.current.template.name

    def plans(self) -> Iterator[QueryPlan]:
        """The plans of all instances, by version; raises InstanceError."""
        if not self._plans:
            found = [
                version.instance(name, values, self.hidden.get(name, {}))
                for version in self.versions
                for name, values in self.instances.items()
            ]
            self._plans.extend(found)
        return iter(self._plans)

    def shown(self, instance: str) -> dict[str, Any]:
        """The values of an instance, as messages may show them."""
        return without_hidden(self.instances[instance], self.hidden.get(instance, {}))


@dataclass(frozen=True, slots=True)
class Running:
    """The queries that run, by name.

    events: all event types that are or were known; a new one comes behind all others
    editions: by name, how many texts there have been
    stopped: instances of the start that do not run
    is_annotated: whether the event types have their annotations, which earlier releases did not
        keep
    """

    events: tuple[EventType, ...]
    queries: Mapping[str, RunningQuery]
    editions: Mapping[str, int]
    stopped: tuple[Stopped, ...] = ()
    is_annotated: bool = True

    @staticmethod
    def of(template: Plan, instances: Plan, hidden: Mapping[str, Hidden] = MappingProxyType({})) -> Running:
        """The queries of a start.

        instances: the same plan with values for all parameters
        hidden: by query, what is shown in place of values that may be secret
        """
        by_name: dict[str, list[QueryPlan]] = {}
        for item in instances.queries:
            by_name.setdefault(item.name, []).append(item)
        queries = {}
        for query in template.queries:
            plans = by_name.get(query.name, [])
            values = {item.instance: _values(item) if item.instance else _changed(query, item) for item in plans}
            own_hidden = {
                name: {key: text for key, text in shown.items() if key in values.get(name, {})}
                for name, shown in hidden.get(query.name, {}).items()
            }
            own_hidden = {name: shown for name, shown in own_hidden.items() if shown}
            queries[query.name] = RunningQuery((Version(query),), values, hidden=own_hidden)
        return Running(template.events, queries, dict.fromkeys(queries, 1), instances.stopped)

    def plan(self) -> Plan:
        """The plan of all instances; raises InstanceError."""
        queries = tuple(plan for query in self.queries.values() for plan in query.plans())
        return Plan(self.events, queries, self.stopped)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables beside the stream that queries look something up in; the latest of a name."""
        texts = (version.template for query in self.queries.values() for version in query.versions)
        return tuple({table.name: table for text in texts for table in text.tables}.values())

    def annotated_by(self, files: Running) -> Running:
        """The same with annotations, which are those of the files if none were kept."""
        if self.is_annotated:
            return self
        return replace(self, events=annotated_as(self.events, files.events), is_annotated=True)

    def with_query(self, query: RunningQuery) -> Running:
        """The same with this query, in its place or behind all others."""
        return replace(self, queries={**self.queries, query.name: query})

    def without(self, name: str) -> Running:
        """The same without a query."""
        return replace(self, queries={key: query for key, query in self.queries.items() if key != name})

    def next_done(self) -> int | None:
        """The arrival at which the next version that hands over is done; None = none is."""
        times = [old.done for query in self.queries.values() for old in query.versions[:-1] if old.done is not None]
        return min(times, default=None)

    def without_done(self, moment: int) -> tuple[Running, Sequence[str]]:
        """The same without versions that are done at a moment; and the names of their queries."""
        queries, names = dict(self.queries), []
        for name, query in self.queries.items():
            left = tuple(item for item in query.versions[:-1] if item.done is None or item.done > moment)
            if len(left) < len(query.versions) - 1:
                queries[name] = replace(query, versions=(*left, query.current))
                names.append(name)
        return replace(self, queries=queries), names


def known_value(value: Any) -> Any:
    """A value of an instance as it is now."""
    return value.value if isinstance(value, Changed) else value


def without_hidden(values: Mapping[str, Any], hidden: Mapping[str, str]) -> dict[str, Any]:
    """The values as messages may show them."""
    return {name: hidden.get(name, value) for name, value in values.items()}


def _parameters(query: QueryPlan) -> set[str]:
    return {parameter.name for parameter in query.parameters}


def _values(instance: QueryPlan) -> dict[str, Any]:
    """The values that an instance has."""
    return {item.name: item.value for item in instance.parameters if item.default is not None}


def _changed(template: QueryPlan, instance: QueryPlan) -> dict[str, Any]:
    """The values that are not the defaults of the text."""
    own = _values(template)
    return {name: value for name, value in _values(instance).items() if own.get(name) != value}


def with_events(known: Sequence[EventType], more: Sequence[EventType]) -> tuple[EventType, ...]:
    """The known event types, then the new ones: the number of a type never changes.

    A known type may get fields if it has none, actions, and other annotations. Raises ChangeError
    for a type with other fields, or with another action of a known name.
    """
    own = {event.name: event for event in more}
    joined = [_joined(event, own.pop(event.name)) if event.name in own else event for event in known]
    return (*joined, *own.values())


def _joined(known: EventType, event: EventType) -> EventType:
    """A known event type once a text defines it, too."""
    if not known.fields or not event.fields:
        return event if not known.fields else known
    if event.fields != known.fields:
        raise ChangeError(f"event type '{event.name}' is known with other fields: {_difference(known, event)}")
    others = other_actions(known, event)
    if others:
        raise ChangeError(f"event type '{event.name}' is known with another action '{others[0]}'; rename the new one")
    names = {action.name for action in known.actions}
    actions = (*known.actions, *(action for action in event.actions if action.name not in names))
    return replace(known, actions=actions).annotated_as(event)


def _difference(known: EventType, event: EventType) -> str:
    """How the fields of a definition differ from the known ones."""
    before, now = ({field.name: field.type for field in item.fields} for item in (known, event))
    words = [f"'{name}' is new" for name in now if name not in before]
    words += [f"'{name}' is missing" for name in before if name not in now]
    words += [
        f"'{name}' is {now[name]}, not {before[name]}" for name in now if now[name] != before.get(name, now[name])
    ]
    return ", ".join(words) or "they are in another order"


def annotated_as(events: Sequence[EventType], others: Iterable[EventType]) -> tuple[EventType, ...]:
    """The event types with the annotations that others of equal name and fields have."""
    own = {(event.name, event.fields): event for event in others}
    return tuple(event.annotated_as(own.get((event.name, event.fields), event)) for event in events)


# A shadow runs beside a query, with a name of its own and no effects.

SUFFIX = "_shadow"


@dataclass(frozen=True, slots=True)
class Shadow:
    """A text to deploy.

    names: of its queries, by the name of the query that each runs beside
    """

    text: str
    names: dict[str, str]


def shadow_of(text: str, path: str = "query") -> Shadow:
    """The text with other names, and without the blocks of `find`: nothing is sent or printed.

    Raises QueryErrors for a text that is not one, InputError for a query without a name.
    """
    file, mistakes = parse(Source(path, text))
    if mistakes:
        raise QueryErrors(mistakes)
    changes: list[tuple[int, int, str]] = []
    names = {}
    for query in file.queries:
        if query.name is None:
            raise InputError(f"{path}: a shadow runs beside a query of the same name: write `query NAME {{ … }}`")
        names[query.name.text] = query.name.text + SUFFIX
        changes.append((query.name.span.start, query.name.span.end, query.name.text + SUFFIX))
        if query.find is not None and not isinstance(query.find, Broken) and query.find.block is not None:
            changes.append((query.find.block.span.start, query.find.block.span.end, ";"))
    if not names:
        raise InputError(f"{path}: the text has no query")
    for start, end, other in reversed(changes):
        text = text[:start] + other + text[end:]
    return Shadow(text, names)
