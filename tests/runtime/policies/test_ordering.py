"""Ordering policies: what can be written, what is refused and how, and how a policy becomes part of a plan."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

import querylang
from querylang.plan.model import Plan, TimelineKind, TimePolicy, from_dict, to_dict
from runtime.instants import NEVER, parse_moment
from runtime.policies.plan_policies import OrderingError, SourceOrdering, parse_ordering, parse_orderings, with_ordering
from runtime.policies.presets import apama, stream_analytics, streaminsight
from runtime.policies.settings_text import parse_duration
from runtime.timestamps import parse_times

SECOND = 1_000_000
MINUTE = 60 * SECOND

APAMA = TimePolicy("apama", TimelineKind.KEY, leeway=10 * SECOND, reorder=10 * SECOND)
STREAM_ANALYTICS = TimePolicy(
    "stream_analytics", TimelineKind.PARTITION, early=5 * MINUTE, max_delay=5 * SECOND, every=1, action="adjust"
)
STREAMINSIGHT = TimePolicy("streaminsight", TimelineKind.EVENT_TYPE, every=1, is_strict=True)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("apama", APAMA),
        ("apama leeway=5s reorder=1 min 30 s early=0", replace(APAMA, leeway=5 * SECOND, reorder=90 * SECOND, early=0)),
        ("apama leeway=infinity reorder=-1", replace(APAMA, leeway=NEVER, reorder=NEVER)),
        ("stream_analytics", STREAM_ANALYTICS),
        ("stream_analytics late=-1 early=none", replace(STREAM_ANALYTICS, max_delay=None, early=None)),
        ("stream_analytics late=0 out_of_order=599", replace(STREAM_ANALYTICS, max_delay=0, disorder=599 * SECOND)),
        ("stream_analytics late=20d 23h 59min 59s", replace(STREAM_ANALYTICS, max_delay=1_814_399 * SECOND)),
        ("stream_analytics\n  late = 300ms\n  action = drop", replace(STREAM_ANALYTICS, max_delay=300_000, action="drop")),
        ("stream_analytics over=card, region", replace(STREAM_ANALYTICS, timeline="substream", over=("card", "region"))),
        ("stream_analytics partitions=16", replace(STREAM_ANALYTICS, partitions=16)),
        ("stream_analytics start=2024-01-01 10:00:00", replace(STREAM_ANALYTICS, start=1_704_103_200 * SECOND)),
        ("streaminsight", STREAMINSIGHT),
        ("streaminsight every=3 delay=-1tick", replace(STREAMINSIGHT, every=3, disorder=-1)),
        ("streaminsight every=2 seconds delay=5us", replace(STREAMINSIGHT, every=None, every_span=2 * SECOND, disorder=5)),
        ("streaminsight every=none action=adjust", replace(STREAMINSIGHT, every=None, action="clip")),
        ("streaminsight idle=200ms final=yes early=5s", replace(STREAMINSIGHT, idle=200_000, is_final=True, early=5 * SECOND)),
        ("streaminsight import=com.example.B", replace(STREAMINSIGHT, every=None, imports="com.example.B")),
    ],
)  # fmt: skip
def test_a_policy_as_text(text: str, policy: TimePolicy) -> None:
    assert parse_ordering(text) == policy


@pytest.mark.parametrize(
    ("mapping", "policy"),
    [
        ({"policy": "apama", "leeway": float("inf")}, replace(APAMA, leeway=NEVER)),
        ({"policy": "stream_analytics", "late": 2.5, "early": None}, replace(STREAM_ANALYTICS, max_delay=2_500_000, early=None)),
        ({"policy": "stream_analytics", "late": -1, "over": ["card"]}, replace(STREAM_ANALYTICS, timeline="substream", over=("card",), max_delay=None)),
        ({"policy": "stream_analytics", "late": timedelta(days=1)}, replace(STREAM_ANALYTICS, max_delay=86_400 * SECOND)),
        ({"policy": "stream_analytics", "start": datetime(1970, 1, 2, tzinfo=UTC)}, replace(STREAM_ANALYTICS, start=86_400 * SECOND)),
        ({"policy": "streaminsight", "every": 5, "final": True}, replace(STREAMINSIGHT, every=5, is_final=True)),
        ({"policy": "streaminsight", "every": timedelta(seconds=5)}, replace(STREAMINSIGHT, every=None, every_span=5 * SECOND)),
    ],
)  # fmt: skip
def test_a_policy_as_a_mapping(mapping: dict[str, Any], policy: TimePolicy) -> None:
    assert parse_ordering(mapping) == policy


def test_a_policy_that_is_one_already_stays_as_it_is() -> None:
    assert parse_ordering(STREAMINSIGHT) is STREAMINSIGHT


LATE = (
    "'late' must be a length of time from 0 seconds to 20 days 23 hours 59 minutes 59 seconds, or -1 (for ever), not "
)
OUT_OF_ORDER = "'out_of_order' must be a length of time from 0 seconds to 9 minutes 59 seconds, not "
EVERY = "'every' must be a number of events from 1, a length of event time, or none, not "
POLICIES = "'policy' must be apama, stream_analytics or streaminsight, not "


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "'' does not name a policy; written like `stream_analytics late=5s action=drop`"),
        ("late=5s", "'late=5s' does not name a policy; written like `stream_analytics late=5s action=drop`"),
        ("stream_analytics 5s", "'5s' is not a setting; written like `stream_analytics late=5s action=drop`"),
        ("stream_analitics", POLICIES + "'stream_analitics'; did you mean 'stream_analytics'?"),
        ("asa late=5s", POLICIES + "'asa'; did you mean 'stream_analytics'?"),
        ("flink", POLICIES + "'flink'"),
        ({"late": "5s"}, "'policy' is missing: it is apama, stream_analytics or streaminsight"),
        (5, "a policy is a text or a mapping, not int"),
        ("stream_analytics lat=5s", "'lat' is not a setting of stream_analytics; did you mean 'late'?"),
        ("stream_analytics eventsLateArrivalMaxDelayInSeconds=5", "'eventsLateArrivalMaxDelayInSeconds' is not a setting of stream_analytics; did you mean 'late'?"),
        ("stream_analytics final=yes", "'final' is a setting of streaminsight, not of stream_analytics, which has late, out_of_order, early, action, over, partitions, start"),
        ("apama late=5s", "'late' is a setting of stream_analytics, not of apama, which has leeway, reorder, early"),
        ("stream_analytics late=5s late=5s", "duplicate setting 'late'"),
        ("stream_analytics late=20d 23h 59min 59.000001s", LATE + "20 days 23 hours 59 minutes 59.000001 seconds"),
        ("stream_analytics late=-2", LATE + "'-2'"),
        ("stream_analytics late=-1tick", LATE + "-1 tick"),
        ("stream_analytics late=none", LATE + "'none'"),
        ("stream_analytics late=5 parsecs", LATE + "'5 parsecs'"),
        ("stream_analytics late=", LATE + "empty"),
        ({"policy": "stream_analytics", "late": True}, LATE + "'True'"),
        ("stream_analytics out_of_order=10min", OUT_OF_ORDER + "10 minutes"),
        ("stream_analytics out_of_order=-1", OUT_OF_ORDER + "'-1'"),
        ("stream_analytics early=-1", "'early' must be a length of time from 0 seconds, or none, not '-1'"),
        ("stream_analytics early=" + "9" * 5_001, "'early' must be a length of time from 0 seconds, or none, not '" + "9" * 5_001 + "'"),
        ("stream_analytics action=clip", "'action' must be adjust or drop, not 'clip'"),
        ("stream_analytics over=card,card", "'over' must be names of different fields, separated by commas, not 'card,card'"),
        ("stream_analytics partitions=0", "'partitions' must be a whole number from 1 to 100000, not 0"),
        ("stream_analytics start=soon", "'start' must be a time: ISO 8601, HH:MM:SS, or seconds since 1970, not 'soon'"),
        ("stream_analytics over=card partitions=2", "'partitions' and 'over' contradict each other: with 'over' there is a clock per value of the fields, not per partition"),
        ("streaminsight every=0", EVERY + "0"),
        ("streaminsight every=0s", EVERY + "0 seconds"),
        ("streaminsight every=1.5", EVERY + "'1.5'"),
        ("streaminsight delay=-1", "'delay' must be a length of time such as 2s or, with its unit, -1tick, not '-1'"),
        ("streaminsight idle=0", "'idle' must be a length of time from 1 tick, or none, not 0 seconds"),
        ("streaminsight final=perhaps", "'final' must be yes or no, not 'perhaps'"),
        ("streaminsight every=1 import=B", "'every' and 'import' contradict each other: only the imported type advances time"),
        ("streaminsight delay=1s import=B", "'delay' and 'import' contradict each other: only the imported type advances time"),
        ("streaminsight every=none delay=1s", "'delay' has no meaning with 'every=none': only heartbeats advance time"),
    ],
)  # fmt: skip
def test_a_wrong_policy_says_what_is_wrong(given: Any, message: str) -> None:
    with pytest.raises(OrderingError) as caught:
        parse_ordering(given)
    assert str(caught.value) == f"ordering: {message}"


def test_what_is_no_policy_at_all_is_told_for_a_replay_too() -> None:
    with pytest.raises(OrderingError, match="ordering: a policy is a text or a mapping, not int"):
        parse_orderings(cast("Any", 5))


def test_all_mistakes_are_told_and_travel() -> None:
    with pytest.raises(OrderingError) as caught:
        parse_ordering("stream_analytics late=22d out_of_order=1h ovr=card")
    travelled = pickle.loads(pickle.dumps(caught.value))
    assert [setting for setting, _ in travelled.found] == ["ovr", "late", "out_of_order"]


def test_the_presets_refuse_the_same() -> None:
    with pytest.raises(OrderingError, match=f"ordering: {OUT_OF_ORDER}10 minutes$"):
        stream_analytics(out_of_order=10 * MINUTE)
    with pytest.raises(OrderingError, match="'partitions' and 'over' contradict each other"):
        stream_analytics(over=("card",), partitions=2)
    with pytest.raises(OrderingError, match="'every' and 'import' contradict each other"):
        streaminsight(every=2, imports="B")
    with pytest.raises(OrderingError, match="'every' must be"):
        streaminsight(every=True)
    with pytest.raises(OrderingError, match="'leeway' must be a length of time from 0 seconds"):
        apama(leeway=-1)


def test_the_presets_defaults_are_those_of_the_text() -> None:
    assert [apama(), stream_analytics(), streaminsight()] == [APAMA, STREAM_ANALYTICS, STREAMINSIGHT]


# ---------------------------------------------------------------------------------------------------- into the plan

EVENTS = """
event A { string card; float t; }
event B { string card; sequence<float> xs; }
@OutOfOrder() event C { string card; }
event Beat { }
"""
BOTH = "query Q { inputs { A() within 5.0; B() within 5.0; } find A as a -> B as b { } }"
WAITS = "query Q { inputs { A() within 5.0 wait 5.0 or Beat; C() within 5.0; } find A as a -> C as c { } }"


def compiled(body: str) -> Plan:
    return querylang.compile_text(EVENTS + body).plan


def bound(body: str, *given: SourceOrdering) -> dict[str, tuple[TimePolicy | None, tuple[str, ...]]]:
    (query,) = with_ordering(compiled(body), given).queries
    return {item.event: (item.policy, item.sources) for item in query.inputs}


def test_one_policy_for_every_source() -> None:
    assert bound(BOTH, SourceOrdering(None, STREAM_ANALYTICS)) == dict.fromkeys("AB", (STREAM_ANALYTICS, ()))


def test_each_input_has_the_policy_of_its_sources() -> None:
    given = [SourceOrdering("x", STREAM_ANALYTICS, ("A",)), SourceOrdering("y", None, ("B",))]
    assert bound(BOTH, *given) == {"A": (STREAM_ANALYTICS, ("x",)), "B": (None, ("y",))}


def test_sources_that_can_bring_any_type_count_for_all() -> None:
    given = [SourceOrdering("y", None), SourceOrdering("x", None, ("A",))]
    assert bound(BOTH, *given) == {"A": (None, ("y", "x")), "B": (None, ("y",))}


def test_an_input_that_no_source_brings_stays_as_it_is() -> None:
    assert bound(BOTH, SourceOrdering("x", STREAM_ANALYTICS, ("A",)))["B"] == (None, ())


def test_the_default_policy_is_no_other_than_none() -> None:
    given = [SourceOrdering("x", APAMA, ("A",)), SourceOrdering("y", None, ("A",))]
    assert bound(BOTH, *given)["A"] == (APAMA, ("x", "y"))


def test_apama_goes_with_what_the_query_says() -> None:
    policy = parse_ordering("apama early=5s")
    assert bound(WAITS, SourceOrdering(None, policy)) == dict.fromkeys("AC", (policy, ()))


def test_the_imported_type_makes_its_own_time() -> None:
    policies = bound(BOTH, SourceOrdering(None, parse_ordering("streaminsight import=B action=adjust")))
    assert policies["A"][0] == replace(STREAMINSIGHT, every=None, imports="B", action="clip")
    assert policies["B"][0] == replace(STREAMINSIGHT, action="clip")


def test_a_bound_plan_survives_as_data() -> None:
    plan = with_ordering(compiled(BOTH), [SourceOrdering("x", parse_ordering("stream_analytics over=card"))])
    assert from_dict(to_dict(plan)) == plan


IN = "query 'Q', input 'A': "
SAYS = " says how events are put in order, and so does the policy 'stream_analytics' of its source; only 'apama' can be combined with it"


@pytest.mark.parametrize(
    ("body", "given", "found"),
    [
        (WAITS, [SourceOrdering("x", STREAM_ANALYTICS, ("A",))], [("x", f"{IN}`wait`{SAYS}"), ("x", f"{IN}the heartbeat 'Beat'{SAYS}")]),
        (WAITS, [SourceOrdering("x", STREAM_ANALYTICS, ("C",))], [("x", f"query 'Q', input 'C': `@OutOfOrder`{SAYS}")]),
        (BOTH, [SourceOrdering("x", None), SourceOrdering("y", STREAM_ANALYTICS, ("A",))], [("y", f"{IN}the sources 'x' and 'y' can both bring this type, and have different orderings")]),
        (BOTH, [SourceOrdering("x", stream_analytics(over=("crd",)), ("A",))], [("x", f"{IN}'over=crd', but the event type has the fields card, t; did you mean 'card'?")]),
        (BOTH, [SourceOrdering("x", stream_analytics(over=("xs",)), ("B",))], [("x", "query 'Q', input 'B': 'over=xs', but the field is a sequence<float>: it must be one that can be a key")]),
        (BOTH, [SourceOrdering("x", apama(early=SECOND))], [("x", "'early' compares source times with arrival, but no input of the source has `wait`: events have their arrival time")]),
        (BOTH, [SourceOrdering("x", streaminsight(imports="BB"), ("A",))], [("x", f"{IN}'import=BB', but the queries know the event types A, B, C, Beat; did you mean 'B'?")]),
        (BOTH, [SourceOrdering("x", streaminsight(imports="B"), ("A",)), SourceOrdering("y", streaminsight(imports="A"), ("B",))], [(None, "query 'Q': 'import' forms a cycle, so time never advances: A, B, A")]),
    ],
)  # fmt: skip
def test_a_policy_that_does_not_fit_the_query_is_refused(
    body: str, given: list[SourceOrdering], found: list[tuple[str | None, str]]
) -> None:
    with pytest.raises(OrderingError) as caught:
        bound(body, *given)
    assert list(caught.value.found) == found


def test_fields_that_only_data_will_tell_are_not_missing_yet() -> None:
    given = [SourceOrdering(None, stream_analytics(over=("id",)))]
    query = "query Q { inputs { Beat() within 5.0; } find Beat as a -> Beat as b { } }"
    assert with_ordering(compiled(query), given, unseen=("Beat",)).queries[0].inputs[0].policy is not None
    with pytest.raises(OrderingError, match="'over=id', but the event type has no field"):
        with_ordering(compiled(query), given)


# ------------------------------------------------------------------------------------------------ lengths and moments


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1 second", SECOND),
        ("15s", 15 * SECOND),
        ("500ms", 500_000),
        ("10 msec", 10_000),
        ("1.5 s", 1_500_000),
        ("1 min 30 s", 90 * SECOND),
        ("2 Hours", 7200 * SECOND),
        ("1d2h3m", (26 * 60 + 3) * MINUTE),
        ("2us", 2),
        ("1tick", 1),
        (" 3 ticks ", 3),
        ("soon", None),
        ("5", None),
        ("-5s", None),
        ("5 parsecs", None),
        ("1 s 1 s", None),
        ("1 s 1 min", None),
        ("1 s,", None),
        ("", None),
    ],
)
def test_a_length_of_time(text: str, micros: int | None) -> None:
    assert parse_duration(text) == micros


@pytest.mark.parametrize(
    "text",
    [
        "10:00:00", "10:00:00.123456", "2024-01-01", "2024-01-01T10", "2024-01-01T10:00", "2024-01-01 10:00:00",
        "2024-01-01T10:00:00.1234567Z", "2024-01-01T10:00:00+02:00", "2024-01-01T10:00:00-0530", "0", "-1.5", "1e3",
        "0001-01-01", "9999-12-31T23:59:59.999999Z", "2024-10-27T02:30:00+02:00", "24:00:00", "10:00", "2024-02-30",
        "2016-12-31T23:59:60Z", "noon", "", "1e300", "nan", "infinity",
    ],
)  # fmt: skip
def test_a_moment_is_read_as_a_column_of_moments_is(text: str) -> None:
    import pyarrow as pa

    from runtime.instants import NO_TIME

    (micros,) = parse_times(pa.array([text])).micros.tolist()
    assert parse_moment(text) == (None if micros == NO_TIME else micros)


def test_policies_need_neither_numpy_nor_arrow() -> None:
    code = "import sys, runtime.policies.plan_policies; print([m for m in ('numpy', 'pandas', 'pyarrow', 'numba') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
