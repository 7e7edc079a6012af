"""The journal of a checkpoint as a file: replaced as a whole, so that a change is done or not."""

from __future__ import annotations

import json

from querylang.errors import InputError
from spark_backend.durable_files import write_durably
from spark_backend.job.changes.journal import Journal
from spark_backend.places.place import Place
from spark_backend.settings.deployment import Deployment


def journal_file(checkpoint: Place) -> Place:
    """Where the journal is, inside a checkpoint."""
    return checkpoint / "ensue" / "program.json"


def read_journal(deployment: Deployment) -> Journal | None:
    """The journal of a checkpoint; None = its queries have never changed. Raises InputError."""
    file = journal_file(deployment.checkpoint)
    try:
        return Journal.of_plain(json.loads(file.read_text("utf-8")), deployment.value_of)
    except FileNotFoundError:
        return None
    except ConnectionError:
        raise  # a store that is away says nothing about the file
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{file}: is damaged: {error}. Restore it from a copy") from error


def write_journal(checkpoint: Place, journal: Journal) -> None:
    """Replace the journal; it survives a power cut."""
    write_durably(journal_file(checkpoint), json.dumps(journal.to_plain(), indent=1) + "\n")
