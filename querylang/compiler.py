"""The plan of a set of checked queries."""

from __future__ import annotations

from querylang.checker.checked import Checked
from querylang.plan.model import Plan


def compile_checked(checked: Checked) -> Plan:
    """The plan; queries with parameters are templates in it (`querylang.parameters.binding`)."""
    return Plan(checked.events, checked.queries)
