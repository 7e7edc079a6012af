"""What the lister of files has to know of a deployment's sources."""

from __future__ import annotations

from collections.abc import Sequence

from spark_backend.places.place import place_to_plain
from spark_backend.settings.deployment import Source
from spark_backend.sources.formats import source_format
from spark_backend.sources.listing.listed_source import ListedSource


def listed_sources(sources: Sequence[Source], control: Source | None) -> list[ListedSource]:
    """Those of files as the lister takes them; `control`: which of them is the control stream."""
    return [listed_source(source, is_control=source is control) for source in of_files(sources)]


def of_files(sources: Sequence[Source]) -> list[Source]:
    """The sources that are neither Kafka's nor Delta's."""
    return [source for source in sources if source.kafka is None and source.delta is None]


def listed_source(source: Source, *, is_control: bool = False) -> ListedSource:
    """A source as the lister takes it."""
    files, options = source.files, source.options
    folder, store = place_to_plain(source.path)
    return ListedSource(
        name=source.name,
        folder=folder,
        store=store,
        suffixes=source_format(source.format).suffixes,
        pattern=options.get("pathGlobFilter"),
        is_recursive=options.get("recursiveFileLookup", "").lower() == "true",
        order=files.order,
        min_age=files.min_age,
        max_files=_count(options.get("maxFilesPerTrigger")),
        max_bytes=_count(options.get("maxBytesPerTrigger")),
        after=files.after,
        archive=None if files.archive is None else str(files.archive.resolve()),
        stops=files.stops,
        must_prove=not is_control,
        has_clock=not is_control,
    )


def _count(text: str | None) -> int | None:
    return None if text is None else int(text)
