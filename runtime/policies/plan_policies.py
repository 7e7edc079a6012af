"""Ordering policies as users write them, bound into a plan: `Input.policy`, `Input.sources`.

`stream_analytics late=5s over=card` is a text of one; a mapping has the key `policy`. They come
from a deployment file, a case or a call. All mistakes are raised together as `OrderingError`:
unknown words with the nearest known one, values with what was expected, and policies that do not
fit the queries. The settings and their limits are in `runtime.policies.presets`. A bound plan is
all that an executor needs. Needs only the language and the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from querylang.dataclass import dataclass, replace
from querylang.errors import nearest
from querylang.plan.expression import SIMPLE
from querylang.plan.model import EventType, Input, Plan, QueryPlan, TimePolicy
from runtime.instants import LONGEST_TEXT, micros_of, parse_moment
from runtime.policies.presets import (
    FOR_EVER,
    NONE,
    PRESETS,
    SECOND,
    SETTINGS,
    Kind,
    OrderingError,
    Setting,
    Value,
    apama,
    refusal,
    refusals,
    streaminsight,
)
from runtime.policies.settings_text import parse_duration

Ordering = str | Mapping[str, Any] | TimePolicy
"""A policy as text, as a mapping with `policy`, or as an object."""

GivenOrderings = Ordering | Mapping[str, Ordering] | Sequence[str] | None
"""One policy, or policies by source, as users give them."""

Orderings = Mapping[str | None, TimePolicy]
"""The policy by source; None = all sources that are not named."""

_OF_SOURCE = re.compile(r"\s*(?P<source>[^=]*?\S)\s*:\s+(?P<policy>.*)", re.DOTALL)
_SETTING = re.compile(r"([^\s=]+)\s*=\s*(.*?)\s*(?=\s[^\s=]+\s*=|\Z)", re.DOTALL)
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)")
_ENDLESS = (FOR_EVER, "infinity", "inf")
_FLAGS = {"yes": True, "true": True, "no": False, "false": False}

_KNOWN = {"policy", *(setting.name for settings in SETTINGS.values() for setting in settings)}

FOREIGN_WORDS = {
    "asa": "stream_analytics",
    "azure": "stream_analytics",
    "delayleeway": "leeway",
    "reorderbuffer": "reorder",
    "latearrival": "late",
    "eventslatearrivalmaxdelayinseconds": "late",
    "outoforder": "out_of_order",
    "eventsoutofordermaxdelayinseconds": "out_of_order",
    "eventsoutoforderpolicy": "action",
    "substreams": "over",
    "advancetimepolicy": "action",
    "ctifrequency": "every",
    "eventcount": "every",
    "watermark": "late",
}
"""Words of other systems, without `_` and `-`, and the policy or setting that they mean."""


class _WrongValue(Exception):
    """A value that a setting does not accept; the text is the whole message."""


def parse_orderings(given: GivenOrderings) -> Orderings:
    """Read what was chosen for one or many sources. Raises OrderingError.

    Given is a policy, policies by source, or a list of texts, each a policy or `SOURCE: POLICY
    ...`.
    """
    match given:
        case None:
            return {}
        case Mapping() if not _KNOWN & given.keys():
            return {str(source): _of_source(str(source), policy) for source, policy in given.items()}
        case Sequence() if not isinstance(given, str):
            texts: Sequence[Any] = given
        case _:
            texts = [given]
    found: dict[str | None, TimePolicy] = {}
    for text in texts:
        named = _OF_SOURCE.fullmatch(text) if isinstance(text, str) else None
        source = None if named is None else named["source"]
        if source in found:
            raise OrderingError([(source, f"{_called(source)} has two policies")])
        found[source] = parse_ordering(text) if named is None else _of_source(named["source"], named["policy"])
    return found


def _called(source: str | None) -> str:
    return "the input" if source is None else f"the source '{source}'"


def _of_source(source: str, given: Any) -> TimePolicy:
    try:
        return parse_ordering(given)
    except OrderingError as error:
        raise OrderingError([(source, f"{_called(source)}: {message}") for _, message in error.found]) from None


def parse_ordering(given: Ordering) -> TimePolicy:
    """Read one policy; raises OrderingError."""
    if isinstance(given, TimePolicy):
        return given
    name, written = _of_mapping(given) if isinstance(given, Mapping) else _of_text(given)
    if name not in SETTINGS:
        raise OrderingError([("policy", f"'policy' must be {_one_of(SETTINGS)}, not {name!r}{_hint(name, SETTINGS)}")])
    found: list[tuple[str | None, str]] = []
    settings = {setting.name: setting for setting in SETTINGS[name]}
    chosen: dict[str, Value] = {}
    for word, value in written:
        if word not in settings:
            found.append((word, _unknown(name, word)))
        elif word in chosen:
            found.append((word, f"duplicate setting '{word}'"))
        else:
            try:
                chosen[word] = _value(settings[word], value)
            except _WrongValue as problem:
                found.append((word, str(problem)))
    found += refusals(name, chosen)
    if found:
        raise OrderingError(found)
    return PRESETS[name](**{settings[word].argument: value for word, value in chosen.items()})


def _of_mapping(given: Mapping[str, Any]) -> tuple[str, list[tuple[str, Any]]]:
    if "policy" not in given:
        raise OrderingError([(None, f"'policy' is missing: it is {_one_of(SETTINGS)}")])
    return str(given["policy"]), [(str(word), value) for word, value in given.items() if word != "policy"]


def _of_text(given: Any) -> tuple[str, list[tuple[str, Any]]]:
    if not isinstance(given, str):
        raise OrderingError([(None, f"a policy is a text or a mapping, not {type(given).__name__}")])
    name, rest = (*given.split(maxsplit=1), "", "")[:2]
    settings = [(found[1], found[2]) for found in _SETTING.finditer(rest)]
    left = _SETTING.sub("", rest).strip()
    if not name or left or "=" in name:
        example = "`stream_analytics late=5s action=drop`"
        problem = f"{left!r} is not a setting" if name and left else f"{given!r} does not name a policy"
        raise OrderingError([(None, f"{problem}; written like {example}")])
    return name, settings


def _unknown(policy: str, word: str) -> str:
    own = [setting.name for setting in SETTINGS[policy]]
    others = [other for other, settings in SETTINGS.items() if word in {setting.name for setting in settings}]
    if others:
        return f"'{word}' is a setting of {' and '.join(others)}, not of {policy}, which has {', '.join(own)}"
    return f"'{word}' is not a setting of {policy}{_hint(word, own) or f'; it has {chr(44).join(own)}'}"


def _hint(word: str, known: Iterable[str]) -> str:
    names = list(known)
    foreign = FOREIGN_WORDS.get(re.sub(r"[_\s-]", "", word).lower())
    meant = foreign if foreign in names else nearest(word, names)
    return f"; did you mean '{meant}'?" if meant is not None else ""


def _one_of(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}"


def _value(setting: Setting, given: Any) -> Value:
    """The value in the form of the preset's argument; raises _WrongValue."""
    value = given.strip() if isinstance(given, str) else given
    if _is_unlimited(setting, value):
        return None
    found = _READERS[setting.kind](value)
    if found is None:
        raise _WrongValue(refusal(setting, "empty" if value in (None, "") else f"'{value}'"))
    return found


