"""The journal of a checkpoint as a file: replaced as a whole, so that a change is done or not."""

from __future__ import annotations

import json

from runtime.json_reader import part_of, read_json
from spark_backend.durable_files import write_durably
from spark_backend.job.journal.journal import JOURNAL_VERSION, Journal, PlainJournal
from spark_backend.places.place import Place
from spark_backend.settings.deployment import Deployment


def journal_file(checkpoint: Place) -> Place:
    """Where the journal is, inside a checkpoint."""
    return checkpoint / "ensue" / "program.json"


def read_journal(deployment: Deployment) -> Journal | None:
    """The journal of a checkpoint; None = its queries have never changed. Raises InputError."""
    file = journal_file(deployment.checkpoint)
    try:
        found = read_json(file, PlainJournal, versions=range(1, JOURNAL_VERSION + 1), way_out=_WAY_OUT)
    except FileNotFoundError:
        return None
    with part_of(file, _WAY_OUT):
        return Journal.of_plain(found, deployment.value_of)


def write_journal(checkpoint: Place, journal: Journal) -> None:
    """Replace the journal; it survives a power cut."""
    write_durably(journal_file(checkpoint), json.dumps(journal.to_plain(), indent=1) + "\n")


_WAY_OUT = "Restore it from a copy"
