"""Dataclasses whose methods are compiled at first use, beside those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from querylang import dataclass as ours

_ABSENT = object()
_SETTINGS = [
    dict(zip(("frozen", "slots", "eq", "repr"), values, strict=True))
    for values in itertools.product((False, True), repeat=4)
] + [{"order": True}, {"frozen": True, "order": True, "slots": True}]


def _both(settings: dict[str, bool]) -> list[type[Any]]:
    """One class with the standard library's methods, one with ours; both say that they are named alike."""
    return [_class(decorate(**settings)) for decorate in (dataclasses.dataclass, ours.dataclass)]


def _class(decorate: Callable[[type[Any]], type[Any]]) -> type[Any]:
    class Point:
        """A point."""

        x: float
        name: str = "origin"
        tags: list[str] = dataclasses.field(default_factory=list, compare=False)
        secret: str = dataclasses.field(default="s", repr=False)
        size: int = dataclasses.field(init=False, default=0)
        seen: list[int] = dataclasses.field(init=False, default_factory=list, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "size", len(self.name))

    return decorate(Point)


def _answer(action: Callable[[], Any]) -> Any:
    """What an action gives, or the type and text of what it raises."""
    try:
        return action()
    except (TypeError, AttributeError) as error:
        return type(error).__name__, str(error).replace("__init__()", "").replace("Point.", "").strip()


@pytest.mark.parametrize("settings", _SETTINGS, ids=lambda it: "+".join(name for name, on in it.items() if on))
def test_behaves_as_the_standard_librarys(settings: dict[str, bool]) -> None:
    theirs, own = _both(settings)
    arguments: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((1.0,), {}),
        ((1.0, "a"), {}),
        ((), {"x": float("nan"), "name": "b", "tags": ["t"]}),
        ((2.0,), {"secret": "z"}),
        ((), {}),
        ((1.0,), {"size": 3}),
        ((1.0, "a", [], "s", 5), {}),
    ]
    for (given, named), (other_given, other_named) in itertools.product(arguments, arguments):
        answers = []
        for kind in (theirs, own):
            one = _answer(partial(kind, *given, **named))
            other = _answer(partial(kind, *other_given, **other_named))
            if isinstance(one, tuple) or isinstance(other, tuple):
                answers.append((one if isinstance(one, tuple) else "", other if isinstance(other, tuple) else ""))
                continue
            answers.append(_facts(one, other, settings))
        assert answers[0] == answers[1], (given, named, other_given, other_named)


def _facts(one: Any, other: Any, settings: dict[str, bool]) -> list[Any]:
    facts: list[Any] = [one == other, one == one, one != other, one == 3, dataclasses.asdict(one).keys()]  # noqa: PLR0124
    facts += [repr(one) if settings.get("repr", True) else "", type(one).__match_args__]
    if settings.get("eq", True):
        facts.append(_answer(lambda: hash(one) == hash(other)))
    facts += [_answer(lambda: one < other), _answer(lambda: one >= other), _answer(lambda: one < 3)]
    facts += [_answer(lambda: setattr(one, "x", 4.0)), _answer(lambda: delattr(one, "name"))]
    facts += [getattr(one, name, _ABSENT) is _ABSENT for name in ("x", "name", "__dict__")]
    return facts


def _deep(kind: type[Any]) -> Any:
    made = kind(1)
    made.inner.append(made)
    return made


def test_shows_what_contains_itself() -> None:
    @ours.dataclass
    class Ring:
        value: int
        inner: list[Ring] = ours.field(default_factory=list)

    assert repr(_deep(Ring)).endswith("Ring(value=1, inner=[...])")


@ours.dataclass(frozen=True, slots=True)
class _Base:
    x: int


@ours.dataclass(frozen=True, slots=True)
class _Derived(_Base):
    y: int = 2


class _Plain(_Derived):
    pass


def test_shows_its_parameters() -> None:
    theirs, own = _both({"frozen": True})
    shown = [re.sub(r"= ?<[^>]*>", "=<factory>", str(inspect.signature(kind))) for kind in (theirs, own)]
    assert shown[0].removesuffix(" -> None") == shown[1].removesuffix(" -> None")
    assert "name: 'str' = 'origin'" in shown[1]


def test_is_copied_pickled_replaced_and_matched() -> None:
    made = _Derived(1)
    assert [copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))] == [made] * 3
    assert ours.replace(made, y=5) == _Derived(1, 5)
    match made:
        case _Derived(x, y):
            assert (x, y) == (1, 2)
    assert _Base(1) != made


def test_a_plain_subclass_has_attributes_of_its_own_but_the_fields_stay() -> None:
    made = _Plain(1)
    made.other = 3  # type: ignore[attr-defined]
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.x = 4  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        _Derived(1).other = 4  # type: ignore[attr-defined]


def test_nothing_is_compiled_until_it_is_called() -> None:
    text = (
        "import builtins, sys\n"
        "compiled = []\n"
        "plain = builtins.exec\n"
        "builtins.exec = lambda text, *more: (compiled.append(text), plain(text, *more))\n"
        "from querylang.dataclass import dataclass\n"
        "@dataclass(frozen=True, slots=True)\n"
        "class A:\n"
        "    x: int\n"
        "found = [text for text in compiled if isinstance(text, str) and '_set_' in text]\n"
        "assert found == [], found\n"
        "assert A(1) == A(1)\n"
        "found = [text for text in compiled if isinstance(text, str) and ('_set_' in text or 'NotImplemented' in text)]\n"
        "assert len(found) == 2, compiled\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True)