def _is_unlimited(setting: Setting, value: Any) -> bool:
    if setting.unlimited is None or value is None:
        return value is None and setting.unlimited == NONE
    return str(value).lower() in ((NONE,) if setting.unlimited == NONE else _ENDLESS)


def _length(value: Any) -> int | None:
    """A plain number is seconds, and has no sign: -1 could mean one second or no limit."""
    match value:
        case timedelta():
            return value // timedelta(microseconds=1)
        case bool():
            return None
        case int() | float() if 0 <= value < float("inf"):
            return round(Fraction(value) * SECOND)
        case str() if len(value) <= LONGEST_TEXT and _NUMBER.fullmatch(value):
            return round(Fraction(value) * SECOND)
        case str():
            sign = -1 if value.startswith("-") else 1
            length = parse_duration(value.removeprefix("-"))
            return None if length is None else sign * length
        case _:
            return None


def _count(value: Any) -> int | None:
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _pace(value: Any) -> Value:
    """A plain number is a number of events, a length with a unit is event time."""
    count = _count(value)
    if count is not None or isinstance(value, int | float):
        return count
    length = None if isinstance(value, str) and _NUMBER.fullmatch(value) else _length(value)
    return None if length is None else timedelta(microseconds=length)


def _moment(value: Any) -> int | None:
    if isinstance(value, datetime):
        return micros_of(value)
    return None if isinstance(value, bool) else parse_moment(str(value))


