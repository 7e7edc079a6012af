"""The ledger: how many records of each source had which outcome for each query.

At every moment received = used + adjusted + filtered + not_new + heartbeat + control + tick +
unrelated + discarded + undeployed + pending: each record has exactly one outcome. Counts are
changes, of one call or of all calls so far; `pending` may go down. Words in BESIDE are not part of
the sum.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.plan.model import EDITION, public_title
from runtime.admission import ADMITTED, Group, Outcome
from runtime.column_types import has_column, one_chunk
from runtime.columns.rows import counts_of
from runtime.results.schemas import LEDGER_SCHEMA, NO_LEDGER

RECEIVED = "received"
"""The word for the sum of all outcomes."""

UNDEPLOYED = "undeployed"
"""Records that were pending when their query ended."""

ENDED_WAITS = "ended_waits"
"""Matches that waited when their query ended; they are not found."""

WORDS = (RECEIVED, *(outcome.word for outcome in Outcome), UNDEPLOYED)
"""All words of the ledger, in the order in which it is printed."""

FOUND, GIVEN, SUPPRESSED = "found", "given", "suppressed"
"""Matches of a query with `at most`: found = given + suppressed."""

FORGOTTEN_EVENTS, FORGOTTEN_WAITS = "forgotten_events", "forgotten_waits"
"""What a user let a job forget: events that have been used, and matches that waited."""

ROLE_DISCARDED = "role_discarded"
"""Refusals of a record's time by one input, of records that have another outcome in the sum."""

BESIDE = (
    *("before_clock", "late_by_idle", "lost", "forgotten_keys", FORGOTTEN_EVENTS, FORGOTTEN_WAITS, ENDED_WAITS),
    *(FOUND, GIVEN, SUPPRESSED, ROLE_DISCARDED),
)
"""Words that say more about records, or about keys and matches; they are counted beside the sum."""

WORD_OF = tuple(Outcome(number).word for number in range(len(Outcome)))
"""By number of an outcome, its word."""

_IN_ORDER = (*WORDS, *BESIDE)

_ORDER = {word: place for place, word in enumerate(_IN_ORDER)}

DISCARDS = tuple(outcome.word for outcome in Outcome if outcome.group is Group.DISCARDED)
"""The reasons for which a record is discarded."""

Account = Counter[tuple[str, str, str]]
"""Counts by (query, source, word)."""


def count_records(query: str, sources: pa.DictionaryArray, outcomes: NDArray[np.int8]) -> Account:
    """The outcomes of new records, one entry per record; pending events count as admitted."""
    names = sources.dictionary.to_pylist()
    places = outcomes if len(names) == 1 else sources.indices.to_numpy() * len(Outcome) + outcomes
    counts = counts_of(places)
    account: Account = Counter()
    some = np.flatnonzero(counts)
    for place, count in zip(some.tolist(), counts[some].tolist(), strict=True):
        source, outcome = names[place // len(Outcome)], place % len(Outcome)
        account[query, source, RECEIVED] += count
        account[query, source, WORD_OF[outcome]] += count
    return account


def count_pending(query: str, events: pa.Table, change: int, outcome: Outcome = Outcome.PENDING) -> Account:
    """Moves admitted events between their outcome and pending, or another one.

    events: their sources (`_source`) and, if times can be adjusted, the reasons (`_adjusted`)
    change: 1 for events that are pending now, -1 for those that were pending before
    """
    account: Account = Counter()
    if not len(events):
        return account
    source = one_chunk(events.column("_source"))
    adjusted = one_chunk(events.column("_adjusted")).to_numpy() if has_column(events, "_adjusted") else 0
    counts = np.bincount(source.indices.to_numpy().astype(np.int64) * len(ADMITTED) + adjusted)
    for place in np.flatnonzero(counts):
        name, before = source.dictionary[place // len(ADMITTED)].as_py(), ADMITTED[place % len(ADMITTED)]
        account[query, name, outcome.word] += change * int(counts[place])
        account[query, name, before.word] -= change * int(counts[place])
    return account


def ledger_table(account: Account) -> pa.Table:
    """The account as a table without zeros, by query, source, then the order of words.

    All texts that a query has had are one query.
    """
    if any(EDITION in query for query, _, _ in account):
        joined: Account = Counter()
        for (query, source, word), count in account.items():
            joined[public_title(query), source, word] += count
        account = joined
    rows = sorted((query, source, _ORDER[word], count) for (query, source, word), count in account.items() if count)
    if not rows:
        return NO_LEDGER
    queries, sources, order, counts = zip(*rows, strict=True)
    return pa.table([queries, sources, [_IN_ORDER[place] for place in order], counts], schema=LEDGER_SCHEMA)


FEWEST = 20
"""Of so few records nothing is said."""

KEEPS_LATE = "a longer `wait` of the queries' inputs, or `late` of its `ordering`, keeps them"
"""What a user can do about records that are late."""


def is_remarkable(count: int, received: int) -> bool:
    """Whether so many of the records that were received deserve a warning: more than a tenth."""
    return received >= FEWEST and count * 10 > received


def late_warning(ledger: pa.Table) -> str | None:
    """A line about the query of whose records most are late; None = there is none."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in ledger.filter(pc.is_in(ledger.column("what"), pa.array([RECEIVED, Outcome.LATE.word]))).to_pylist():
        counts[row["query"], row["what"]] += row["count"]
    late = {query: count for (query, what), count in sorted(counts.items()) if what == Outcome.LATE.word}
    received = {query: counts[query, RECEIVED] for query in late}
    found = [query for query, count in late.items() if is_remarkable(count, received[query])]
    if not found:
        return None
    worst = max(found, key=lambda query: late[query] / received[query])
    return f"{late[worst]} of {received[worst]} records are late for query {worst!r}: {KEEPS_LATE}"
