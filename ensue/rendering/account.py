"""The account in words: what became of the received records, per query and source.

All numbers add up: received = used + adjusted + filtered + ... + discarded + pending. What is
counted beside the sum follows it.
`runtime.results.ledger` defines the words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ensue.rendering.text_table import text_table
from querylang.errors import counted
from querylang.plan.model import QueryPlan
from querylang.printable import one_line
from runtime.admission import Group, Outcome
from runtime.results.ledger import BESIDE, RECEIVED, UNDEPLOYED, WORDS
from runtime.results.schemas import Results
from runtime.timestamps import format_time

Counts = Mapping[str, int]

MOST_LINES = 20
"""So many accounts are printed in any case; of more only those of which a record was wanted."""

_NOT_WANTED = frozenset({RECEIVED, Outcome.FILTERED.word, Outcome.UNRELATED.word})


def account_text(ledger: pa.Table) -> str:
    """One line for one account, a table for several.

    ledger: a table with `runtime.results.schemas.LEDGER_SCHEMA`
    """
    accounts: dict[tuple[str, str], dict[str, int]] = {}
    for row in ledger.to_pylist():
        accounts.setdefault((row["query"], row["source"]), {})[row["what"]] = row["count"]
    _join_keys(accounts)
    match list(accounts.values()):
        case []:
            return "nothing received"
        case [counts]:
            return _line(counts)
        case _:
            return _table(accounts)


def _join_keys(accounts: dict[tuple[str, str], dict[str, int]]) -> None:
    """Moves what is counted of keys, which have no source, to the query's source if it has one
    only."""
    sources: dict[str, list[str]] = {}
    for query, source in accounts:
        sources.setdefault(query, []).extend([source] if source else [])
    for query, source in list(accounts):
        if not source and len(sources[query]) == 1:
            accounts[query, sources[query][0]] |= accounts.pop((query, source))


def _line(counts: Counts) -> str:
    """`8 received = 4 used + 2 adjusted (1 late, 1 out_of_order) + 1 tick + 1 discarded`."""
    reasons: dict[str, list[tuple[str, int]]] = {}
    for word in WORDS[1:]:
        if counts.get(word):
            what, _, reason = label(word).partition(": ")
            reasons.setdefault(what, []).append((reason, counts[word]))
    parts = [f"{sum(count for _, count in found)} {what}{_reasons(found)}" for what, found in reasons.items()]
    beside = [f"{counts[word]} {word}" for word in BESIDE if counts.get(word)]
    return f"{counts.get(RECEIVED, 0)} received = {' + '.join(parts) or '0'}{_beside(beside)}"


def _beside(parts: Sequence[str]) -> str:
    return f"; beside the sum: {', '.join(parts)}" if parts else ""


def _reasons(found: Sequence[tuple[str, int]]) -> str:
    match found:
        case [("", _)]:
            return ""
        case [(reason, _)]:
            return f" ({reason})"
        case _:
            return f" ({', '.join(f'{count} {reason}' for reason, count in found)})"


def _table(accounts: Mapping[tuple[str, str], Counts]) -> str:
    """One line per account.

    Words that do not occur are left out; the query or source too, if there is only one.
    """
    shown = {names: counts for names, counts in accounts.items() if _is_wanted(counts)}
    if len(accounts) > MOST_LINES and len(shown) < len(accounts):
        queries = len({query for query, _ in accounts.keys() - shown.keys()})
        others = f"of {counted(queries, 'query', 'queries')} every record was filtered or unrelated"
        return f"{_lines(shown)}\n{others}" if shown else others
    return _lines(accounts)


def _is_wanted(counts: Counts) -> bool:
    """Whether a record was anything but filtered or unrelated."""
    return any(count for word, count in counts.items() if word not in _NOT_WANTED)


def _lines(accounts: Mapping[tuple[str, str], Counts]) -> str:
    words = [word for word in (*WORDS, *BESIDE) if any(counts.get(word) for counts in accounts.values())]
    places = [place for place in (0, 1) if len({names[place] for names in accounts}) > 1]
    header = [*(("query", "source")[place] for place in places), *map(label, words)]
    rows = [
        [*(names[place] for place in places), *(str(counts.get(word) or "") for word in words)]
        for names, counts in accounts.items()
    ]
    return text_table(header, rows, right=frozenset(map(label, words)))


def label(word: str) -> str:
    """A word of the ledger as it is printed: `discarded: late`, `adjusted: late`, `used`."""
    if word in {RECEIVED, UNDEPLOYED} or word in BESIDE:
        return word
    match Outcome[word.upper()].group:
        case Group.DISCARDED:
            return f"discarded: {word}"
        case Group.ADJUSTED:
            return f"adjusted: {word.removeprefix('adjusted_')}"
        case _:
            return word


def left_text(waiting: int, next_due: int | None, ledger: pa.Table) -> list[str]:
    """What is left to be done, a line each: matches that wait, events that are held.

    waiting: the number of matches that wait
    next_due: when the next of them is due, µs; None = none waits
    """
    held = sum(row["count"] for row in ledger.to_pylist() if row["what"] == Outcome.PENDING.word)
    lines = []
    if next_due is not None:
        what = counted(waiting, "match waits", "matches wait")
        lines.append(f"{what}; the next is due at {format_time(next_due)}")
    if held:
        lines.append(f"{counted(held, 'event is', 'events are')} held until time is definitive")
    return lines


def flushed_text(count: int) -> list[str]:
    """A line about the matches that came only because a replay advanced time at its end."""
    if not count:
        return []
    came = counted(count, "match came", "matches came")
    return [f"{came} only because time advanced at the end: `--no-flush` stops at the last row"]


def waiting_object(waiting: int, next_due: int | None) -> dict[str, Any]:
    """For programs: how many matches wait, and when the next is due, or null."""
    return {"waiting": waiting, "next_due": None if next_due is None else format_time(next_due)}


# A replay in one line.


def summary_text(rows: int, results: Results, idle: Sequence[QueryPlan]) -> str:
    """`6 rows, 2 matches, 1 discarded (1 late)`.

    rows: rows that were processed
    idle: queries without an instance
    """
    parts = [counted(rows, "row"), *_counts(results)]
    if idle:
        parts.append(f"no instance of {', '.join(query.name for query in idle)}")
    return one_line(", ".join(parts))


def counts_text(results: Results) -> str:
    """`2 matches, 1 discarded (1 late)`."""
    return one_line(", ".join(_counts(results)))


def _counts(results: Results) -> list[str]:
    reasons = Counter([] if results.discarded is None else results.discarded.column("reason").to_pylist())
    parts = [counted(sum(map(len, results.matches.values())), "match", "matches")]
    if reasons:
        parts.append(f"{reasons.total()} discarded ({', '.join(f'{n} {reason}' for reason, n in reasons.items())})")
    return parts
