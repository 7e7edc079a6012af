"""Plan a start of a job: what its files would change on the checkpoint. Needs no driver."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from job_engine.errors import in_plain_words
from job_engine.job.checkpoint.checkpoint_record import refuse_other_engine
from job_engine.job.journal.file_changes import foretell
from job_engine.job.other_release import other_release
from job_engine.job.preflight import checked
from job_engine.settings.deployment_file import load_deployment
from job_engine.settings.given_mapping import places_in_words
from querylang.printable import masked


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What a start that applies the files would do.

    is_new: whether no job has run on the checkpoint yet
    is_needed: whether the job does not start without applying them
    changes: what it would change, a line each
    live: what comes from live changes and stays, a line each
    release: says that another release has written the checkpoint until now; None = it has not
    """

    is_new: bool
    is_needed: bool = False
    changes: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    release: str | None = None

    def to_plain(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def plan_of(path: Path | str) -> StartPlan:
    """Plan a start of a deployment; writes nothing. Raises InputError or QueryErrors."""
    deployment = load_deployment(path)
    with in_plain_words(deployment.environment), places_in_words(deployment.places):
        refuse_other_engine(deployment)
        ready = checked(deployment, apply=True)
        if ready.is_new:
            return StartPlan(is_new=True)
        found = foretell(deployment, ready.files, ready.program)
        needed = ready.has_other_texts and bool(foretell(deployment, ready.unapplied, ready.program).outcomes)
        changes, live = (
            tuple(masked(line, deployment.environment) for line in lines) for lines in (found.lines(), found.live())
        )
        release = next(other_release(deployment), None)
        return StartPlan(is_new=False, is_needed=needed, changes=changes, live=live, release=release)
