"""A type that is several inputs by their roles: against the oracle, and against a type for each role."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

import querylang
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.reading.tables import read_arrivals
from runtime.results.schemas import Results, in_order
from tests.oracle.random_patterns import ALL, TODAY
from tests.oracle.random_roles import random_draw_with_roles
from tests.oracle.running import differences
from tests.support.role_books import TYPES, RoleBook, Row, book, rows, rows_apart

TIMED = ("late", "early", "out_of_order")
UNTIMED = ("null_key", "null_time")


@pytest.mark.parametrize("block", range(4))
def test_random_queries_with_roles_find_what_the_oracle_finds(block: int) -> None:
    for seed in range(2 * block, 2 * block + 2):
        found = differences(random_draw_with_roles(seed, ALL if seed % 2 else TODAY, 20))
        assert not found, f"{len(found)} differences with seed {seed}, the first:\n{found[0]}"


class Run:
    """What an engine gives, in calls of any size, with states that are saved between them.

    numbers: by row the number of its record
    """

    def __init__(
        self, plan: Plan, arrivals: Arrivals, numbers: list[int], matcher: str, cuts: random.Random | None
    ) -> None:
        self.matches: list[Any] = []
        self.discarded: list[tuple[int, str, str]] = []
        self.numbers, self.counts = numbers, Counter[str]()
        self.totals: list[Counter[str]] = []
        engine, at = Engine(plan, matcher), 0
        while at < len(arrivals):
            size = len(arrivals) if cuts is None else cuts.choice([1, 2, 5, 100])
            while at + size < len(numbers) and numbers[at + size] == numbers[at + size - 1]:
                size += 1
            self.add(plan, engine.process(Arrivals(arrivals.table.slice(at, size))))
            at += size
            if cuts is not None and cuts.random() < 0.4:
                engine = Engine.restore(plan, engine.snapshot(), matcher)
        self.add(plan, engine.flush())

    def add(self, plan: Plan, results: Results) -> None:
        ordered = in_order(plan, results)
        for row in ordered.matches["Q"].to_pylist() if "Q" in ordered.matches else []:
            members = {name: self.shown(one) for name, one in row["members"].items()}
            facts = [row["key"], *(str(row[name]) for name in ("time", "definitive", "emitted", "waited"))]
            self.matches.append((str(facts), str(members)))
        for row in ordered.discarded.to_pylist():
            self.discarded.append((self.numbers[row["offset"] - 1], row["event"], row["reason"]))
        for row in ordered.ledger.to_pylist():
            self.counts[row["what"]] += row["count"]
        self.totals.append(self.counts.copy())

    def shown(self, one: Any) -> Any:
        if one is None or isinstance(one, list):
            return one if one is None else [self.shown(item) for item in one]
        return self.numbers[one["offset"] - 1], str(one["time"]), str(one["arrival"]), str(one["fields"])


def outcome_of(row: Row, program: RoleBook, refused: dict[str, str]) -> str:
    """What the ledger says of a record of P, if no role has `new by`; refused: by role."""
    admitted = [role for role in program.roles if row.get("v") is not None and row["v"] >= program.filters[role]]
    if not admitted:
        return "filtered"
    if any(role not in refused for role in admitted):
        return "used"
    return refused[admitted[0]]


def compare(seed: int) -> int:
    chance = random.Random(seed)
    program, given = book(chance), rows(chance, chance.randint(5, 30))
    told = (seed, program.text, given)
    one, apart = (querylang.compile_text(text).plan for text in (program.text, program.apart))
    beside, numbers = rows_apart(given, program.roles)
    expected = Run(apart, read_arrivals(beside, apart), numbers, "auto", None)
    arrivals = read_arrivals(given, one)
    plain = [*range(1, len(given) + 1)]
    for matcher, cuts in (("auto", None), ("reference", None), ("auto", chance)):
        found = Run(one, arrivals, plain, matcher, cuts)
        assert Counter(found.matches) == Counter(expected.matches), (matcher, cuts, *told)
        check_ledger(program, given, expected, found, told)
    return len(expected.matches)


def check_ledger(program: RoleBook, given: list[Row], expected: Run, found: Run, told: Any) -> None:
    roles = {name: role for role, name in TYPES.items()}
    timed = [(number, f"P as {roles[event]}", reason) for number, event, reason in expected.discarded if event in roles]
    timed = [row for row in timed if row[2] in TIMED]
    assert Counter(row for row in found.discarded if " as " in row[1]) == Counter(timed), told
    for counts in found.totals:
        beside = ("received", "role_discarded", "found", "given", "suppressed", "forgotten_keys")
        assert counts["received"] == sum(count for word, count in counts.items() if word not in beside), told
    assert found.counts["received"] == len(given), told
    assert not found.counts["pending"], told
    if "new by" in program.text:
        return
    wanted = Counter[str]()
    for number, row in enumerate(given, 1):
        if row["event"] == "P":
            refused = {roles[event]: reason for other, event, reason in expected.discarded if other == number}
            wanted[outcome_of(row, program, refused)] += 1
    others = Counter(outcome for outcome in wanted.elements())
    for word in ("late", "early", "out_of_order", "filtered"):
        of_n = sum(1 for _, event, reason in expected.discarded if event == "N" and reason == word)
        assert found.counts[word] == others[word] + of_n, (word, *told)
    sums = sum(wanted[word] for word in TIMED)
    assert found.counts["role_discarded"] == len(timed) - sums, told


@pytest.mark.parametrize("block", range(5))
def test_roles_give_what_types_of_their_own_give(block: int) -> None:
    assert sum(compare(seed) for seed in range(40 * block, 40 * block + 40)) > 60
