"""A key that a simulated job is let forget, and what of its answers has nothing to do with that key."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from job_engine.deployment_file import load_deployment
from job_engine.job.upkeep.keys import forget
from runtime.results.ledger import RECEIVED, WORDS
from tests.simulation.care import NOT_YET, Act, refused_with
from tests.torture.answers import Answers, Comparable
from tests.torture.streams import KEYS

KEY = "k"

_OF_ALL_KEYS = (RECEIVED, "control")
"""What is counted of a record whether its key was forgotten or not: one that is held may have no other outcome."""


@dataclass
class Forgetting:
    """What a job forgets: one key, as often as somebody asks for it."""

    deployment: Path
    chooser: random.Random
    key: str
    asked: int = 0

    @staticmethod
    def of(deployment: Path, chooser: random.Random) -> Forgetting:
        """Draw a key."""
        return Forgetting(deployment, chooser, chooser.choice(KEYS))

    def act(self) -> Act:
        """The command between two lives; the next start takes it."""
        self.asked += 1  # it may be done in another process
        return Act(f"forget '{self.key}'", self.ask, refused_with(*NOT_YET))

    def ask(self) -> None:
        """Let the job forget the key, and do not wait for it."""
        self.asked += 1
        forget(self.deployment, [f"{KEY}={self.key}"], wait=False)

    def ask_early(self) -> None:
        """The same while a run may be at work; before the first one nothing is asked."""
        if (load_deployment(self.deployment).checkpoint / "ensue.json").exists():
            self.ask()

    def of_others(self, answers: Answers) -> Answers:
        """What is given of other keys; of the ledger, what does not depend on the key."""
        gone = {row for row in answers.matches if dict(row).get("key") == ((KEY, self.key),)}
        ids = {dict(row)["match_id"] for row in gone}
        matches = Counter({row: count for row, count in answers.matches.items() if row not in gone})
        outputs = Counter({row: count for row, count in answers.outputs.items() if dict(row)["match_id"] not in ids})
        discarded = Counter({row: count for row, count in answers.discarded.items() if dict(row)[KEY] != self.key})
        ledger = Counter({key: count for key, count in answers.ledger.items() if key[1] in _OF_ALL_KEYS})
        return replace(answers, matches=matches, outputs=outputs, discarded=discarded, ledger=ledger)


def unbalanced(ledger: Comparable) -> Iterator[str]:
    """The queries of whose records not each has one outcome."""
    for query in sorted({query for query, _ in ledger}):
        outcomes = sum(ledger[query, word] for word in WORDS if word != RECEIVED)
        if ledger[query, RECEIVED] != outcomes:
            yield f"the ledger does not add up: '{query}' received {ledger[query, RECEIVED]}, and {outcomes} have an outcome"
