"""What the kernel interprets for a query, as listings: pattern and conditions in, tables and programs out."""

from __future__ import annotations

from pathlib import Path

import pytest

import querylang
from runtime.matching.choose import listing

CASES = Path(__file__).parent / "listings.cases"
FIELDS = "integer v; float f; string s; boolean g; decimal d;"
HEAD = " ".join(f"event {name} {{ {FIELDS} }}" for name in "ABC")


def cases() -> dict[str, tuple[str, str]]:
    """By name: what follows `find`, and the listing."""
    parts = CASES.read_text(encoding="utf-8").split("\n--- ")[1:]
    named = (part.split("\n", 1) for part in parts)
    split = {name: text.split("\n===\n") for name, text in named}
    return {name: (pattern.strip(), expected.rstrip()) for name, (pattern, expected) in split.items()}


def listed(pattern: str) -> str:
    """The listing of a query without its title."""
    used = [name for name in "ABC" if f"{name} as" in pattern]
    inputs = " ".join(f"{name}() within 30.0;" for name in used)
    plan = querylang.compile_text(f"{HEAD} query Q {{ inputs {{ {inputs} }} find {pattern} }}").plan
    title, _, rest = listing(plan, plan.queries[0]).partition("\n")
    assert title == "query Q"
    return rest


@pytest.mark.parametrize("name", cases())
def test_what_the_kernel_interprets(name: str) -> None:
    pattern, expected = cases()[name]
    assert listed(pattern) == expected


def test_an_altered_expectation_fails() -> None:
    pattern, expected = cases()["arithmetic on integers"]
    assert listed(pattern) != expected.replace("0 PUSH_I", "0 PUSH_F")
