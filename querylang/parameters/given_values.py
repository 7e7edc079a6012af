"""Values of parameters as users write them: in files, on a command line, in a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Path = tuple[str, ...]
"""The keys that lead to a value."""


@dataclass(frozen=True, slots=True)
class Given:
    """What was given, and where it stands: `origin` is a file or what else to call it, `lines` are from 1."""

    values: Mapping[str, Any] = field(default_factory=dict)
    origin: str = "parameters"
    lines: Mapping[Path, int] = field(default_factory=dict)

    def line_of(self, path: Path) -> int | None:
        """The line of the value to which the keys lead, or of the nearest one around it."""
        return next((self.lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.lines), None)


NOTHING = Given()
