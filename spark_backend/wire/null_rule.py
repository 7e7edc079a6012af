"""Which rule for nulls queries go by, where checkpoints of earlier versions continue."""

from __future__ import annotations

from enum import StrEnum


class NullRule(StrEnum):
    """Who says the rule (`QueryPlan.nulls_fail`)."""

    PLAN = "plan"
    """The plan: a job keeps it in its checkpoint."""
    STATE = "state"
    """The state of each bucket. One that does not say so, has the rule of earlier versions."""
    APPLIED = "applied"
    """The plan, from now on, and the state keeps it."""
