"""The setting `forget_keys`: after which length of arrival time without records a key is forgotten.

It is part of the plan, so that embedded, batch and stream agree.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from querylang.errors import InputError
from querylang.plan.model import Plan
from runtime.instants import NEVER
from runtime.policies.durations import parse_duration

EXPECTED = "a length of time such as `30 days`"

ForgetKeys = str | timedelta | None
"""The setting as users give it; None = no key is forgotten."""


def parse_forget_keys(given: ForgetKeys) -> int | None:
    """The length in µs; None = no key is forgotten. Raises InputError."""
    if given is None:
        return None
    length = given // timedelta(microseconds=1) if isinstance(given, timedelta) else None
    if isinstance(given, str):
        length = forget_length(given)
    if length is None or length <= 0:
        raise InputError(f"forget_keys: {given!r} is not {EXPECTED}")
    return length


def forget_length(text: str) -> int | None:
    """The length in µs; None = it is not a length, or 0, or beyond all times."""
    length = parse_duration(text)
    return length if length is not None and 0 < length < NEVER else None


def with_forget_keys(plan: Plan, length: int | None) -> Plan:
    """The plan whose queries forget keys after this length, µs; None = they forget none."""
    if all(query.forget_keys == length for query in plan.queries):
        return plan
    return replace(plan, queries=tuple(replace(query, forget_keys=length) for query in plan.queries))
