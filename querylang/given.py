"""Values of parameters as users give them: in a deployment file, a case, on a command line, in a call.

Takes nothing; gives `Given`: nested names and values, with their lines where they stand in a file. What the nesting means
stands in `querylang.given_instances`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from querylang.errors import InputError

Path = tuple[str, ...]
"""The keys that lead to a value."""


@dataclass(frozen=True, slots=True)
class Given:
    """What was given, and where it stands: `origin` is a file or what else to call it, `lines` are from 1."""

    values: Mapping[str, Any] = field(default_factory=dict)
    origin: str = ""
    lines: Mapping[Path, int] = field(default_factory=dict)

    def wrong(self, path: Path, message: str) -> InputError:
        """A mistake at the value to which the keys lead."""
        line = next((self.lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.lines), None)
        place = self.origin if line is None else f"{self.origin}:{line}"
        return InputError(f"{place}: {message}" if place else message)


NOTHING = Given()
