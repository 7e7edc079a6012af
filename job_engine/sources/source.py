"""A source of a deployment, whatever kind it is of, and what is to be known of its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from job_engine.place import Place
from job_engine.setting_keys import FixedValues
from job_engine.wire.clock_sources import Idle
from querylang.dataclass import dataclass, field
from querylang.plan.model import TimePolicy
from runtime.file_forms import USUAL_CSV, CsvForm
from runtime.policies.settings_text import USUAL_TIMES, TimeForm


@dataclass(frozen=True, slots=True)
class Source:
    """Where records come from.

    format: one of FORMATS of `job_engine.sources.kinds`
    own: what its kind has to know of it
    place: the folder that it is in; None = it is in no folder
    table: its name in a catalog; "" = it has none, or `place` says where it is
    event: every row is of this event type, whatever its columns say; None = `type_field` says it
    type_field, source_time, arrival: names of columns; None = the usual ones
    source_column, partition, offset: names of columns that say where rows came from; None = the
        usual ones. `none` in place of a name = there is no such column
    is_typeless: its first files showed that its column `event` is a field
    ordering: the ordering policy of its records; None = as the queries say
    ordering_line: its line in the deployment file
    idle: how long it is silent before time advances without it; None = as its ordering policy says
    ahead: µs that its arrival times may be later than the micro-batch; None = no limit
    max_record: length of the longest record that is read, in bytes; None = the usual limit
    csv: how CSV files are written
    times: how times are written
    infers: whether types that nothing defines may be inferred from CSV and JSON
    fixed: its settings that may not change on a checkpoint
    """

    name: str
    format: str
    own: Any = field(repr=False)
    place: Place | None = None
    table: str = ""
    event: str | None = None
    type_field: str | None = None
    source_time: str | None = None
    arrival: str | None = None
    source_column: str | None = None
    partition: str | None = None
    offset: str | None = None
    is_typeless: bool = False
    ordering: TimePolicy | None = None
    ordering_line: int | None = field(default=None, compare=False)
    idle: Idle | None = None
    ahead: int | None = None
    max_record: int | None = None
    csv: CsvForm = USUAL_CSV
    times: TimeForm = USUAL_TIMES
    infers: bool = False
    fixed: FixedValues = field(default_factory=dict, repr=False, compare=False)


# What a source has that a job has not processed.


@dataclass(frozen=True, slots=True)
class PartitionBacklog:
    """How many messages of a partition of a topic have not been processed.

    held_open: of these how many wait behind an open transaction
    since: when the first of those arrived, µs; None = none waits, or it is not known
    """

    topic: str
    partition: int
    messages: int
    held_open: int = 0
    since: int | None = None


@dataclass(frozen=True, slots=True)
class SourceBacklog:
    """What a source has that has not been processed.

    files, bytes: of a folder; None = not a folder, or not known
    messages: of a log such as topics, all partitions together; None = not a log, or not known
    partitions: of topics
    problem: why it is not known; "" = it is
    """

    source: str
    files: int | None = None
    bytes: int | None = None
    messages: int | None = None
    partitions: tuple[PartitionBacklog, ...] = ()
    problem: str = ""


# What is listed and waits to be read, as the clock of its source has to know it.


@dataclass(frozen=True, slots=True)
class Unread:
    """The files of a source that wait.

    first: the least arrival time of their records, µs; NO_TIME = not known
    number: the least of their numbers
    path: of the file with that arrival
    """

    first: int
    number: int
    path: str


# What a job has read, cut into pieces that are read again.


@dataclass(frozen=True, slots=True)
class Again:
    """What is asked for.

    before: what has been read again already, as `SourceRunning.done` has it; None = nothing
    since: records that arrived before, µs, are left out; None = none are
    has_table: whether a history table has what came first, and what is missing there is no gap
    firsts: as in `PlannedRun`
    """

    before: Any = None
    since: int | None = None
    has_table: bool = False
    firsts: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class PieceAgain:
    """Part of what was read of a source.

    size: in units of the source: bytes or messages
    work: of one task
    unread: what is left behind it, by source, as in `Manifest`
    """

    source: str
    size: int
    work: Any
    unread: Mapping[str, Unread | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PiecesAgain:
    """What there is in order, and what is missing, a line each."""

    pieces: Sequence[PieceAgain] = ()
    gaps: Sequence[str] = ()
