"""Cases that are cut into micro-batches in several places, for all that runs them in pieces."""

from __future__ import annotations

import dataclasses

from job_engine.operator.cases import Case
from tests.spark_backend.samples import PLAN, SEVERAL, arrivals_of, with_system_rows

CASES = [
    Case(plan, with_system_rows(arrivals_of(120, keys=3, plan=plan, seed=seed)), splits, flush)
    for seed, (plan, splits, flush) in enumerate(
        [
            (PLAN, (), True),
            (PLAN, (60,), False),
            (SEVERAL, (11, 41, 42, 71), True),
            (SEVERAL, (30, 30, 90), False),
            (dataclasses.replace(PLAN), tuple(range(10, 120, 10)), True),
        ]
    )
]
