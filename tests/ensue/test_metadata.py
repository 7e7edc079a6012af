"""What queries say of themselves: their metadata in matches and outputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ensue
import querylang
from ensue.live.state import SavedLive, identity_of
from querylang.changes import keeps_state
from querylang.plan.model import from_dict, to_dict
from runtime.results.for_users import match_difference

EVENT = "event A { string k; integer n; } event B { string k; integer n; }\n"
HIGH = 'metadata { "severity": "high", "technique": "T1110" }'
RULE = """query {name} {{
    {metadata}
    inputs {{ A() key k within 10.0; }}
    find A as a -> A as b select a.n + b.n as {select} {{ print a.k; route B("x", b.n); integer z := 1 / (a.n - 1); }}
}}
"""
ROWS = [{"at": at, "k": k, "n": at} for at, k in enumerate("xxyy", 1)]
TOLD = {"severity": "high", "technique": "T1110"}


def rule(name: str, metadata: str = HIGH, select: str = "total") -> str:
    return RULE.format(name=name, metadata=metadata, select=select)


def told(row: dict[str, Any]) -> list[tuple[str, Any]]:
    """What a row says of its query."""
    return [(name, row[name]) for name in ("metadata", "severity") if name in row]


BOTH = [("metadata", TOLD), ("severity", "high")]


def test_matches_outputs_routed_rows_and_errors_say_what_their_query_says() -> None:
    found = ensue.replay(EVENT + rule("Rule"), ROWS)
    assert [told(match) for match in found.match_objects()] == [BOTH] * 2
    assert {row["kind"]: told(row) for row in found.output_objects()} == dict.fromkeys(
        ("print", "route", "error"), BOTH
    )
    assert found.matches["severity"].tolist() == ["high"] * 2
    assert found.matches["metadata"].tolist() == [TOLD] * 2
    assert set(found.outputs["severity"]) == {"high"}
    assert found.to_arrow().column("metadata").to_pylist() == [list(TOLD.items())] * 2


def test_a_query_without_metadata_has_no_column() -> None:
    found = ensue.replay(EVENT + rule("Plain", ""), ROWS)
    assert not {"metadata", "severity"} & {*found.matches, *found.outputs, *found.match_objects()[0]}
    assert all(told(row) == [] for row in found.output_objects())
    assert to_dict(querylang.compile_text(EVENT + rule("Plain", "")).plan.without_routes())["version"] == 6


def test_of_several_queries_those_without_say_nothing() -> None:
    rules = rule("Rule") + rule("Plain", "") + rule("Mild", 'metadata { "owner": "us" }')
    found = ensue.replay(EVENT + rules, ROWS)
    said = dict(zip(found.matches["query"], found.matches["severity"].fillna("-"), strict=True))
    assert said == {"Rule": "high", "Plain": "-", "Mild": "-"}
    assert said == dict(zip(found.outputs["query"], found.outputs["severity"].fillna("-"), strict=True))
    assert [name in found.matches_of("Mild") for name in ("metadata", "severity")] == [True, False]
    assert found.to_arrow().column_names[-2:] == ["metadata", "severity"]


@pytest.mark.parametrize(
    "text",
    [
        rule("Own", select="severity"),
        rule("Own", select="Severity"),
        rule("Own").replace("as b", "as severity").replace("b.n", "severity.n"),
        rule("Own").replace("key k", "key k as severity"),
        rule("Own").replace("A as b", "wait(1.0) as severity").replace("b.n", "a.n"),
    ],
    ids=["select", "in upper case", "event", "key", "wait"],
)
def test_a_name_of_the_user_wins(text: str) -> None:
    found = ensue.replay(EVENT + text, ROWS)
    assert [told(match) for match in found.match_objects()] == [BOTH[:1]] * len(found)
    assert all(told(row) == BOTH[:1] for row in found.output_objects())
    assert [name for name in found.to_arrow().column_names if name.endswith("everity_")] == []


def test_of_a_key_that_stands_twice_the_last_value_counts() -> None:
    text = EVENT + rule("Rule", 'metadata { "severity": "low", "severity": "high", "technique": "T1110" }')
    assert [warning.code for warning in querylang.check_text(text).warnings] == ["metadata-twice"]
    assert told(ensue.replay(text, ROWS).match_objects()[0]) == BOTH


def test_an_answer_of_open_queries_has_them_before_and_after_it_is_read() -> None:
    """Few matches become DataFrames on a way of their own."""
    live = ensue.open(EVENT + rule("Rule"))
    live.send(ROWS[:1])
    answer = live.send(ROWS[1:2])
    assert answer.matches["severity"].tolist() == ["high"]
    assert answer.matches["metadata"].tolist() == [TOLD]
    assert set(answer.outputs["severity"]) == {"high"}


def test_an_earlier_plan_and_a_state_of_it_have_no_columns(tmp_path: Path) -> None:
    text = EVENT + rule("Rule")
    plan = querylang.compile_text(text).plan.without_routes()
    assert (to_dict(plan)["version"], from_dict(to_dict(plan))) == (8, plan)
    without = plan.without_told()
    assert (to_dict(without)["version"], without.queries[0].told) == (6, {})
    assert keeps_state(without.queries[0], plan.queries[0], plan.events)
    live = ensue.open(text)
    live.send(ROWS[:1])
    live.save(tmp_path / "state")
    saved = SavedLive.from_bytes((tmp_path / "state").read_bytes())
    for earlier in plan.earlier():
        (tmp_path / "old").write_bytes(replace(saved, plan=identity_of(earlier)[0]).to_bytes())
        again = ensue.open(text, state=tmp_path / "old")
        assert [told(match) for match in again.send(ROWS[1:2]).match_objects()] == [[]]


def test_what_a_query_says_is_no_difference_of_what_it_finds() -> None:
    mild = rule("Rule", 'metadata { "severity": "low" }')
    found = [ensue.replay(EVENT + text, ROWS).match_objects() for text in (rule("Rule"), mild, rule("Rule", ""))]
    assert all(match_difference(found[0], other).is_equal for other in found)
    own = [ensue.replay(EVENT + text, ROWS).match_objects() for text in (rule("Rule", select="severity"), rule("Rule"))]
    assert not match_difference(*own).is_equal
