"""Runs a draw with additions at once, or in pieces with restarts, and shows all that is found, to compare both."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import ensue
from querylang.plan.model import Plan
from runtime.columns.arrivals import Arrivals
from runtime.engine.engine import Engine
from runtime.replay.replay import in_order
from runtime.results.schemas import Results
from tests.oracle.random_queries import Draw
from tests.oracle.running import records_of, text_of


def loaded(draw: Draw) -> tuple[Plan, Arrivals]:
    """The plan of the queries, and the rows in order of arrival."""
    replay = ensue.replay(text_of(draw.queries, late=draw.late), records_of(draw.rows))
    return replay.plan, replay.records.whole().arrivals if hasattr(replay.records, "whole") else replay.records.arrivals


def at_once(plan: Plan, arrivals: Arrivals) -> Iterator[Results]:
    engine = Engine(plan)
    yield engine.process(arrivals)
    yield engine.flush()


def in_pieces(plan: Plan, arrivals: Arrivals, chooser: random.Random) -> Iterator[Results]:
    """Calls of random length; the state is saved and read in between, and the matcher may change."""
    engine, at = Engine(plan), 0
    while at < len(arrivals.table):
        length = chooser.randint(1, 4)
        yield engine.process(Arrivals(arrivals.table.slice(at, length)))
        at += length
        if chooser.random() < 0.5:
            engine = Engine.restore(plan, engine.snapshot(), matcher=chooser.choice(("auto", "reference")))
    yield engine.flush()


def found_in(plan: Plan, calls: Iterable[Results]) -> dict[str, list[Any]]:
    """By query, the matches without the numbers of their steps; and the outputs."""
    found: dict[str, list[Any]] = {query.title: [] for query in plan.queries}
    found["outputs"] = []
    for results in calls:
        ordered = in_order(plan, results)
        for title, table in ordered.matches.items():
            found[title] += without_steps(table.to_pylist())
        found["outputs"] += without_steps(ordered.outputs.to_pylist())
    for rows in found.values():
        ids = [row["match_id"] for row in rows if "members" in row]
        assert len(ids) == len(set(ids)), "each match has its own identity"
    return found


def without_steps(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows]
