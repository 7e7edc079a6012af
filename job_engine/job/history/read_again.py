"""What a job has read, cut into pieces that are read again, in the order of each source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from job_engine.job.history.history_folders import Mark
from job_engine.job.history.table_end import TableEnd
from job_engine.settings.deployment import Deployment
from job_engine.sources.kinds import running_of
from job_engine.sources.listing.manifests import ReadList
from job_engine.sources.source import Again, PieceAgain
from querylang.errors import InputError


def mark_of(deployment: Deployment, read: ReadList, titles: Sequence[str], events: Sequence[str]) -> Mark:
    """How far it is once all of it has been read again."""
    done = {
        source.name: running_of(source).done(read.of(source.name, source.format)) for source in deployment.all_sources
    }
    return Mark(tuple(titles), tuple(events), done)


def pieces_between(
    deployment: Deployment,
    before: Mark | None,
    read: ReadList,
    since: int | None,
    *,
    accepts_gap: bool,
    table: TableEnd | None = None,
    firsts: Mapping[str, str] | None = None,
) -> list[list[PieceAgain]]:
    """What is read in each step, in order.

    before: what has been read again already; None = nothing
    since: as of `HistoryCommand`
    table: what a history table has of it; None = there is none
    firsts: as in `PlannedRun`

    Raises InputError if something that was read is no longer there.
    """
    found: dict[str, Sequence[PieceAgain]] = {}
    gaps: list[str] = []
    for source in deployment.all_sources:
        done = None if before is None else before.by_source.get(source.name)
        asked = Again(done, since, has_table=table is not None, firsts=firsts)
        own = running_of(source).again(source.own, read.of(source.name, source.format), asked)
        found[source.name] = own.pieces
        gaps += own.gaps
    if table is not None:
        gaps += table.gaps(found)
    if gaps and not accepts_gap:
        raise InputError(f"the history has a gap: {'; '.join(gaps)}. `--accept-gap` deploys without what is missing")
    return in_proportion(found)


def in_proportion(pieces: Mapping[str, Sequence[PieceAgain]]) -> list[list[PieceAgain]]:
    """Steps in which all sources get on at the same pace, so that few records are held."""
    total = {source: max(1, sum(piece.size for piece in own)) for source, own in pieces.items()}
    left = {source: list(own) for source, own in pieces.items() if own}
    done = dict.fromkeys(left, 0)
    steps: list[list[PieceAgain]] = []
    while left:
        # each step takes a piece of the source that is furthest behind, and of those as far behind
        least = min(done[source] / total[source] for source in left)
        step = []
        for source in [name for name in left if done[name] / total[name] <= least]:
            piece = left[source].pop(0)
            done[source] += max(1, piece.size)
            step.append(piece)
            if not left[source]:
                del left[source]
        steps.append(step)
    return steps
