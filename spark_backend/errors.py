"""Errors of a Spark query in plain words.

Takes what Spark raises; gives our own error where its text holds one: exceptions cross from workers as text only.
"""

from __future__ import annotations

import re

from querylang.errors import InputError

_OURS = re.compile(r"^(?:[\w.]+\.)?(?:InputError|StateError|ContainerError): (.+)$", re.MULTILINE)
_NOT_THERE = re.compile(r"Ensue cannot be imported on a Spark executor.*")


def plain_error(error: Exception) -> Exception:
    """What ended a Spark query: an InputError with our own words where they stand in its text, else the error itself."""
    text = str(error)
    missing = _NOT_THERE.search(text)
    if missing is not None:
        return InputError(missing[0])
    found = _OURS.findall(text)
    return InputError(str(found[-1]).strip()) if found else error
