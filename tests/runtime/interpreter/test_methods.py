"""Every method of the language's tables has a meaning, and each means what `methods.cases` says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from querylang.plan.expression import Call, Kind, LocalOf, Type
from querylang.plan.library import METHODS, STATIC_METHODS, method_of, methods_of, static_method_of
from querylang.plan.model import EventType, Field, Plan
from runtime.interpreter.context import Context, PlanWorld
from runtime.interpreter.expressions import evaluate
from runtime.interpreter.values import EvaluationError, Event, Value, inner_text
from runtime.interpreter.written_values import parse_value

FILE = Path(__file__).with_name("methods.cases")
WORLD = PlanWorld(Plan((EventType("A", (Field("i", Type.INTEGER), Field("s", Type.STRING))),), ()))


@dataclass(frozen=True, slots=True)
class Case:
    """A line of the file: what is called on what, and what it gives."""

    type: Type
    receiver: str
    method: str
    arguments: tuple[str, ...]
    result: str

    @property
    def is_static(self) -> bool:
        return "." in self.method


def cases(text: str) -> Iterator[Case]:
    for line in text.splitlines():
        if line and not line.startswith("#"):
            type_, receiver, method, arguments, result = (cell.strip() for cell in line.split("|"))
            yield Case(Type.parse(type_), receiver, method, tuple(filter(None, arguments.split(" ; "))), result)


def value(text: str, type_: Type) -> Value:
    read = parse_value(text, type_, WORLD)
    if isinstance(read, Event):
        read.time = 1_500_000
    return read


def outcome(case: Case) -> str:
    """What calling the method gives, in event syntax."""
    owner = Type.parse(case.method.rpartition(".")[0]) if case.is_static else case.type
    signature = (
        static_method_of(owner, case.method.rpartition(".")[2]) if case.is_static else method_of(owner, case.method)
    )
    assert signature is not None, f"{case.method} stands in no table"
    types = signature.parameters if case.is_static else (case.type, *signature.parameters)
    given = (case.receiver, *case.arguments)
    context = Context(locals=[value(text, type_) for text, type_ in zip(given, types, strict=False)], world=WORLD)
    slots = [LocalOf(type_, slot) for slot, type_ in enumerate(types[: len(given)])]
    try:
        result = evaluate(Call(signature.result or case.type, case.method, slots[0], tuple(slots[1:])), context)
    except EvaluationError as error:
        return f"! {error}"
    return (
        inner_text(context.locals[0], case.type) if signature.result is None else inner_text(result, signature.result)
    )


CASES = list(cases(FILE.read_text("utf-8")))


def check(case: Case) -> None:
    assert outcome(case) == case.result


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.type}.{case.method}")
def test_a_method_gives(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("line", ["integer | 2 | pow | 3 | 9", "integer | 2 | pow | 4 | 8", "integer | 2 | abs | | 8"])
def test_a_wrong_expectation_is_noticed(line: str) -> None:
    (case,) = cases(line)
    with pytest.raises(AssertionError):
        check(case)


def test_every_method_has_a_case() -> None:
    missing = {(kind, method.name) for method in METHODS for kind in method.kinds}
    missing -= {(case.type.kind, case.method) for case in CASES if not case.is_static}
    static = {(kind, method.name) for method in STATIC_METHODS for kind in method.kinds}
    static -= {(case.type.kind, case.method.rpartition(".")[2]) for case in CASES if case.is_static}
    assert (missing, static) == (set(), set())


@pytest.mark.parametrize("kind", list(Kind))
def test_no_method_stands_twice(kind: Kind) -> None:
    names = [method.name for method in METHODS if kind in method.kinds]
    assert names == list(dict.fromkeys(names)) == methods_of(Type(kind))
