"""Values of parameters as users write them: in files, on a command line, in a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Path = tuple[str, ...]
"""The keys that lead to a value."""


@dataclass(frozen=True, slots=True)
class Given:
    """Values as users gave them.

    `origin`: the file, or how else a message calls it. `lines`: line by path, from 1. `hidden`: by
    path what messages show instead of a value that may be secret.
    """

    values: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may be secret
    origin: str = "parameters"
    lines: Mapping[Path, int] = field(default_factory=dict)
    hidden: Mapping[Path, str] = field(default_factory=dict)

    def line_of(self, path: Path) -> int | None:
        """The line of the value at the path, or of the innermost mapping around it."""
        return next((self.lines[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.lines), None)

    def hidden_in(self, path: Path) -> dict[str, str]:
        """By name, what messages show instead of the hidden values directly below the path."""
        return {keys[-1]: shown for keys, shown in self.hidden.items() if keys[:-1] == path}


NOTHING = Given()
