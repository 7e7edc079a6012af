"""Choose the matcher of a query: the kernel where it can express the query, else the reference matcher."""

from __future__ import annotations

from querylang.plan.model import Plan, QueryPlan
from runtime.matching.interface import Matcher
from runtime.matching.kernel.matcher import KernelMatcher
from runtime.matching.kernel.program import NotForKernel
from runtime.matching.reference_adapter import ReferenceOverColumns


def choose_matcher(plan: Plan, query: QueryPlan, wanted: str = "auto") -> Matcher:
    """The kernel where it can, else the reference; `wanted` ("kernel" or "reference") insists.

    Raises NotForKernel if the kernel is insisted on and cannot.
    """
    if wanted == "reference":
        return ReferenceOverColumns(plan, query)
    try:
        return KernelMatcher(plan, query)
    except NotForKernel:
        if wanted == "kernel":
            raise
        return ReferenceOverColumns(plan, query)


def why_not_kernel(plan: Plan, query: QueryPlan) -> str | None:
    """Why a query needs the reference matcher; None if the kernel takes it."""
    try:
        KernelMatcher(plan, query)
    except NotForKernel as reason:
        return str(reason)
    return None
