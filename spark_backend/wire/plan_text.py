"""Plans as JSON text: the form in which they are sent to workers and fingerprinted."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from threading import Lock

from querylang.plan import model as plans
from querylang.plan.model import Plan


def plan_text(plan: Plan) -> str:
    """The plan as JSON text; equal plans have equal texts.

    Without annotations of event types, which no engine needs.
    """
    plan = plan.without_annotations()
    text = template_text(plan)
    with _LOCK:
        _MADE[text] = plan
        while len(_MADE) > MOST_MADE:
            del _MADE[next(iter(_MADE))]
    return text


def template_text(plan: Plan) -> str:
    """A plan as JSON text, with all that compiling more texts for it needs."""
    return json.dumps(plans.to_dict(plan), sort_keys=True, separators=(",", ":"))


def fingerprint(text: str) -> str:
    """A plan's text hashed to 16 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=64)
def load_plan(text: str) -> Plan:
    """The inverse of `plan_text`; parsed once per process, and not where the text was just made."""
    with _LOCK:
        made = _MADE.pop(text, None)
    return made if made is not None else plans.from_dict(json.loads(text))


MOST_MADE = 4
"""A plan of a thousand queries has some ten megabytes."""

_LOCK = Lock()

_MADE: dict[str, Plan] = {}
"""The plans whose texts were made last: a driver soon asks for what it has just written."""
