"""Choose a query's matcher: the kernel if it can express the query, else the reference matcher."""

from __future__ import annotations

from querylang.plan.model import Plan, QueryPlan
from querylang.plan.questions import has_additions
from runtime.matching.interface import Matcher
from runtime.matching.kernel.compilation import compile_query
from runtime.matching.kernel.matcher import KernelMatcher
from runtime.matching.kernel.program import NotForKernel
from runtime.matching.reference import MOST_BOUND
from runtime.matching.reference_adapter import ReferenceOverColumns
from runtime.matching.remembering import counted_states
from runtime.matching.run_kernel.compilation import compile_runs
from runtime.matching.run_kernel.matcher import RunKernelMatcher


def choose_matcher(plan: Plan, query: QueryPlan, wanted: str = "auto") -> Matcher:
    """The kernel if it can express the query, else the reference matcher.

    `wanted`: "auto", or "kernel" or "reference" to have that one.
    Raises NotForKernel if the kernel is wanted and cannot express the query.
    """
    if wanted == "reference":
        return ReferenceOverColumns(plan, query)
    try:
        return RunKernelMatcher(plan, query) if has_additions(query) else KernelMatcher(plan, query)
    except NotForKernel:
        if wanted == "kernel":
            raise
        return ReferenceOverColumns(plan, query)


def why_not_kernel(query: QueryPlan) -> str | None:
    """Why a query needs the reference matcher; None if it runs on a kernel."""
    try:
        if has_additions(query):
            compile_runs(query)
        else:
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
    if has_additions(query):
        return "it has a `wait` between steps" if query.gaps else "it uses `prev`"
    try:
        sliding = compile_query(query).sliding
    except NotForKernel:
        return "it runs on the reference matcher"
    return sliding if isinstance(sliding, str) else None


def why_ended(query: QueryPlan) -> str | None:
    """What ends a search that takes too many steps, and why; None if searches need no limit."""
    if not any(counted_states(query)):
        return None
    reason = "all candidates are wanted" if query.finds_all else "a condition depends on all events of a run"
    return f"{reason}: a search of more than {MOST_BOUND:,} steps is ended, with an error row"
