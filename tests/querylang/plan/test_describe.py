"""The text of a plan and its graph, whole: `explain/*.query` beside what is printed of them.

`NAME.out` holds what `describe_plan` prints, `NAME.dot` the graph of each query.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from querylang import bind, compile_paths, compile_text, describe, describe_plan, to_dot
from querylang.plan.model import Plan, Where
from querylang.plan.text import Names, duration_text, expression_text

FOLDER = Path(__file__).parent / "explain"
QUERIES = sorted(FOLDER.glob("*.query"))


def plan_of(path: Path) -> Plan:
    return compile_paths([path]).plan


def printed(path: Path) -> dict[str, str]:
    """What the files beside a query should hold, by their suffix."""
    plan = plan_of(path)
    graphs = "\n\n".join(to_dot(query) for query in plan.queries)
    return {".out": f"{describe_plan(plan)}\n", ".dot": f"{graphs}\n"}


def check(path: Path, suffix: str) -> None:
    assert printed(path)[suffix] == path.with_suffix(suffix).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
@pytest.mark.parametrize("suffix", [".out", ".dot"])
def test_what_is_printed_of_a_query(path: Path, suffix: str) -> None:
    check(path, suffix)


@pytest.mark.parametrize(
    ("suffix", "found", "altered"), [(".out", "within 30 seconds", "within 31 seconds"), (".dot", "digraph", "graph")]
)
def test_an_altered_expectation_fails(tmp_path: Path, suffix: str, found: str, altered: str) -> None:
    for beside in (".query", suffix):
        shutil.copy(FOLDER / f"bare{beside}", tmp_path)
    path = tmp_path / "bare.query"
    check(path, suffix)
    expected = path.with_suffix(suffix).read_text(encoding="utf-8")
    path.with_suffix(suffix).write_text(expected.replace(found, altered), encoding="utf-8")
    with pytest.raises(AssertionError):
        check(path, suffix)


def test_an_instance_shows_its_numbers() -> None:
    (query,) = plan_of(FOLDER / "improbable_withdrawals.query").queries
    lines = describe(bind(query, {"period": 90, "least": 2.5}, "eu")).splitlines()
    assert [line.strip() for line in lines if any(word in line for word in ("query", "float", "key", "only"))] == [
        "query ImprobableWithdrawals/eu",
        "float period := 90.0",
        "float least := 2.5",
        "Withdrawal key card within 1 minute 30 seconds retain 100",
        "only amount > 2.5",
        "action total(Withdrawal v1, Withdrawal v2) returns float",
        (
            "Withdrawal: at most the events of 1 minute 30 seconds, and of these 100 events, per key; "
            "before that, held for at most 20 seconds"
        ),
    ]


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (1, "0.000001 seconds"),
        (1_500_000, "1.5 seconds"),
        (1_000_000, "1 second"),
        (90_000_000, "1 minute 30 seconds"),
        (86_400_000_000 + 7_200_000_000, "1 day 2 hours"),
    ],
)
def test_durations(length: int, text: str) -> None:
    assert duration_text(length) == text


EXPRESSIONS = [
    "a.x - (b.x - 1) - 2 = 3",
    "a.x - b.x * (1 + 2) % 3 < -a.x",
    "-(a.x + 1) = 3",
    "not a.b and (a.b or not (a.b xor b.b))",
    "(a.x = 1) = (b.x = 2)",
    "(a.b or b.b) = true",
    '(a.x + 1).toString() + a.toString() = "say \\"hi\\" \\\\ \\n"',
    "a.y < infinity",
    "a.x.toFloat() / 2.5e-07 > 1.0",
    "a.d * 1.5d > 2.0d",
    "a.s[a.x] = b.s[0]",
    '{"a": 1, "b": a.x} = a.m and [1, 2, 3].size() = 3',
    'integer.parse("3") = a.x.max(3)',
    "a = b and a = A(1, true, 1.0, 1.0d, new sequence<integer>, location(0.0, 0.0, 1.0, 1.0), a.m)",
    "a.l.x1 > a.getTime()",
    "close(a, b.x) or a.twice(3) = 6",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_is_written_as_it_was_read(text: str) -> None:
    event = """event A { integer x; boolean b; float y; decimal d; sequence<integer> s; location l; dictionary<string, integer> m;
        action twice(integer n) returns integer { return n * 2; } }"""
    action = "action close(A one, integer n) returns boolean { return one.x < n; }"
    query = f"inputs {{ A() within 3; }} find A as a -> A as b where ({text}) or false; {action}"
    (where,) = compile_text(f"{event} {query}").plan.queries[0].conditions
    assert isinstance(where, Where)
    assert expression_text(where.condition.left, Names(("a", "b"))) == text  # type: ignore[union-attr]
