"""Which queries `find every` can compute without enumerating their candidates.

See `runtime.matching.kernel.sliding`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from querylang.plan.model import QueryPlan, Where, known
from runtime.instants import NEVER
from runtime.matching.kernel.aggregates import Arguments
from runtime.matching.kernel.program import KernelProgram, operand_of
from runtime.matching.kernel.sliding import Window
from runtime.matching.kernel.tables import is_whole


def sliding_window(
    query: QueryPlan, programs: Sequence[int], program: KernelProgram, arguments: Arguments
) -> Window | str:
    """What the aggregates follow; or why the candidates must be enumerated.

    programs: by condition, its program; -1 = none
    """
    if len(query.terms) != 1:
        return "the pattern has several names"
    (term,) = query.terms
    item = query.inputs[term.input]
    if item.unique:
        return "the window is `with unique`"
    if any(not isinstance(condition, Where) and not is_whole(condition) for condition in query.conditions):
        return "a `within` or `without` has a range"
    checks = [operand_of(program, number) for number in programs if number >= 0]
    operands = [own for own, number in zip(arguments.operand, arguments.program, strict=True) if number >= 0]
    if None in checks or -1 in operands:
        return "an expression mentions no field"
    return Window(
        term.input,
        NEVER if item.within is None else known(item.within),
        NEVER if item.retain is None else known(item.retain),
        np.array([check[0] for check in checks if check is not None], np.int64),
    )
