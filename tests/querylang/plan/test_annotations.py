"""Annotations of event types in plans: kept for texts that come later, unknown to engines."""

from __future__ import annotations

import querylang
from job_engine.wire.plan_text import load_plan, plan_text, template_text
from querylang.plan.model import EventType, from_dict, to_dict

PLAIN = "package com.x; event Beat { float ts; } event A { float ts; } query Q { inputs { A() within 9.0; } find A:a }"
ANNOTATED = PLAIN.replace("event A", '@TimeFrom("ts") @Heartbeat("com.x.Beat") event A')


def test_a_plan_keeps_annotations_with_the_names_of_the_plan() -> None:
    plan = querylang.compile_text(ANNOTATED).plan
    assert plan.event("A").annotations == ("ts", "Beat", False)
    assert from_dict(to_dict(plan)) == plan == load_plan(template_text(plan))


def test_a_plan_has_the_earliest_version_that_has_all_its_parts() -> None:
    annotated, plain = (querylang.compile_text(text).plan for text in (ANNOTATED, PLAIN))
    earlier = [plan.with_failing_nulls() for plan in (annotated, plain)]
    assert [to_dict(plan)["version"] for plan in (annotated, plain, *earlier)] == [6, 6, 5, 3]


def test_a_plan_that_stores_values_has_a_later_version() -> None:
    text = PLAIN.replace("within 9.0", "within 9.0 new by ts within 1 day")
    plan = querylang.compile_text(text).plan
    assert [to_dict(item)["version"] for item in (plan, plan.with_failing_nulls())] == [7, 7]
    assert from_dict(to_dict(plan)) == plan


def test_a_plan_that_asks_for_nulls_or_has_lists_as_parameters_has_a_later_version() -> None:
    for before, after in {
        "find A:a": "find A:a where a.ts is null",
        "within 9.0": "within 9.0; } find A:a select a.ts is not null as known { } } query R { inputs { A() within 9.0",
        "inputs": "parameters { sequence<float> most := [1.0]; } inputs",
    }.items():
        plan = querylang.compile_text(PLAIN.replace(before, after)).plan
        assert to_dict(plan)["version"] == 7
        assert from_dict(to_dict(plan)) == plan == load_plan(template_text(plan))


def test_a_plan_without_a_rule_for_nulls_has_the_earlier_one() -> None:
    plan = querylang.compile_text(PLAIN).plan
    earlier = to_dict(plan.with_failing_nulls())
    assert "nulls_fail" not in earlier["plan"]["queries"][0]
    assert [query.nulls_fail for query in from_dict(earlier).queries] == [True]
    assert [query.nulls_fail for query in from_dict(to_dict(plan)).queries] == [False]


def test_what_engines_get_has_no_annotations() -> None:
    plan = querylang.compile_text(ANNOTATED).plan
    assert load_plan(plan_text(plan)) == plan.without_annotations()
    assert plan.without_annotations().event("A") == EventType("A", plan.event("A").fields)
