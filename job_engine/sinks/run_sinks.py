"""The sinks of a run, on the driver: begun, published micro-batch by micro-batch, ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from job_engine.places.place import Place
from job_engine.sinks.kinds import Draft, MicroBatch, Publishing, Sink, publishing


def begin(identity: str, sinks: Mapping[str, Sink], newest: int, drafts: Place | None) -> dict[str, Sink]:
    """The sinks of a run that begins; raises InputError where the job may not write.

    identity: names the checkpoint
    newest: number of the newest micro-batch that the checkpoint knows; -1 = none
    drafts: a folder that tasks and the driver see; None = what has no place passes through Spark
    """
    placed = {
        name: sink if sink.place is None else replace(sink, place=sink.place.resolve()) for name, sink in sinks.items()
    }
    if drafts is not None:
        placed = {name: publishing(sink).with_drafts(sink, str(drafts)) for name, sink in placed.items()}
    for kind, names in _by_kind(placed):
        kind.begin(identity, [placed[name] for name in names], newest)
    return placed


def publish(sinks: Mapping[str, Sink], drafts: Sequence[tuple[str, Draft]], batch: MicroBatch) -> None:
    """Make the drafts of a micro-batch visible; `drafts`: with the names of their sinks."""
    own = {word: [draft for name, draft in drafts if name == word] for word in sinks}
    for kind, words in _by_kind(sinks):
        written = [(sinks[word], own[word]) for word in words if own[word]]
        if written:
            kind.publish(batch, written)


def end(identity: str, sinks: Mapping[str, Sink]) -> None:
    """End a run."""
    for kind, _ in _by_kind(sinks):
        kind.end(identity)


def _by_kind(sinks: Mapping[str, Sink]) -> list[tuple[Publishing, list[str]]]:
    """The names of the sinks of each kind."""
    found: dict[str, list[str]] = {}
    for name, sink in sinks.items():
        found.setdefault(sink.package, []).append(name)
    return [(publishing(sinks[names[0]]), names) for names in found.values()]
