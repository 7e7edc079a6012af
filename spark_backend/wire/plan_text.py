"""Plans on their way to the workers: as JSON text, compiled there once a process.

Takes a plan and gives its text and fingerprint; on a worker gives the plan and its partition groups back. Functions
that Spark runs on workers are wrapped here, so that an executor without Ensue says so in one clear line.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from querylang.plan import model as plans
from querylang.plan.model import Plan
from spark_backend.wire.partition_groups import PartitionGroup, partition_groups


def plan_text(plan: Plan) -> str:
    """The plan as JSON text; equal plans give equal text."""
    return json.dumps(plans.to_dict(plan), sort_keys=True, separators=(",", ":"))


def fingerprint(text: str) -> str:
    """Names a plan's text in 16 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@lru_cache(maxsize=64)
def load_plan(text: str) -> Plan:
    """The plan of a text; once a process."""
    return plans.from_dict(json.loads(text))


@lru_cache(maxsize=64)
def load_groups(text: str) -> tuple[PartitionGroup, ...]:
    """The partition groups of a plan's text; once a process."""
    return partition_groups(load_plan(text))


def on_worker(module: str, function: str, *arguments: Any) -> Callable[..., Any]:
    """A function for Spark to send: `module.function(*arguments, *what Spark gives)`, found by name on the worker.

    Only the two names and the arguments (plain data) travel. The result is a generator, as Spark wants it.
    """

    def run(*given: Any) -> Any:
        import importlib

        try:
            target = getattr(importlib.import_module(module), function)
        except ImportError as error:
            message = f"Ensue cannot be imported on a Spark executor ({error}); install it there, or send it along"
            raise RuntimeError(message) from error
        yield from target(*arguments, *given)

    return run
