"""The accounts: for each query and source, what became of every record.

received = used + adjusted (by reason) + filtered + heartbeat + control + tick + unrelated + discarded (by reason) + pending, at
every moment: an event is in one of them. Counts are changes: those of one call, or of all calls so far; `pending` may go down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from runtime.admission.rules import Verdict
from runtime.admission.selection import Use
from runtime.arrow_types import one_chunk
from runtime.results.schemas import LEDGER_SCHEMA

DISCARDS = ("early", "late", "out_of_order", "malformed", "unknown_type", "null_key", "null_time")
"""Reasons for which a record is refused."""

USES = ("used", "adjusted_late", "adjusted_out_of_order", "filtered", "heartbeat", "control", "tick", "unrelated")
"""Ways in which a record is used, if only by being looked at."""

WORDS = ("received", *USES, *DISCARDS, "pending")
"""All words of the account, in the order in which it is printed."""

Account = Counter[tuple[str, str, str]]
"""Counts by (query, source, word)."""

_EVENT = tuple("used" if verdict == Verdict.ADMITTED else f"adjusted_{verdict.name.lower()}" for verdict in Verdict)
"""The words for events that were admitted, by why they have another time than their own."""

_OUTCOMES = [
    *(use.name.lower() for use in Use),
    *(verdict.name.lower() for verdict in Verdict),
    *_EVENT,
]
_REFUSED = len(Use)
_ADMITTED = len(Use) + len(Verdict)


def count_records(
    query: str,
    sources: pa.DictionaryArray,
    use: NDArray[np.int8],
    verdict: NDArray[np.int8],
    adjusted: NDArray[np.int8] | None = None,
) -> Account:
    """What became of the records of one call: events that were admitted count as used or adjusted, whether pending or not.

    One entry a record: its source, its use, and for events the verdict (ADMITTED for all others), and the verdict on the
    time that it came with.
    """
    outcome = use.copy()
    outcome[use == Use.EVENT] = _ADMITTED
    if adjusted is not None:
        outcome[adjusted > 0] = _ADMITTED + adjusted[adjusted > 0]
    outcome[verdict > 0] = _REFUSED + verdict[verdict > 0]
    names = sources.dictionary.to_pylist()
    places = outcome if len(names) == 1 else sources.indices.to_numpy() * len(_OUTCOMES) + outcome
    counts = np.bincount(places)
    account: Account = Counter()
    for place in np.flatnonzero(counts):
        source, word = names[place // len(_OUTCOMES)], _OUTCOMES[place % len(_OUTCOMES)]
        account[query, source, "received"] += int(counts[place])
        account[query, source, word] += int(counts[place])
    return account


def count_pending(query: str, events: pa.Table, change: int) -> Account:
    """Moves admitted events between used or adjusted and pending: `change` 1 for those that are pending now, -1 for before.

    `events`: their sources (`_source`) and, where times can be adjusted, why theirs were (`_adjusted`).
    """
    account: Account = Counter()
    source = one_chunk(events.column("_source"))
    adjusted = one_chunk(events.column("_adjusted")).to_numpy() if "_adjusted" in events.column_names else 0
    counts = np.bincount(source.indices.to_numpy().astype(np.int64) * len(_EVENT) + adjusted)
    for place in np.flatnonzero(counts):
        name, word = source.dictionary[place // len(_EVENT)].as_py(), _EVENT[place % len(_EVENT)]
        account[query, name, "pending"] += change * int(counts[place])
        account[query, name, word] -= change * int(counts[place])
    return account


def ledger_table(account: Account) -> pa.Table:
    """The account in long form (LEDGER_SCHEMA): by query, source, then the order of `WORDS`; no zeros."""
    rows = sorted((key for key, count in account.items() if count), key=lambda key: (*key[:2], WORDS.index(key[2])))
    columns: Sequence[list[str]] = [[key[part] for key in rows] for part in range(3)]
    return pa.table([*columns, [account[key] for key in rows]], schema=LEDGER_SCHEMA)
