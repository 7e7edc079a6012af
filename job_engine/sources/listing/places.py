"""Where a checkpoint has the list of what was read, and what is raised if that is damaged."""

from __future__ import annotations

from job_engine.places.place import Place
from querylang.errors import InputError

RESTORE_ALL = "Restore the whole checkpoint from a copy"
"""What to do about a damaged file of the list."""


class DamagedManifest(InputError):
    """A file of the list of what was read is missing or damaged; the text says which."""


def inputs_folder(checkpoint: Place) -> Place:
    """Where the list of inputs is, inside a checkpoint."""
    return checkpoint / "ensue" / "inputs"
