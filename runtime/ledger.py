"""The accounts: for each query and source, what became of every record.

received = used + filtered + heartbeat + control + tick + unrelated + discarded (by reason) + pending, at every moment. Counts
are changes: those of one call, or of all calls so far; `pending` may go down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from runtime.admission import Verdict
from runtime.results import LEDGER_SCHEMA
from runtime.selection import Use

DISCARDS = ("early", "late", "out_of_order", "malformed", "unknown_type", "null_key", "null_time")
"""Reasons for which a record is refused."""

USES = ("used", "filtered", "heartbeat", "control", "tick", "unrelated")
"""Ways in which a record is used, if only by being looked at."""

WORDS = ("received", *USES, *DISCARDS, "pending")
"""All words of the account, in the order in which it is printed."""

Account = Counter[tuple[str, str, str]]
"""Counts by (query, source, word)."""

_OUTCOMES = [*(use.name.lower() for use in Use), "late", "out_of_order"]


def count_records(query: str, sources: pa.DictionaryArray, use: NDArray[np.int8], verdict: NDArray[np.int8]) -> Account:
    """What became of the records of one call: events that were admitted count as used, whether pending or not.

    One entry a record: its source, its use, and for events the verdict (ADMITTED for all others).
    """
    outcome = use.copy()
    outcome[verdict == Verdict.LATE] = _OUTCOMES.index("late")
    outcome[verdict == Verdict.OUT_OF_ORDER] = _OUTCOMES.index("out_of_order")
    names = sources.dictionary.to_pylist()
    places = outcome if len(names) == 1 else sources.indices.to_numpy() * len(_OUTCOMES) + outcome
    counts = np.bincount(places)
    account: Account = Counter()
    for place in np.flatnonzero(counts):
        source, word = names[place // len(_OUTCOMES)], _OUTCOMES[place % len(_OUTCOMES)]
        account[query, source, "received"] += int(counts[place])
        account[query, source, "used" if word == "event" else word] += int(counts[place])
    return account


def count_pending(query: str, sources: pa.DictionaryArray, change: int) -> Account:
    """Moves admitted events between used and pending: `change` 1 for those that are pending now, -1 for before."""
    account: Account = Counter()
    for item in pc.value_counts(sources).to_pylist():
        account[query, item["values"], "pending"] += change * item["counts"]
        account[query, item["values"], "used"] -= change * item["counts"]
    return account


def ledger_table(account: Account) -> pa.Table:
    """The account in long form (LEDGER_SCHEMA): by query, source, then the order of `WORDS`; no zeros."""
    rows = sorted((key for key, count in account.items() if count), key=lambda key: (*key[:2], WORDS.index(key[2])))
    columns: Sequence[list[str]] = [[key[part] for key in rows] for part in range(3)]
    return pa.table([*columns, [account[key] for key in rows]], schema=LEDGER_SCHEMA)
