"""What people do to a job between two of its lives: another number of buckets, backups, compaction, other settings."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from job_engine.deployment_file import load_deployment
from job_engine.job.checkpoint.checkpoint_record import read_record
from job_engine.job.upkeep.backup import back_up, restore
from job_engine.job.upkeep.moving import rebucket
from job_engine.job.upkeep.results import compact_job
from job_engine.local_path import LocalPath

NOT_YET = ("no checkpoint yet", "has not run yet")
"""In refusals of what only a job that has run has."""


def refused_with(*parts: str) -> Callable[[str], bool]:
    """Whether an error has one of these in it."""
    return lambda error: any(part in error for part in parts)


NOT_RUN = refused_with(*NOT_YET)


@dataclass(frozen=True, slots=True)
class Act:
    """One command.

    do: it
    refuses: whether it may be refused so although nothing has failed
    done: is called when it has returned
    """

    name: str
    do: Callable[[], object]
    refuses: Callable[[str], bool]
    done: Callable[[], None] = lambda: None


@dataclass
class Care:
    """What is done to the job of a deployment file.

    sent: commands that the job got, of which a restored checkpoint knows those that were sent before its backup
    restores: whether the job may go back to a backup
    backups: those that are whole, and the commands that they know
    owed: the backup that somebody was restoring when the machine failed: until it is repeated, a start may be refused
    restored: how often the job went back to a backup
    """

    deployment: Path
    chooser: random.Random
    sent: dict[int, str]
    restores: bool = True
    backups: dict[Path, dict[int, str]] = field(default_factory=dict)
    owed: Path | None = None
    restored: int = 0
    made: int = 0

    def act(self) -> Act | None:
        """The next command; None = only the file was edited, or nothing is done."""
        if self.owed is not None:
            return self.restoring(self.owed) if self.chooser.random() < 0.5 else None
        match self.chooser.randrange(7):
            case 0:
                number = self.chooser.choice((1, 2, 3, 5))
                return Act(
                    f"rebucket {number}",
                    lambda: rebucket(self.deployment, number),
                    refused_with(*NOT_YET, "already", "interrupted", "has not got its history yet"),
                )
            case 1:
                target = self.chooser.choice((1, 3_000, 1 << 20))
                return Act(f"compact {target}", lambda: compact_job(self.deployment, target), NOT_RUN)
            case 2:
                self.made += 1
                folder = self.deployment.with_name(f"backup {self.made}")
                return Act(
                    folder.name,
                    lambda: back_up(self.deployment, LocalPath.of(folder)),
                    NOT_RUN,
                    lambda: self.backups.update({folder: dict(self.sent)}),
                )
            case 3 | 4 | 5 if self.backups and self.restores:
                return self.restoring(self.chooser.choice([*self.backups]))
            case _:
                self.edit()
                return None

    def restoring(self, backup: Path) -> Act:
        """Go back to a backup, as often as it takes."""

        self.say_buckets(backup / "checkpoint")

        def do() -> None:
            self.owed = backup
            restore(self.deployment, LocalPath.of(backup), replace=True, remove_results=True)

        def done() -> None:
            self.owed = None
            self.restored += 1
            self.sent.clear()
            self.sent.update(self.backups[backup])

        return Act(
            f"restore {backup.name}",
            do,
            refused_with("has joined", "would be lost", "cannot be removed", "the job has gone back"),
            done,
        )

    def edit(self) -> None:
        """Change settings that may be changed between two runs."""
        text = self.deployment.read_text("utf-8")
        text = re.sub(r"(maxFilesPerTrigger|maxOffsetsPerTrigger): \d+", self._another, text)
        self.deployment.write_text(text, "utf-8")

    def _another(self, found: re.Match[str]) -> str:
        return f"{found[1]}: {self.chooser.choice((1, 2, 5, 50))}"

    def say_buckets(self, checkpoint: Path | None = None) -> None:
        """Write into the file how many buckets a checkpoint has, as a refused start asks for; None = the job's."""
        place = load_deployment(self.deployment).checkpoint if checkpoint is None else LocalPath.of(checkpoint)
        record = read_record(place)
        if record is not None:
            text = self.deployment.read_text("utf-8")
            self.deployment.write_text(re.sub(r"buckets: \d+", f"buckets: {record.settings['buckets']}", text), "utf-8")
