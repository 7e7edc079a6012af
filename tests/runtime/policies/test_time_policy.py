"""Whether keys depend on each other's records, by what tells timelines apart."""

from __future__ import annotations

import pytest

import querylang
from runtime.input_policies import shares_clock
from runtime.policies.plan_policies import SourceOrdering, parse_ordering, with_ordering

QUERY = """
event A { string c; integer k; string other; }
query Q { inputs { A() key c, k within 1 minute; } find A as a }
"""


@pytest.mark.parametrize(
    ("ordering", "is_shared"),
    [
        ("apama", False),
        ("stream_analytics", True),
        ("stream_analytics over=c,k", False),
        ("stream_analytics over=k,c", False),
        ("stream_analytics over=c", True),
        ("stream_analytics over=other", True),
        ("stream_analytics over=c,k,other", True),
        ("streaminsight", True),
    ],
)
def test_keys_have_clocks_of_their_own_only_if_each_substream_has_one_key(ordering: str, is_shared: bool) -> None:
    plan = querylang.compile_text(QUERY).plan
    (query,) = with_ordering(plan, [SourceOrdering(None, parse_ordering(ordering))]).queries
    assert shares_clock(query) is is_shared
