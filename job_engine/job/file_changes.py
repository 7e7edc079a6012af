"""Compare the files of queries and values with what runs on a checkpoint, and apply them."""

from __future__ import annotations

from collections.abc import Iterator

from job_engine.deployment import Deployment
from job_engine.job.checkpoint.job_folder import JobFolder
from job_engine.job.journal import Journal, instance_words, moment_of_change
from job_engine.job.plan_rules import finished
from job_engine.job.written_journal import (
    asked_of_text,
    files_text,
    how_taken,
    is_same,
    reached_journal,
    read_journal,
    write_files,
    write_journal,
)
from job_engine.sources.listing.command_folder import CHANGE
from job_engine.wire.program import Program
from querylang.dataclass import dataclass
from querylang.errors import InputError
from querylang.merging import FileChange
from querylang.plan.routing import Outcome
from querylang.running import LIVE, Running
from runtime.timestamps import format_time


@dataclass(frozen=True, slots=True)
class Foretold:
    """What applying the files would do.

    outcomes: what becomes of queries and instances
    running: what runs then
    """

    outcomes: tuple[Outcome, ...]
    running: Running

    def lines(self) -> Iterator[str]:
        """What would change, a line each."""
        yield from dict.fromkeys(map(self._line, self.outcomes))

    def _line(self, outcome: Outcome) -> str:
        query = outcome.query
        match outcome.kind:
            case "replaced":
                return f"replace '{query}': {self._way(outcome)}"
            case "undeployed":
                return f"undeploy '{query}'"
            case "removed":
                return f"remove {instance_words(query, outcome.instance)}"
            case "deployed" if not outcome.text.startswith("instance"):
                return f"deploy '{query}'" + ("" if self.running.queries[query].instances else ", without an instance")
            case kind:
                return f"{'set' if kind == 'set' else 'deploy'}: {outcome.text}"

    def _way(self, outcome: Outcome) -> str:
        rules = [f"{name} {outcome.details[name]}; " for name in ("nulls", "metadata") if name in outcome.details]
        return "".join(rules) + self._handover(outcome)

    def _handover(self, outcome: Outcome) -> str:
        if outcome.details["state"] == "kept":
            return "it keeps all state"
        if "handover" not in outcome.details:
            return "it begins with the first record"
        moment = format_time(outcome.details["handover"])
        if len(self.running.queries[outcome.query].versions) == 1:
            return f"it begins at {moment} with empty windows"
        return f"the old text gives the matches before {moment}, the new one those from then on"

    def live(self) -> Iterator[str]:
        """What comes from live changes and stays, a line each."""
        for query in self.running.queries.values():
            if query.origin == LIVE:
                yield f"keep '{query.name}': its text is live"
            for name, values in query.instances.items():
                if values and query.value_origins.get(name) == LIVE:
                    shown = ", ".join(f"{key}={value}" for key, value in query.shown(name).items())
                    yield f"keep {instance_words(query.name, name)}: its values are live: {shown}"


def foretell(deployment: Deployment, change: FileChange, program: Program) -> Foretold:
    """What a start would do that applies the files, after the changes that wait; writes nothing.

    program: of the files, with the settings of the job

    Raises InputError if they cannot be applied.
    """
    folder = JobFolder(deployment.checkpoint)
    reached = folder.reached()
    journal = (reached_journal(deployment, reached) or _begun(deployment, change, program)).annotated_by(change.files)
    changes = [(command.text, command.at) for command in folder.commands.waiting() if command.kind == CHANGE]
    journal = journal.gathered_in(program)
    for text, at in (*changes, (files_text(change), None)):
        moment = moment_of_change(reached.progress, at)
        asked = asked_of_text(text, deployment.value_of)
        journal = journal.changed(asked, how_taken(deployment, program, journal, moment, reached))
    last = journal.taken[-1]
    if last.errors:
        raise InputError(f"{deployment.file}: {'; '.join(last.errors)}")
    return Foretold(last.notice.outcomes, journal.running)


def refuse_changed_files(deployment: Deployment, change: FileChange, program: Program) -> None:
    """Raise InputError if files cannot be applied, or if a start would leave out what they say."""
    if change.returns:
        foretell(deployment, change, program)
    if change.returns or is_same(change.before, change.files):
        return
    found = list(foretell(deployment, change, program).lines())
    if found:
        raise InputError(
            f"{deployment.checkpoint}: the files have changed since they were last applied: {'; '.join(found)}."
            f" Nothing was changed. `ensue plan {deployment.file}` shows what would change;"
            f" `ensue run {deployment.file} --apply` does it"
        )


def take_files(deployment: Deployment, change: FileChange, program: Program, *, is_written: bool) -> None:
    """Let the next start apply the files, before it reads more records.

    is_written: whether what the files said before is written down

    The command has all that is to be done: whatever is killed, it is done once.
    """
    checkpoint = deployment.checkpoint
    is_needed = not is_same(change.before, change.files)
    if is_needed or (change.returns and foretell(deployment, change, program).outcomes):
        if read_journal(deployment) is None:
            write_journal(checkpoint, _begun(deployment, change, program))
        JobFolder(checkpoint).commands.send(files_text(change), kind=CHANGE)
    if is_needed or not is_written:
        write_files(checkpoint, change.files)


def _begun(deployment: Deployment, change: FileChange, program: Program) -> Journal:
    """The journal of a checkpoint whose queries have never changed."""
    if is_same(change.before, change.files):
        return Journal.begin(change.before, program.plan(), program.gathered)
    plan = finished(change.before.plan(), deployment, feeds=program.feeds)
    return Journal.begin(change.before, plan, program.gathered)
