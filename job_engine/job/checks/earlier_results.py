"""Refuse to start where results would be doubled: a checkpoint that is older than its sinks.

A checkpoint may be restored from a copy or deleted while the sinks stay. What Spark would then
process again has its results already. The micro-batch that was interrupted is the exception: Spark
repeats it, and its results are written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from job_engine.places.place import Place
from job_engine.sinks.kinds import Sink, publishing
from job_engine.sources.listing.batch_log import batches_of
from querylang.errors import InputError


def refuse_other_results(
    checkpoint: Place, identity: str, sinks: Mapping[str, Sink], totals: Mapping[str, Iterable[int]]
) -> None:
    """Raise InputError if a sink holds results that this checkpoint does not know.

    identity: of the checkpoint
    totals: by folder beside the checkpoint, the micro-batches that it has a file of
    """
    newest = batches_of(checkpoint).begun
    for name, sink in sinks.items():
        for result in publishing(sink).results(sink):
            if result.identity == identity and result.batch > newest:
                raise InputError(
                    _too_late(checkpoint, f"the sink '{name}' holds results", result.batch, newest, identity)
                )
            if result.identity != identity and not sink.shared:
                raise InputError(
                    f"the sink '{name}' holds results of another checkpoint, such as {result.place}: a job that begins"
                    " anew would write its matches a second time. Restore that checkpoint, choose an empty folder,"
                    " or set `shared: true` for the sink"
                )
    for folder, numbers in totals.items():
        last = max(numbers, default=-1)
        if last > newest:
            raise InputError(_too_late(checkpoint, f"its folder '{folder}' has counts", last, newest, identity))


def _too_late(checkpoint: Place, what: str, batch: int, newest: int, identity: str) -> str:
    reached = "has processed nothing yet" if newest < 0 else f"has reached micro-batch {newest}"
    return (
        f"{checkpoint}: {reached}, but {what} of micro-batch {batch}: it was restored from an older copy,"
        " or part of it was deleted, and would write results a second time. Restore the newest checkpoint,"
        f" or remove later files from the sinks ('{identity}-NUMBER-...') and from '{checkpoint / 'ensue'}'."
        " Delta tables remember their micro-batches: choose new ones"
    )
