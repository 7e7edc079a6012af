"""What a matcher takes and gives; two of them stand behind this interface.

`runtime.kernel_matcher` takes every query whose conditions its program can say, `runtime.reference_matcher` takes all. Both
are driven by the plan's automaton and must agree on every stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from querylang.plan import Plan, QueryPlan
from runtime.kernel_program import NotForKernel


@dataclass(frozen=True, slots=True)
class Ordered:
    """Events by key, each key's in total order: positions `start[k]` to `fresh[k]` were there before, from `fresh[k]` to
    `start[k + 1]` are new. `row[position]` is the event's row in `table`; `input` and `time` are by row."""

    start: NDArray[np.int64]
    fresh: NDArray[np.int64]
    row: NDArray[np.int32]
    input: NDArray[np.int16]
    time: NDArray[np.int64]
    table: pa.Table


@dataclass(frozen=True, slots=True)
class Found:
    """Matches in order of their latest event's position; `members[match, term]` is a position."""

    latest: NDArray[np.int64]
    members: NDArray[np.int64]


class Matcher(Protocol):
    """Finds, for each new event, the candidate that wins by the *recent* policy."""

    def match(self, events: Ordered) -> Found:
        """At most one match for each new event."""
        ...


def choose_matcher(plan: Plan, query: QueryPlan, wanted: str = "auto") -> Matcher:
    """The kernel where it can, else the reference; `wanted` ("kernel" or "reference") insists.

    Raises NotForKernel if the kernel is insisted on and cannot.
    """
    from runtime.kernel_matcher import KernelMatcher
    from runtime.reference_adapter import ReferenceOverColumns

    if wanted == "reference":
        return ReferenceOverColumns(plan, query)
    try:
        return KernelMatcher(query)
    except NotForKernel:
        if wanted == "kernel":
            raise
        return ReferenceOverColumns(plan, query)


def why_not_kernel(query: QueryPlan) -> str | None:
    """Why a query needs the reference matcher; None if the kernel takes it."""
    from runtime.kernel_matcher import KernelMatcher

    try:
        KernelMatcher(query)
    except NotForKernel as reason:
        return str(reason)
    return None
