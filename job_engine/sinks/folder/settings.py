"""The settings of a sink of files; what is wrong with them is reported, with its line."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from job_engine.sinks.kinds import Sink, SinkEntry, SinkKind
from querylang.dataclass import dataclass


class Formulas(StrEnum):
    """What happens in CSV to text that a spreadsheet would run as a formula."""

    KEEP = "keep"
    ESCAPE = "escape"


@dataclass(frozen=True, slots=True)
class FolderSink:
    """What only a sink of files has."""

    formulas: Formulas = Formulas.KEEP


class FolderSinkKind(SinkKind):
    """Folders of files; see `SinkKind`."""

    keys: Mapping[str, str] = {"path": "folders", "shared": "folders", "formulas": "CSV", "layout": "folders"}
    needs = ("path",)

    def read(self, entry: SinkEntry) -> Sink:
        """As `SinkKind.read`."""
        formulas = Formulas.KEEP
        if "formulas" in entry.found:
            node = entry.found["formulas"]
            formulas = node.one_of({str(word): word for word in Formulas}) or formulas
            if entry.format != "csv":
                node.wrong(f"'formulas' is a setting of CSV; '{entry.name}' is {entry.format}")
        return entry.sink(FolderSink(formulas), entry.place())


KIND = FolderSinkKind()
