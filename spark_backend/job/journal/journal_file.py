"""The journal of a checkpoint as a file: replaced as a whole, so that a change is done or not."""

from __future__ import annotations

from spark_backend.job.journal.journal import JOURNAL_VERSION, Journal, PlainJournal
from spark_backend.job_file import RESTORE, JobFile, indented
from spark_backend.places.place import Place
from spark_backend.settings.deployment import Deployment


def journal_file(checkpoint: Place) -> JobFile[PlainJournal]:
    """The journal, inside a checkpoint."""
    file, versions = checkpoint / "ensue" / "program.json", range(1, JOURNAL_VERSION + 1)
    return JobFile(file, PlainJournal, RESTORE, versions, text=indented)


def read_journal(deployment: Deployment) -> Journal | None:
    """The journal of a checkpoint; None = its queries have never changed. Raises InputError."""
    file = journal_file(deployment.checkpoint)
    found = file.read()
    if found is None:
        return None
    with file.checking():
        return Journal.of_plain(found, deployment.value_of)


def write_journal(checkpoint: Place, journal: Journal) -> None:
    """Replace the journal; it survives a power cut."""
    journal_file(checkpoint).write(journal.to_plain())
