"""A checked pattern as text, for `explain`."""

from __future__ import annotations

from collections.abc import Sequence as Row
from typing import assert_never

from querylang.checker.checked import Both, Either, Pattern, Sequence, TermOf
from querylang.plan.model import Input, Term


def pattern_text(pattern: Pattern, terms: Row[Term], inputs: Row[Input]) -> str:
    """The pattern as a user would write it: `A as a -> (B as b or C as c)`."""

    def text(part: Pattern) -> str:
        match part:
            case TermOf(index=index):
                return f"{inputs[terms[index].input].event} as {terms[index].name}"
            case Sequence(parts=parts):
                return " -> ".join(inner(each, Sequence) for each in parts)
            case Either(parts=parts):
                return " or ".join(inner(each, Sequence, Either) for each in parts)
            case Both(parts=parts):
                return " and ".join(inner(each, Sequence, Either, Both) for each in parts)
        assert_never(part)

    def inner(part: Pattern, *looser: type) -> str:
        """A part of a join; in parentheses if it does not bind tighter than the join."""
        return f"({text(part)})" if isinstance(part, looser) else text(part)

    return text(pattern)
