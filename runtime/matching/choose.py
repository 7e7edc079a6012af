"""Choose a query's matcher: the kernel if it can express the query, else the reference matcher."""

from __future__ import annotations

from querylang.plan.model import Plan, QueryPlan
from runtime.matching.interface import Matcher
from runtime.matching.kernel.compilation import compile_query
from runtime.matching.kernel.matcher import KernelMatcher
from runtime.matching.kernel.program import NotForKernel
from runtime.matching.reference_adapter import ReferenceOverColumns


def choose_matcher(plan: Plan, query: QueryPlan, wanted: str = "auto") -> Matcher:
    """The kernel if it can express the query, else the reference matcher.

    `wanted`: "auto", or "kernel" or "reference" to have that one.
    Raises NotForKernel if the kernel is wanted and cannot express the query.
    """
    if wanted == "reference":
        return ReferenceOverColumns(plan, query)
    try:
        return KernelMatcher(plan, query)
    except NotForKernel:
        if wanted == "kernel":
            raise
        return ReferenceOverColumns(plan, query)


def why_not_kernel(query: QueryPlan) -> str | None:
    """Why a query needs the reference matcher; None if it runs on the kernel."""
    try:
        compile_query(query)
    except NotForKernel as reason:
        return str(reason)
    return None


def slow_queries(plan: Plan) -> list[str]:
    """A line for each query of the plan that runs on the reference matcher."""
    # Instances differ in values of parameters only, so one of them is enough.
    queries = {query.name: query for query in plan.queries}
    reasons = {name: why_not_kernel(query) for name, query in queries.items()}
    return [
        f"query '{name}' runs on the reference matcher, several times slower than the kernel: {reason}"
        for name, reason in reasons.items()
        if reason is not None
    ]


def why_enumerated(query: QueryPlan) -> str | None:
    """Why the candidates of a `find every` are enumerated for each match; None if they are not."""
    if query.every is None:
        return None
    try:
        sliding = compile_query(query).sliding
    except NotForKernel:
        return "it runs on the reference matcher"
    return sliding if isinstance(sliding, str) else None
