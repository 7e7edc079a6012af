"""Changes of the queries that run, as data, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from querylang.dataclass import dataclass, field


@dataclass(frozen=True, slots=True)
class DeployQuery:
    """Run the queries of a text, too."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplaceQuery:
    """Run the queries of a text instead of those of the same names.

    now: the new text answers from its place on, with empty windows, instead of after a handover
    """

    text: str
    now: bool = False


@dataclass(frozen=True, slots=True)
class UndeployQuery:
    """End a query with all its instances."""

    name: str


@dataclass(frozen=True, slots=True)
class SetParameters:
    """Create an instance of a query, or change values of one."""

    query: str
    instance: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RemoveInstance:
    """End an instance of a query."""

    query: str
    instance: str


Change = DeployQuery | ReplaceQuery | UndeployQuery | SetParameters | RemoveInstance

CHANGES: Mapping[str, tuple[str, ...]] = {
    "DeployQuery": ("text",),
    "ReplaceQuery": ("text", "now"),
    "UndeployQuery": ("name",),
    "SetParameters": ("query", "instance", "values"),
    "RemoveInstance": ("query", "instance"),
}
"""By control event that changes the queries, the names of its arguments."""


UNCHANGED = "unchanged"
"""The kind of outcome of a query that has the text already."""

DONE = ("deployed", "replaced", "handed_over", "undeployed", "set", "removed", UNCHANGED)
"""The kinds of outcomes of changes that are done; another one is an `error`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a change, for one query instance.

    kind: one of DONE, or `error`
    query: its name; empty = of none
    text: for people
    details: what else there is
    """

    kind: str
    query: str
    instance: str
    text: str
    details: Mapping[str, Any] = field(default_factory=dict)
