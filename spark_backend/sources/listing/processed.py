"""What a job has read so far."""

from __future__ import annotations

from collections.abc import Sequence

from spark_backend.places.place import Place
from spark_backend.sources.listing.after_reading import SettledFile, forget_settled
from spark_backend.sources.listing.listed_source import ListedSource
from spark_backend.sources.listing.read_files import ReadFiles, what_was_read


def processed_files(checkpoint: Place, sources: Sequence[ListedSource]) -> ReadFiles:
    """What committed micro-batches have read, without what was archived or deleted since.

    Raises DamagedManifest.
    """
    read = what_was_read(checkpoint)
    forget_settled(read, SettledFile.of(checkpoint).read(), sources)
    return read