def _word(value: Any) -> str | None:
    return value.lower() if isinstance(value, str) else None


def _fields(value: Any) -> tuple[str, ...] | None:
    """In the order given, without duplicates."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name.strip() for name in names):
        return None
    stripped = tuple(name.strip() for name in names)
    return stripped if stripped and len(set(stripped)) == len(stripped) else None


def _type(value: Any) -> str | None:
    return value if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][\w.]*", value) else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else _FLAGS.get(str(value).lower())


_READERS: Mapping[Kind, Callable[[Any], Value]] = {
    Kind.LENGTH: _length,
    Kind.MOMENT: _moment,
    Kind.COUNT: _count,
    Kind.PACE: _pace,
    Kind.WORD: _word,
    Kind.FIELDS: _fields,
    Kind.TYPE: _type,
    Kind.FLAG: _flag,
}
"""By kind, the function that reads a value; it returns None for what is not one."""


__all__ = [
    "GivenOrderings",
    "Ordering",
    "OrderingError",
    "Orderings",
    "SourceOrdering",
    "for_reading",
    "parse_ordering",
    "parse_orderings",
    "policy_of",
    "with_ordering",
]

Found = tuple[str | None, str]
"""A source (None = all) and a mistake in its policy."""


@dataclass(frozen=True, slots=True)
class SourceOrdering:
    """What was chosen for one source.

    source: its name; None = every source
    policy: how its records are ordered; None = as the queries say
    events: the event types that it can bring; None = any
    """

    source: str | None
    policy: TimePolicy | None
    events: tuple[str, ...] | None = None

    def brings(self, event: str) -> bool:
        """Whether the source can bring events of that type."""
        return self.events is None or event in self.events


def with_ordering(plan: Plan, orderings: Sequence[SourceOrdering], unseen: Collection[str] = ()) -> Plan:
    """The plan in which each input has the policy and the names of the sources of its events.

    An input whose events queries route has none: policies do not concern these.

    `unseen`: event types whose fields are only known from data. Raises OrderingError with all
    mistakes, by source.
    """
    found: list[Found] = []
    queries = []
    routed = {event for query in plan.queries for event in query.routes}
    for query in plan.queries:
        inputs = []
        for item in query.inputs:
            chosen = [ordering for ordering in orderings if ordering.brings(item.event)]
            if item.event in routed:
                found += _of_two_origins(item, chosen)
                chosen = []
            found += _misfits(plan, query, item, chosen, unseen)
            inputs.append(_with_policy(item, chosen) if chosen else item)
        queries.append(replace(query, inputs=tuple(inputs)))
        found += [(None, f"query '{query.title}': {cycle}") for cycle in _import_cycles(inputs)]
    found += _without_effect(plan, orderings)
    if found:
        raise OrderingError(tuple(dict.fromkeys(found)))
    return replace(plan, queries=tuple(queries))


def _of_two_origins(item: Input, chosen: Sequence[SourceOrdering]) -> Iterator[Found]:
    """A source with a policy that brings what queries route, too."""
    for ordering in chosen:
        is_known = ordering.source is not None and ordering.events is not None
        if is_known and ordering.policy is not None and not ordering.policy.is_per_key:
            reason = (
                f"the policy '{ordering.policy.name}' does not order what queries route: give one of both another type"
            )
            yield ordering.source, f"'{item.event}' comes from {_called(ordering.source)} and from queries; {reason}"


def policy_of(orderings: Orderings, source: str) -> TimePolicy | None:
    """The policy of a source: the one for its name, else the one for all sources."""
    return orderings.get(source, orderings.get(None))


def for_reading(plan: Plan, policy: TimePolicy | None) -> Plan:
    """The plan as if all events came from one source with this policy: to see its columns."""
    queries = [
        replace(query, inputs=tuple(replace(item, policy=policy) for item in query.inputs)) for query in plan.queries
    ]
    return replace(plan, queries=tuple(queries))


def _with_policy(item: Input, chosen: Sequence[SourceOrdering]) -> Input:
    policy = chosen[0].policy
    if policy is not None and policy.imports == item.event:
        policy = _of_imported(policy)
    names = (ordering.source for ordering in chosen if ordering.source is not None)
    return replace(item, policy=policy, sources=tuple(dict.fromkeys(names)))


def _of_imported(policy: TimePolicy) -> TimePolicy:
    """The policy of a type whose time others import: it advances with each event, without delay."""
    own = streaminsight()
    return replace(policy, imports=None, every=own.every, disorder=own.disorder)


def _import_cycles(inputs: Sequence[Input]) -> Iterator[str]:
    """Cycles of types that each import the time of the next one."""
    imports = {item.event: item.policy.imports for item in inputs if item.policy is not None}
    for start in imports:
        names = [start]
        while (following := imports.get(names[-1])) is not None and following not in names:
            names.append(following)
        if following == start and start == min(names):
            yield f"'import' forms a cycle, so time never advances: {', '.join([*names, start])}"


def _misfits(
    plan: Plan, query: QueryPlan, item: Input, chosen: Sequence[SourceOrdering], unseen: Collection[str]
) -> Iterator[Found]:
    place = f"query '{query.title}', input '{item.event}'"
    for ordering in chosen[1:]:
        if _effect(ordering.policy) != _effect(chosen[0].policy):
            sources = f"the sources '{chosen[0].source}' and '{ordering.source}'"
            yield ordering.source, f"{place}: {sources} can both bring this type, and have different orderings"
    for ordering in chosen:
        if ordering.policy is not None:
            for reason in _reasons(plan, item, ordering.policy, unseen):
                yield ordering.source, f"{place}: {reason}"


def _without_effect(plan: Plan, orderings: Sequence[SourceOrdering]) -> Iterator[Found]:
    """A limit for early events that has no effect on any input of its source."""
    inputs = [item for query in plan.queries for item in query.inputs]
    reason = "'early' compares source times with arrival, but no input of the source has `wait`: events have their arrival time"
    for ordering in orderings:
        policy, brought = ordering.policy, [item for item in inputs if ordering.brings(item.event)]
        is_limited = policy is not None and policy.is_per_key and policy.early is not None
        if is_limited and brought and all(item.wait is None for item in brought):
            yield ordering.source, reason


def _effect(policy: TimePolicy | None) -> TimePolicy:
    return apama() if policy is None else policy


def _reasons(plan: Plan, item: Input, policy: TimePolicy, unseen: Collection[str]) -> Iterator[str]:
    """The reasons why an input cannot have a policy."""
    if not policy.is_per_key:
        for clause in _own_order(item):
            yield (
                f"{clause} says how events are put in order, and so does the policy '{policy.name}' of its source;"
                f" only 'apama' can be combined with it"
            )
    event = plan.event(item.event)
    if not (item.event in unseen and not event.fields):
        yield from _missing_fields(event, policy)
    if policy.imports is not None:
        yield from _import_misfits(plan, policy.imports)


def _own_order(item: Input) -> Iterator[str]:
    if item.wait is not None:
        yield "`wait`"
    if item.heartbeat is not None:
        yield f"the heartbeat '{item.heartbeat.event}'"
    if item.out_of_order:
        yield "`@OutOfOrder`"


def _missing_fields(event: EventType, policy: TimePolicy) -> Iterator[str]:
    types = {field.name: field.type for field in event.fields}
    for name in policy.over:
        if name not in types:
            yield f"'over={name}', but the event type has {_named('field', types)}{_near(name, types)}"
        elif types[name] not in SIMPLE:
            yield f"'over={name}', but the field is a {types[name]}: it must be one that can be a key"


def _import_misfits(plan: Plan, imports: str) -> Iterator[str]:
    events = [event.name for event in plan.events]
    if imports not in events:
        yield f"'import={imports}', but the queries know {_named('event type', events)}{_near(imports, events)}"


def _near(name: str, names: Collection[str]) -> str:
    meant = nearest(name, names)
    return f"; did you mean '{meant}'?" if meant is not None else ""


def _named(what: str, names: Collection[str]) -> str:
    if not names:
        return f"no {what}"
    return f"the {what}{'' if len(names) == 1 else 's'} {', '.join(names)}"
