"""Reads ordering policies as users write them: `stream_analytics late=5s over=card`, or a mapping.

A mapping has the key `policy`; it comes from a deployment file, a case or a call. All mistakes are
raised together as `OrderingError`: unknown words with the nearest known one, values with what was
expected. The settings and their limits are in `runtime.policies.presets`. Needs only the language
and the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from querylang.errors import nearest
from querylang.plan.model import TimePolicy
from runtime.instants import LONGEST_TEXT, micros_of, parse_moment
from runtime.policies.durations import parse_duration
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
    refusal,
    refusals,
)

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
