"""Which names in a folder are files of a source, by Spark's rules."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

from job_engine.sources.folder.listed_source import ListedSource


def is_hidden(name: str) -> bool:
    """Whether a name is skipped: `_name` and `.name`, but not a folder `_key=value`."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def name_filter(source: ListedSource) -> Callable[[str], bool]:
    """Whether a name that is not hidden is a file of the source."""
    if source.pattern is None:
        return lambda name: name.lower().endswith(source.suffixes)
    patterns = [re.compile(fnmatch.translate(part), re.DOTALL) for part in alternatives(source.pattern)]
    return lambda name: any(pattern.match(name) for pattern in patterns)


def alternatives(pattern: str) -> list[str]:
    """The patterns without braces that `{a,b}` stands for; braces that do not match are text."""
    opened = pattern.find("{")
    closed = _end_of(pattern, opened)
    if opened < 0 or closed < 0:
        return [pattern]
    before, after = pattern[:opened], pattern[closed + 1 :]
    choices = _choices(pattern[opened + 1 : closed])
    return [found for choice in choices for found in alternatives(before + choice + after)]


def _end_of(pattern: str, opened: int) -> int:
    """Where the brace at `opened` is closed; -1 = nowhere."""
    depth = 0
    for place in range(max(opened, 0), len(pattern)):
        depth += {"{": 1, "}": -1}.get(pattern[place], 0)
        if depth == 0 and opened >= 0:
            return place
    return -1


def _choices(text: str) -> list[str]:
    """The parts between the commas that are in no inner braces."""
    parts, depth = [""], 0
    for letter in text:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
