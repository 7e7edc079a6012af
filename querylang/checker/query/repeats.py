"""Check repeats: their numbers, and what can be repeated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from querylang.checker.diagnostics import Diagnostics
from querylang.errors import Mistake
from querylang.plan.text import repeat_text
from querylang.syntax import ast


@dataclass(frozen=True, slots=True)
class RepeatOf:
    """How a term is repeated.

    - `group`: the number of its repeat, if it is a run; the terms of one repeated group have the
      same.
    - `is_optional`: by the sign `?`: it is one event or unset.
    - `may_be_empty`: it may take no event.
    """

    group: int | None = None
    is_optional: bool = False
    may_be_empty: bool = False

    @property
    def is_run(self) -> bool:
        """Whether its name means a sequence of events."""
        return self.group is not None

    @classmethod
    def of(cls, node: ast.PatternRepeat, number: int) -> RepeatOf:
        """That of the terms in a repeat."""
        is_optional = node.sign == "?"
        return cls(None if is_optional else number, is_optional, node.least == 0)


NO_REPEAT = RepeatOf()


def refuse_repeat(node: ast.PatternRepeat, diagnostics: Diagnostics) -> bool:
    """Report what is wrong with a repeat; whether something is."""
    text = repeat_text(node.least, node.most, node.sign, is_consecutive=False).strip()
    mistake = None
    if node.most == 0:
        mistake = Mistake.REPEAT_NEVER
    elif node.most is not None and node.least > node.most:
        mistake = Mistake.REPEAT_BOUNDS
    if mistake is not None:
        diagnostics.report(mistake, node.span, text=text)
        return True
    for part, found in _refused(node.inside):
        diagnostics.report(Mistake.REPEAT_INSIDE, part.span, found=found)
        return True
    return False


def _refused(inside: ast.Pattern) -> Iterator[tuple[ast.Pattern, str]]:
    """The parts of a repeated group that it must not have, and what they are called."""
    match inside:
        case ast.PatternTerm():
            return
        case ast.PatternWait():
            yield inside, "a `wait`"
        case ast.PatternRepeat(inside=ast.PatternJoin()):
            yield inside, "a group"
        case ast.PatternRepeat():
            yield inside, "a repeat"
        case ast.PatternJoin(operator="->", parts=parts):
            for part in parts:
                yield from _refused(part)
        case ast.PatternJoin(operator=operator):
            yield inside, f"`{operator}`"
