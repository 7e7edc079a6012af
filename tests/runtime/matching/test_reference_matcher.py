"""The reference matcher on the worked examples of the rules."""

from __future__ import annotations

from typing import Any

import pytest

from querylang import compile_text
from querylang.plan.expression import Binary, Expression, FieldOf, Type
from querylang.plan.model import ACCEPT, QueryPlan, State, Transition
from runtime.interpreter.values import Event, Value
from runtime.matching.reference import ReferenceMatcher, ReleasedEvent
from tests.runtime.plans import A, a_plan, a_query, an_input, chain

MINUTE = 60_000_000


def compare(left: int, sign: str, right: int, field: str = "id", type_: Type = Type.INTEGER) -> Expression:
    return Binary(Type.BOOLEAN, sign, FieldOf(type_, left, field), FieldOf(type_, right, field))


def event(time: int, input_: int = 0, **values: Value) -> ReleasedEvent:
    return ReleasedEvent(input_, time, Event(A, values))


def matches(query: QueryPlan, *released: ReleasedEvent, kept: int = 0) -> list[tuple[int, tuple[int, ...]]]:
    """For each match the latest event's position and those of its members; the first `kept` events are not new."""
    found = ReferenceMatcher(a_plan(query), query).matches(released, range(len(released)), kept)
    return [(latest, tuple(bound[term][0] for term in range(len(query.terms)))) for latest, bound in found.matches]


class Counted(list[ReleasedEvent]):
    """Events that count how often one of them is read."""

    reads = 0

    def __getitem__(self, place: Any) -> Any:
        self.reads += 1
        return super().__getitem__(place)


@pytest.mark.parametrize("window", [{"within": 30}, {"retain": 3}, {"within": 30, "retain": 100}])
def test_a_search_reads_the_events_in_its_windows_however_many_a_key_has(window: dict[str, int]) -> None:
    query = chain([an_input(**window)], (0, 0), [compare(0, "<", 1)])
    reads = []
    for count in (100, 1_000):
        events = Counted(event(10 * number, id=number) for number in range(count))
        found = ReferenceMatcher(a_plan(query), query).matches(events, range(count), count - 50)
        assert [latest for latest, _ in found.matches] == list(range(count - 50, count))
        reads.append(events.reads)
    assert reads[0] == reads[1]


def test_a_wait_at_the_end_reads_the_events_until_it_is_due() -> None:
    text = "event A { integer id; }\nquery Q { inputs { A() within 5.0; } find A as a -> wait(3.0) without A as w where w.id < a.id }"
    plan = compile_text(text).plan
    reads = []
    for count in (100, 1_000):
        events = Counted(
            ReleasedEvent(0, number * 1_000_000, Event(plan.events[0], {"id": number})) for number in range(count)
        )
        matcher, key = ReferenceMatcher(plan, plan.queries[0]), range(count)
        assert all(matcher.outlives(events, {0: (at,)}, at, (at + 3) * 1_000_000, key, is_new=True) for at in range(50))
        reads.append(events.reads)
    assert reads[0] == reads[1]


def test_retain_three_with_other_city() -> None:
    query = chain([an_input(retain=3)], (0, 0), [compare(0, "!=", 1, "city", Type.STRING)])
    cities = ["Dublin", "London", "London", "London", "Paris"]
    events = [event(number * 10 * MINUTE, city=city) for number, city in enumerate(cities)]
    assert matches(query, *events) == [(1, (0, 1)), (2, (0, 2)), (4, (3, 4))]


def test_the_most_recent_candidate_wins() -> None:
    query = chain([an_input(within=100)], (0, 0))
    assert matches(query, event(1), event(2), event(3)) == [(1, (0, 1)), (2, (1, 2))]


def test_input_within_is_strict() -> None:
    query = chain([an_input(within=30)], (0, 0))
    assert matches(query, event(0), event(30)) == []
    assert matches(query, event(1), event(30)) == [(1, (0, 1))]


def test_pattern_within_is_strict() -> None:
    query = chain([an_input(within=100)], (0, 0, 0), within=30)
    assert matches(query, event(0), event(10), event(30)) == []
    assert matches(query, event(1), event(10), event(30)) == [(2, (0, 1, 2))]


def test_equal_times_follow_the_total_order() -> None:
    query = chain([an_input(within=10)], (0, 0))
    assert matches(query, event(5), event(5)) == [(1, (0, 1))]


def test_an_earlier_term_never_fires() -> None:
    query = chain([an_input("A", within=10), an_input("B", within=10)], (0, 1))
    assert matches(query, event(1, 1), event(2, 0)) == []


def test_events_that_were_there_may_be_bound_but_begin_nothing() -> None:
    query = chain([an_input(within=10)], (0, 0))
    assert matches(query, event(1), event(2), event(3), kept=2) == [(2, (1, 2))]


def test_nothing_is_consumed() -> None:
    query = chain([an_input("A", within=10), an_input("B", within=10)], (0, 1))
    assert matches(query, event(1), event(2, 1), event(3, 1)) == [(1, (0, 1)), (2, (0, 2))]


def test_a_newer_middle_is_tried_with_every_older_first() -> None:
    query = chain([an_input(within=100)], (0, 0, 0), [compare(0, ">", 1)])
    events = [event(1, id=9), event(2, id=5), event(3, id=5), event(4, id=0)]
    assert matches(query, *events)[-1] == (3, (0, 2, 3))


def test_a_condition_without_a_value_is_false() -> None:
    query = chain([an_input(within=100)], (0, 0), [compare(0, "!=", 1)])
    assert matches(query, event(1, id=None), event(2, id=1)) == []


def test_events_of_other_inputs_take_no_retain_slot() -> None:
    query = chain([an_input("A", retain=1), an_input("B", retain=1)], (0, 1))
    assert matches(query, event(1), event(2, 1), event(3, 1)) == [(1, (0, 1)), (2, (0, 2))]


def test_one_event_may_be_bound_to_two_names() -> None:
    """`(X as x -> A as a1) and (Y as y -> A as a2)` over X1 A1 Y1 A2: both sides take A2."""
    both = Transition(2, (1, 3), (), 1)
    x_or_y = State((Transition(0, (0,), (), 2), Transition(1, (2,), (), 3)))
    y, x = State((Transition(1, (2,), (), ACCEPT),)), State((Transition(0, (0,), (), ACCEPT),))
    inputs = tuple(an_input(name, within=100) for name in "XYA")
    query = a_query(inputs, [("x", 0), ("a1", 2), ("y", 1), ("a2", 2)], [State((both,)), x_or_y, y, x])
    assert matches(query, event(1, 0), event(2, 2), event(3, 1), event(4, 2)) == [(3, (0, 3, 2, 3))]
