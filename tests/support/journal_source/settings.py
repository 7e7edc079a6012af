"""What a deployment file says of it: `format: journal`, a file, and how many lines are read per micro-batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from job_engine.setting_keys import Change
from job_engine.sources.kinds import KindSettings, SourceEntry, SourceKind


@dataclass(frozen=True, slots=True)
class Journal:
    """A source; `most`: of the lines of a micro-batch, None = no limit."""

    name: str
    file: str
    most: int | None = None

    def lines(self) -> list[bytes]:
        """Those that are complete."""
        return Path(self.file).read_bytes().split(b"\n")[:-1]


class JournalKind(SourceKind):
    title = "journals"
    keys: Mapping[str, Change] = {"file": Change.FIXED, "lines": Change.FREE}
    needed: Mapping[str, Any] = {"required": ["file"]}

    def read(self, entry: SourceEntry) -> KindSettings:
        if "file" not in entry.found:
            entry.node.wrong(f"'{entry.name}' has no 'file'")
            return KindSettings(None)
        most = entry.found["lines"].number(least=1, most=2**62) if "lines" in entry.found else None
        return KindSettings(Journal(entry.name, str(entry.folders.path(entry.found["file"])), most))


KIND = JournalKind()
