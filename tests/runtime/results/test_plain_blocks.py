"""Blocks that only put something out: in columns as by the interpreter, whatever the values are."""

from __future__ import annotations

import random
from typing import Any

import pytest

import ensue
from querylang import compile_text
from runtime.results import outputs
from runtime.results.plain_blocks import plain_block

EVENTS = """
event A { integer k; integer n; float v; string s; boolean f; }
event B { integer k; integer n; float v; string s; boolean f; }
event Out { integer n; float v; string s; boolean f; }
event Pair { string s; integer n; }
"""
INTEGERS = ("a.n", "b.n", "a.k", "a.n + b.n", "a.n * 3", "a.n / b.n", "a.n % b.n", "-a.n", "7")
FLOATS = ("a.v", "b.v", "a.v / b.v", "a.v * 1e300", "-b.v", "a.v - b.v", "0.1", "sum")
TEXTS = ("a.s", "b.s", '"x"', "a.s + b.s", '"\\"é" + a.s', "word")
BOOLEANS = ("a.f", "a.n < b.n", "not b.f", "a.s = b.s", "true")
STATEMENTS = (
    "route Out({n}, {v}, {s}, {f});",
    'send Out({n}, {v}, {s}, {f}) to "out";',
    'send Pair({s}, {n}) to "com.apama.queries";',
    "emit Pair({s}, {n});",
    'emit Pair({s}, {n}) to "old";',
    'send b to "copies";',
    'print {s} + ": " + ({n}).toString() + " " + ({v}).toString() + " " + ({f}).toString();',
    "print {s};",
    "log {s} at WARN;",
)
TAKES = "query Takes { inputs { Out() within 30.0; } find Out as o { print o.s; } }"


def a_text(chance: random.Random) -> str:
    def filled(statement: str) -> str:
        parts = {"n": INTEGERS, "v": FLOATS, "s": TEXTS, "f": BOOLEANS}
        return statement.format(**{name: chance.choice(choices) for name, choices in parts.items()})

    block = " ".join(filled(chance.choice(STATEMENTS)) for _ in range(chance.randint(1, 4)))
    find = "find A as a -> B as b select a.v + b.v as sum select a.s as word"
    query = f"query Q {{ inputs {{ A() key k within 20.0; B() key k within 20.0; }} {find} {{ {block} }} }}"
    return f"{EVENTS}{query}{TAKES if chance.random() < 0.6 else ''}"


def rows(chance: random.Random) -> list[dict[str, Any]]:
    at, found, has_nulls = 100, [], chance.random() < 0.5
    for _ in range(chance.randint(5, 40)):
        at += chance.choice([0, 1, 2])
        row = {
            "k": chance.choice([1, 2]),
            "n": chance.choice([0, 1, -3, 2**63 - 1, -(2**63)]),
            "v": chance.choice(
                [0.0, -0.0, 1.5, 1e-5, 1e-4, 1e15, 1e16, 123456789.125, 1e21, float("inf"), float("nan")]
            ),
            "s": chance.choice(["", "a", 'é"\\', "\n\t\x07", "x" * 20_000, "🙂"]),
            "f": chance.choice([True, False]),
        }
        if has_nulls and chance.random() < 0.3:
            row[chance.choice("nvsf")] = None
        found.append({"at": at, "event": chance.choice("AB"), **row})
    return found


def shown(result: Any) -> Any:
    return [repr(row) for row in result.outputs.to_dict("records")], repr(result.matches.to_dict("records"))


@pytest.mark.parametrize("block", range(4))
def test_in_columns_and_by_the_interpreter(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "LEAST_IN_COLUMNS", 0)
    count = plain = 0
    for seed in range(40 * block, 40 * block + 40):
        chance = random.Random(seed)
        text, given = a_text(chance), rows(chance)
        plan = compile_text(text).plan
        plain += plain_block(plan, plan.queries[0]) is not None
        found = shown(ensue.replay(text, given))
        with monkeypatch.context() as patch:
            patch.setattr(outputs, "plain_block", lambda plan, query: None)
            expected = shown(ensue.replay(text, given))
        assert found == expected, (seed, text, given)
        count += len(found[0])
    assert count > 400
    assert plain == 40


@pytest.mark.parametrize(
    "block",
    [
        "integer n := a.n; print n.toString();",
        "if a.f { print a.s; }",
        "send a to b.s;",
        "print a.s.toLower();",
        "route Out(a.n.abs(), a.v, a.s, a.f);",
    ],
)
def test_a_block_that_does_more_is_left_to_the_interpreter(block: str) -> None:
    find = "find A as a -> B as b"
    text = f"{EVENTS}query Q {{ inputs {{ A() key k within 9.0; B() key k within 9.0; }} {find} {{ {block} }} }}"
    plan = compile_text(text).plan
    assert plain_block(plan, plan.queries[0]) is None


def test_blocks_of_a_key_that_were_cut_off_are_not_run_in_columns_either() -> None:
    assert outputs.LEAST_IN_COLUMNS <= 23, "so many matches are looked at in columns"
    text = (
        "event A { integer k; string s; }\n"
        "query Q { inputs { A() key k within 9.0; } find A as a { print a.s + a.s; } }"
    )
    given = [{"at": at, "event": "A", "k": 1, "s": "x" * 6_000_000} for at in range(21)]
    given += [{"at": 30, "event": "A", "k": key, "s": "short"} for key in (1, 2)]
    kinds = [(row["kind"], (row["text"] or "")[:10]) for row in ensue.replay(text, given).outputs.to_dict("records")]
    assert [kind for kind, _ in kinds[:21]] == ["error"] * 21
    assert kinds[21:] == [("error", "not run: t"), ("print", "shortshort")]
