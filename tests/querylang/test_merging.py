"""Changed files and live changes, three-way: what the files said, what they say, and what runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

import querylang
from querylang.changes import Applied, Moment, apply
from querylang.merging import FileChange, merge
from querylang.parameters import Given, with_instances
from querylang.plan.routing import DeployQuery, ReplaceQuery
from querylang.running import ChangeError, Running
from runtime.reading.control_events import parse_change

EVENT = "event A { integer k; float v; }\n"
Q = "query Q { parameters { float least := 1.0; float most := 9.0; } inputs { A() key k within 20 seconds; } find A:a -> A:b where b.v > a.v + least }"
Q_LONG = Q.replace("20 seconds", "30 seconds")
Q_SHORT = Q.replace("20 seconds", "10 seconds")
Q_PRINTS = Q.replace("+ least }", '+ least { print "found"; } }')
R = "query R { inputs { A() key k within 20 seconds; } find A:a -> A:b where b.v < a.v }"
R_LONG = R.replace("20 seconds", "30 seconds")
MOMENT = Moment(100_000_000, 120_000_000)


def files(*queries: str, values: Mapping[str, Any] | None = None, event: str = EVENT) -> Running:
    template = querylang.compile_text(event + "\n".join(queries)).plan
    return Running.of(template, with_instances(template, Given(values or {})))


def after(running: Running, *changes: str) -> Running:
    for text in changes:
        change = parse_change(text)
        assert change is not None
        applied = apply(change, running, MOMENT)
        assert not applied.is_refused, applied.outcomes
        running = applied.running
    return running


def merged(before: Running, now: Running, running: Running | None = None, *, returns: bool = True) -> Applied:
    return merge(FileChange(before, now, returns), before if running is None else running, MOMENT)


def shown(applied: Applied) -> list[str]:
    """By outcome its kind and whom it concerns."""
    return [f"{item.kind} {item.query}" + (f"/{item.instance}" if item.instance else "") for item in applied.outcomes]


def window(running: Running, name: str) -> object:
    return running.queries[name].current.template.inputs[0].within


def deployed(text: str) -> str:
    return f'DeployQuery("{text}")'


def replaced_live(text: str) -> str:
    return f'ReplaceQuery("{text}")'


def test_files_without_a_change_change_nothing() -> None:
    now = files(Q, R)
    applied = merged(now, files(Q, R))
    assert applied.outcomes == ()
    assert applied.running.plan() == now.plan()


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ((Q,), (Q, R), ["deployed R"]),
        ((Q, R), (Q,), ["undeployed R"]),
        ((Q,), (R,), ["deployed R", "undeployed Q"]),
        ((Q,), (Q_LONG,), ["replaced Q"]),
        ((Q, R), (R, Q), []),
        ((Q, R), (Q_PRINTS, R_LONG), ["replaced Q", "replaced R"]),
    ],
)
def test_what_changed_in_the_files_is_done(before: tuple[str, ...], now: tuple[str, ...], expected: list[str]) -> None:
    applied = merged(files(*before), files(*now))
    assert shown(applied) == expected
    assert set(applied.running.queries) == set(files(*now).queries)
    again = merge(FileChange(files(*before), files(*now), returns=True), applied.running, MOMENT)
    assert again.outcomes == ()


def test_a_replaced_text_hands_over_or_keeps_its_state() -> None:
    applied = merged(files(Q, R), files(Q_PRINTS, R_LONG))
    assert dict(applied.outcomes[0].details) == {"state": "kept"}
    assert dict(applied.outcomes[1].details) == {"state": "new", "handover": 150_000_000}
    assert list(applied.heirs.values()) == ["Q"]
    assert len(applied.running.queries["R"].versions) == 2


@pytest.mark.parametrize(
    ("live", "now", "expected", "queries"),
    [
        # queries that the files do not have
        ([deployed(R)], (Q,), [], {"Q": 20, "R": 20}),
        ([deployed(R)], (Q_LONG,), ["replaced Q"], {"Q": 30, "R": 20}),
        ([deployed(R)], (Q, R), [], {"Q": 20, "R": 20}),
        ([deployed(R)], (Q, R_LONG), ["replaced R"], {"Q": 20, "R": 30}),
        # texts that were replaced live
        ([replaced_live(Q_LONG)], (Q,), [], {"Q": 30}),
        ([replaced_live(Q_LONG)], (Q_LONG,), [], {"Q": 30}),
        ([replaced_live(Q_LONG)], (Q_SHORT,), ["replaced Q"], {"Q": 10}),
        ([replaced_live(Q_LONG), deployed(R)], (R,), ["undeployed Q"], {"R": 20}),
        # queries that were removed live
        ([deployed(R), 'UndeployQuery("Q")'], (Q,), ["deployed Q"], {"R": 20, "Q": 20}),
        ([deployed(R), 'UndeployQuery("Q")'], (Q_LONG,), ["deployed Q"], {"R": 20, "Q": 30}),
        ([deployed(R), 'UndeployQuery("Q")'], (R,), [], {"R": 20}),
    ],
)
def test_changes_of_files_win_over_live_changes_and_nothing_else_does(
    live: list[str], now: tuple[str, ...], expected: list[str], queries: dict[str, int]
) -> None:
    before = files(Q)
    applied = merged(before, files(*now), after(before, *live))
    assert shown(applied) == expected
    assert {name: window(applied.running, name) for name in applied.running.queries} == {
        name: seconds * 1_000_000 for name, seconds in queries.items()
    }


def test_a_removed_query_comes_back_only_on_request_or_with_another_text() -> None:
    before = files(Q, R)
    running = after(before, 'UndeployQuery("Q")')
    assert shown(merged(before, files(Q, R), running, returns=False)) == []
    assert shown(merged(before, files(Q_LONG, R), running, returns=False)) == ["deployed Q"]
    back = merged(before, files(Q, R), running)
    assert shown(back) == ["deployed Q"]
    assert back.running.queries["Q"].current.template.edition == 1


EU = {"Q": {"eu": {"least": 2.0}}}


def of(applied: Applied) -> dict[str, tuple[dict[str, Any], str]]:
    query = applied.running.queries["Q"]
    defaults = {"least": 1.0, "most": 9.0}
    return {
        name: (defaults | dict(values), query.value_origins.get(name, "file"))
        for name, values in query.instances.items()
    }


@pytest.mark.parametrize(
    ("live", "now", "expected", "values"),
    [
        # the files change
        ([], {"eu": {"least": 3.0}}, ["set Q/eu"], {"eu": (3.0, 9.0, "file")}),
        ([], {"us": {"least": 3.0}}, ["deployed Q/us", "removed Q/eu"], {"us": (3.0, 9.0, "file")}),
        # the files stay as they are
        (['SetParameters("Q", "eu", {"least": 5.0})'], {"eu": {"least": 2.0}}, [], {"eu": (5.0, 9.0, "live")}),
        (
            ['SetParameters("Q", "us", {"least": 5.0})'],
            {"eu": {"least": 2.0}},
            [],
            {"eu": (2.0, 9.0, "file"), "us": (5.0, 9.0, "live")},
        ),
        # both change
        (['SetParameters("Q", "eu", {"least": 5.0})'], {"eu": {"least": 3.0}}, ["set Q/eu"], {"eu": (3.0, 9.0, "file")}),
        (
            ['SetParameters("Q", "eu", {"least": 5.0})'],
            {"eu": {"least": 2.0, "most": 8.0}},
            ["set Q/eu"],
            {"eu": (5.0, 8.0, "live")},
        ),
        (['SetParameters("Q", "eu", {"least": 3.0})'], {"eu": {"least": 3.0}}, [], {"eu": (3.0, 9.0, "file")}),
        (
            ['SetParameters("Q", "us", {"most": 5.0})'],
            {"eu": {"least": 2.0}, "us": {"least": 3.0}},
            ["set Q/us"],
            {"eu": (2.0, 9.0, "file"), "us": (3.0, 9.0, "file")},
        ),
        (['SetParameters("Q", "eu", {"least": 5.0})'], {"us": {"least": 2.0}}, ["deployed Q/us", "removed Q/eu"], {"us": (2.0, 9.0, "file")}),
        # removed live
        (['RemoveInstance("Q", "eu")'], {"eu": {"least": 2.0}}, ["deployed Q/eu"], {"eu": (2.0, 9.0, "file")}),
        (['RemoveInstance("Q", "eu")'], {"us": {"least": 2.0}}, ["deployed Q/us"], {"us": (2.0, 9.0, "file")}),
    ],
)  # fmt: skip
def test_values_of_instances_are_merged_one_by_one(
    live: list[str], now: dict[str, Any], expected: list[str], values: dict[str, tuple[float, float, str]]
) -> None:
    before = files(Q, values=EU)
    applied = merged(before, files(Q, values={"Q": now}), after(before, *live))
    assert shown(applied) == expected
    found = {name: (own["least"], own["most"], origin) for name, (own, origin) in of(applied).items()}
    assert found == values


def test_an_instance_that_was_removed_live_stays_removed_at_a_plain_start() -> None:
    before = files(Q, values=EU)
    running = after(before, 'RemoveInstance("Q", "eu")')
    assert shown(merged(before, files(Q, values=EU), running, returns=False)) == []


def test_a_value_that_the_files_no_longer_have_is_the_default_again() -> None:
    before = files(Q, values={"Q": {"least": 4.0}})
    applied = merged(before, files(Q))
    assert shown(applied) == ["set Q"]
    assert of(applied) == {"": ({"least": 1.0, "most": 9.0}, "file")}


def test_a_new_text_and_its_values_are_applied_together() -> None:
    needs = Q.replace("float most := 9.0", "float limit").replace("+ least", "+ limit")
    before = files(Q, values=EU)
    applied = merged(before, files(needs, values={"Q": {"eu": {"least": 2.0, "limit": 4.0}}}))
    assert shown(applied) == ["replaced Q/eu", "set Q/eu"]
    assert [version.ends for version in applied.running.queries["Q"].versions] == [140_000_000, None]
    applied.running.plan()


def test_a_query_whose_parameters_have_no_values_is_deployed_idle() -> None:
    needs = R.replace("inputs", "parameters { float least; } inputs", 1).replace("a.v }", "a.v + least }")
    applied = merged(files(Q), files(Q, needs))
    assert shown(applied) == ["deployed R"]
    assert "once an instance has values" in applied.outcomes[0].text


@pytest.mark.parametrize(
    ("fields", "difference"),
    [
        ("integer k; float v; string more;", "'more' is new"),
        ("integer k; float v; optional<string> more;", "'more' is new"),
        ("string v; integer k; string w;", "'w' is new, 'v' is string, not float"),
        ("integer k;", "'v' is missing"),
        ("float v; integer k;", "they are in another order"),
    ],
)
def test_an_event_type_with_other_fields_is_refused(fields: str, difference: str) -> None:
    query = "query R { inputs { A() key k within 20 seconds; } find A:a }"
    other = files(query, event=f"event A {{ {fields} }}\n")
    with pytest.raises(ChangeError) as error:
        merged(files(Q), other)
    assert str(error.value) == f"event type 'A' is known with other fields: {difference}"


def test_new_event_types_come_behind_those_that_are_known() -> None:
    other = "query O { inputs { B() within 5 seconds; } find B:a -> B:b }"
    applied = merged(files(Q), files(Q, other, event="event B { integer k; }\n" + EVENT))
    assert [event.name for event in applied.running.events] == ["A", "B"]


TIMED = '@TimeFrom("k") @OutOfOrder() ' + EVENT


def annotations(running: Running) -> list[tuple[object, ...]]:
    return [event.annotations for event in running.events]


def test_annotations_of_files_count_where_they_have_changed() -> None:
    live = after(files(Q), replaced_live(TIMED + Q_LONG).replace('"k"', r"\"k\""))
    assert annotations(live) == [("k", None, True)]
    assert annotations(merged(files(Q), files(Q, R), live).running) == [("k", None, True)]
    assert annotations(merged(files(Q, event=TIMED), files(Q, R), live).running) == [(None, None, False)]
    assert annotations(merged(files(Q), files(Q, R, event=TIMED)).running) == [("k", None, True)]


def test_annotations_that_were_not_kept_are_those_of_the_files() -> None:
    kept = replace(files(Q), is_annotated=False)
    assert annotations(kept.annotated_by(files(Q, event=TIMED))) == [("k", None, True)]
    assert annotations(files(Q).annotated_by(files(Q, event=TIMED))) == [(None, None, False)]


def test_a_circle_through_a_text_that_is_replaced_names_the_way_out() -> None:
    types = EVENT + "event B { integer k; float v; }\n"
    routes = "query Q {{ inputs {{ {0}() key k within 9.0; }} find {0} as a {{ route {1}(a.k, a.v); }} }}"
    before = files(routes.format("A", "B"), event=types)
    for now, is_taken in ((False, False), (True, True)):
        change = ReplaceQuery(types + routes.format("B", "A"), now=now)
        applied = apply(change, before, MOMENT)
        assert applied.is_refused is not is_taken
        assert is_taken or "A replacement with `--now` ends it at once" in applied.outcomes[0].text
    both = types + routes.format("B", "A").replace("query Q", "query P")
    applied = apply(DeployQuery(both), before, MOMENT)
    assert "queries must not feed each other" in applied.outcomes[0].text
    assert "--now" not in applied.outcomes[0].text
