"""A bucket's state: open while engines run, saved as one binary value by the driver."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from job_engine.durable_files import complete, make_kept_folder, new_file, sync
from job_engine.operator.clocks import JobClock
from job_engine.place import Place, local_copy, place_of, writable
from job_engine.wire.gathering import GroupName
from job_engine.wire.packed_rows import COMMANDS, CONTROL, HOME, ContainerError, GroupRecords, pack, unpack
from job_engine.wire.partition_groups import PartitionGroup
from job_engine.wire.program import NullRule, Program, Stage
from querylang.dataclass import dataclass, field, replace
from querylang.errors import InputError
from querylang.plan.model import Plan
from runtime.column_types import has_column
from runtime.columns.arrivals import SYSTEM_FIELDS, Arrivals, RecordKind, arrivals_schema
from runtime.engine import Engine, StateError

STATE_VERSION = 3

_USE = "state"

_AS_IN_SQL = "sql"

Owed = tuple[tuple[str, str, str, int], ...]


@dataclass(frozen=True, slots=True)
class BucketState:
    """The open state of a bucket.

    engines: one per partition group; they change in place while they process records
    clock: the job's clock
    held: records that were read and are not released yet
    epochs: the number of the epoch that each engine is in; none = the queries never change
    reported: number of the last notice among the outputs
    joined: number of the last epoch whose queries have what they found in the history
    sql_nulls: whether the state says that nulls are as in SQL
    owed: changes of the ledger that the next step reports, by query, source and word
    """

    engines: tuple[Engine, ...]
    clock: JobClock = field(default_factory=JobClock)
    held: tuple[GroupRecords, ...] = ()
    epochs: tuple[int, ...] = ()
    reported: int = 0
    joined: int = 0
    sql_nulls: bool = False
    owed: Owed = ()


@dataclass(frozen=True, slots=True)
class SavedBucket:
    """The state of a bucket as plain data.

    buckets: number of buckets that it was written for
    snapshots: of the engines, one per partition group
    names: of the partition groups, and the numbers of their epochs; none = the queries never change
    reported, joined, sql_nulls, owed: as in `BucketState`
    chains: whether queries that feed each other were gathered
    """

    buckets: int
    clock: JobClock
    snapshots: tuple[bytes, ...]
    held: tuple[GroupRecords, ...]
    names: tuple[tuple[GroupName, int], ...] = ()
    reported: int = 0
    joined: int = 0
    sql_nulls: bool = False
    chains: bool = False
    owed: Owed = ()

    def to_bytes(self) -> bytes:
        """The value that the driver keeps."""
        header = {
            "buckets": self.buckets,
            "groups": len(self.snapshots),
            "clocks": self.clock.to_plain(),
            **({"unread": [item.to_plain() for item in self.clock.unread]} if self.clock.unread else {}),
            "held": [[item.group, item.is_copy, item.source, item.rank] for item in self.held],
            "refusing": [item.refuses for item in self.held],
            "counted": [item.counted for item in self.held],
        }
        if self.names:
            header |= {"epochs": [[*name, epoch] for name, epoch in self.names], "reported": self.reported}
        if self.joined:
            header["joined"] = self.joined
        if self.sql_nulls:
            header["nulls"] = _AS_IN_SQL
        if self.chains:
            header["chains"] = True
        if self.owed:
            header["owed"] = self.owed
        parts = [*self.snapshots, *(item.arrivals.to_bytes() for item in self.held)]
        return pack(_USE, STATE_VERSION, header, parts, is_stored=True)

    @staticmethod
    def from_bytes(data: bytes) -> SavedBucket:
        """The inverse of `to_bytes`, of this version; raises ContainerError."""
        header, parts = unpack(_USE, STATE_VERSION, data)
        snapshots, held = parts[: header["groups"]], parts[header["groups"] :]
        return SavedBucket(
            header["buckets"],
            JobClock.from_plain(header["clocks"], header.get("unread", ())),
            tuple(bytes(part) for part in snapshots),
            _held(header, held),
            tuple(_name_and_epoch(*row) for row in header.get("epochs", ())),
            header.get("reported", 0),
            header.get("joined", 0),
            header.get("nulls") == _AS_IN_SQL,
            bool(header.get("chains", False)),
            tuple(map(_owed, header.get("owed", ()))),
        )


def open_state(program: Program, bucket: int, data: bytes | None) -> BucketState:
    """A bucket's state with running engines; None = a bucket that has never been called.

    Raises InputError for a state of another version or number of buckets.
    """
    groups = program.groups(program.plan_index(bucket))
    if program.epochs:
        return _open_between_changes(program, bucket, data)
    # stopped queries are reported by one bucket only
    plans = [group.plan if bucket % program.buckets == HOME else replace(group.plan, stopped=()) for group in groups]
    is_kept = program.nulls is not NullRule.PLAN
    if data is None:
        return BucketState(tuple(Engine(plan, program.matcher) for plan in plans), sql_nulls=is_kept)
    try:
        saved = SavedBucket.from_bytes(data)
        _refuse_other_shape(saved, program, groups)
        if program.nulls is NullRule.STATE and not saved.sql_nulls:
            plans, is_kept = [_with_failing_nulls(plan, _contents_of(plan)) for plan in plans], False
        engines = tuple(
            Engine.restore(plan, snapshot, program.matcher)
            for plan, snapshot in zip(plans, saved.snapshots, strict=True)
        )
    except (ContainerError, StateError, *_IMPOSSIBLE) as error:
        raise _unreadable(bucket, error) from error
    return BucketState(engines, saved.clock, saved.held, sql_nulls=is_kept, owed=saved.owed)


@lru_cache(maxsize=64)
def _with_failing_nulls(plan: Plan, contents: tuple[object, ...]) -> Plan:  # noqa: ARG001
    """Made once per process: engines know a plan again; `contents`: as of `_contents_of`."""
    return plan.with_failing_nulls()


def _contents_of(plan: Plan) -> tuple[object, ...]:
    """What its tables hold, by which plans are not compared."""
    return tuple(table.content for query in plan.queries for table in query.tables)


def _unreadable(bucket: int, error: Exception) -> InputError:
    return InputError(
        f"the state of bucket {bucket} cannot be read: {error}. Restore the checkpoint from a copy,"
        " or choose a new one and new sinks"
    )


def _open_between_changes(program: Program, bucket: int, data: bytes | None) -> BucketState:
    """A bucket's state whose engines may be in different epochs."""
    stages, is_home = program.stages, bucket % program.buckets == HOME
    first = stages[0]
    if data is None:
        plans = [_of_bucket(group.plan, is_home) for group in first.groups]
        engines = tuple(Engine(plan, program.matcher, has_changes=program.has_changes) for plan in plans)
        return BucketState(engines, epochs=(first.number,) * len(engines))
    try:
        return _continued(program, SavedBucket.from_bytes(data), is_home)
    except (ContainerError, StateError, *_IMPOSSIBLE) as error:
        raise _unreadable(bucket, error) from error


def _continued(program: Program, saved: SavedBucket, is_home: bool) -> BucketState:
    """The engines of a saved bucket, and those of groups that have come since then."""
    stages = program.stages
    coming = {title for stage in unjoined(program, saved.joined) for title in titles_of(stage)}
    names = saved.names or tuple((group.name, stages[0].number) for group in stages[0].groups if _runs(group, coming))
    if saved.buckets != program.buckets or len(saved.snapshots) != len(names):
        raise ContainerError(
            f"it was written for {saved.buckets} buckets and {len(saved.snapshots)} partition groups; this run has"
            f" {program.buckets} and {len(names)}"
        )
    by_number = {stage.number: stage for stage in stages}
    engines: dict[GroupName, Engine] = {}
    for (name, epoch), snapshot in zip(names, saved.snapshots, strict=True):
        group = next((group for group in stages[0].groups if group.name == name), None)
        if group is not None:  # one that is left out has no queries any more
            plan = _of_bucket(by_number[epoch].groups[group.number].plan, is_home)
            engines[name] = Engine.restore(plan, snapshot, program.matcher, has_changes=program.has_changes)
    return _arranged(
        program,
        names,
        engines,
        coming,
        BucketState((), saved.clock, saved.held, (), saved.reported, saved.joined, owed=saved.owed),
    )


def continued(before: Program, program: Program, bucket: int, state: BucketState) -> BucketState | None:
    """An open state whose engines continue with another program; None = it has to be read again.

    before: the program that it was open with; nothing but its changes follows in the other one
    """
    is_plain = program.nulls is NullRule.PLAN and program.buckets == before.buckets and not state.sql_nulls
    is_plain &= program.tables == before.tables  # engines hold what they look up
    if not (is_plain and program.epochs) or unjoined(program, state.joined):
        return None
    stages, is_home = program.stages, bucket % program.buckets == HOME
    groups = {group.name: group for group in stages[0].groups}
    by_number = {stage.number: stage for stage in stages}
    names = tuple(
        (group.name, epoch)
        for group, epoch in zip(before.groups(), state.epochs or [stages[0].number] * len(state.engines), strict=True)
    )
    engines: dict[GroupName, Engine] = {}
    for (name, epoch), engine in zip(names, state.engines, strict=True):
        stage = by_number.get(epoch)
        if stage is None:
            return None
        if name in groups:
            plan = _of_bucket(stage.groups[groups[name].number].plan, is_home)
            if (plan.events, plan.queries) != (engine.plan.events, engine.plan.queries):
                return None
            engines[name] = engine
    return _arranged(program, names, engines, (), state) if engines else None


def _arranged(
    program: Program,
    names: Sequence[tuple[GroupName, int]],
    engines: dict[GroupName, Engine],
    coming: Collection[str],
    state: BucketState,
) -> BucketState:
    """A state with an engine for each group of a program.

    names: of the groups that the state had, and the numbers of their epochs
    engines: of those that are still there
    coming: titles of queries whose history is not there yet
    state: its other parts, as they were
    """
    stages, epochs = program.stages, dict(names)
    if not engines:
        raise ContainerError("it has none of the partition groups of this run")
    routing = program.routing()
    crossing = () if routing is None else routing.groups
    number_of = {group.name: group.number for group in stages[0].groups}
    # groups that cross have the same calls: where all queries had ended, some are in a later epoch
    begun = min((epochs[name] for name in engines if number_of[name] in crossing), default=stages[0].number)
    any_engine = next(iter(engines.values()))
    for group in stages[0].groups:
        if group.name not in engines:  # it takes over what control events have set
            queries = tuple(query for query in group.plan.queries if query.title in coming)
            engines[group.name] = any_engine.beside(Plan(group.plan.events, queries))
            epochs[group.name] = begun if group.number in crossing else stages[0].number
    held = []
    for item in state.held:
        number = number_of.get(names[item.group][0])
        if number is not None:
            refuse_impossible(item.arrivals, stages[0].groups[number].plan)
            held.append(replace(item, group=number))
    held += _controls_for_new(held, [number_of[name] for name in engines if name not in dict(names)])
    ordered = [group.name for group in stages[0].groups]
    return BucketState(
        tuple(engines[name] for name in ordered),
        state.clock,
        tuple(held),
        tuple(epochs[name] for name in ordered),
        state.reported,
        state.joined,
        owed=state.owed,
    )


def unjoined(program: Program, joined: int) -> list[Stage]:
    """The stages whose queries have a history that a bucket has not got yet.

    joined: of its state
    """
    return [stage for stage in program.stages if stage.history is not None and stage.number > joined]


def titles_of(stage: Stage) -> tuple[str, ...]:
    """The titles of its queries that have a history."""
    return () if stage.history is None else stage.history.titles


def _runs(group: PartitionGroup, coming: Collection[str]) -> bool:
    """Whether a group has a query beside those that come."""
    return any(query.title not in coming for query in group.plan.queries)


def _controls_for_new(held: Sequence[GroupRecords], new: Sequence[int]) -> list[GroupRecords]:
    """Control events that wait, for groups that were not there when they were read."""
    numbers = {item.group for item in held if item.source in (CONTROL, COMMANDS)}
    some = [item for item in held if item.source in (CONTROL, COMMANDS) and item.group == min(numbers)]
    return [replace(item, group=number, counted=()) for number in new for item in some]


def _of_bucket(plan: Plan, is_home: bool) -> Plan:
    """Stopped queries are reported by one bucket only."""
    return plan if is_home else replace(plan, stopped=())


def _name_and_epoch(identity: str, is_shared: bool, sources: list[str] | None, epoch: int) -> tuple[GroupName, int]:
    return (identity, is_shared, None if sources is None else tuple(sources)), epoch


_IMPOSSIBLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError, pa.ArrowException)
"""What reading a header or a table raises whose content cannot be."""


def _refuse_other_shape(saved: SavedBucket, program: Program, groups: Sequence[PartitionGroup]) -> None:
    buckets = program.buckets
    if program.gathered and not saved.chains:
        raise ContainerError("its queries did not feed each other, and were in other buckets")
    if saved.buckets != buckets or len(saved.snapshots) != len(groups):
        raise ContainerError(
            f"it was written for {saved.buckets} buckets and {len(saved.snapshots)} partition groups; this run has"
            f" {buckets} and {len(groups)}"
        )
    for item in saved.held:
        refuse_impossible(item.arrivals, groups[item.group].plan)


def close_state(program: Program, bucket: int, state: BucketState) -> SavedBucket:
    """The state to save. Raises InputError if the one that was opened cannot have been saved."""
    try:
        snapshots = tuple(engine.snapshot() for engine in state.engines)
    except StateError as error:
        raise _unreadable(bucket, error) from error
    names = (
        tuple((group.name, epoch) for group, epoch in zip(program.groups(), state.epochs, strict=True))
        if state.epochs
        else ()
    )
    said = (state.reported, state.joined, state.sql_nulls, bool(program.gathered), state.owed)
    return SavedBucket(program.buckets, state.clock, snapshots, state.held, names, *said)


def _held(header: Mapping[str, Any], tables: Sequence[memoryview]) -> tuple[GroupRecords, ...]:
    # of a state that does not say it, only one group has records that no query can read
    refusing = header.get("refusing", [True] * len(tables))
    counted = map(_counted, header.get("counted", [None] * len(tables)))
    return tuple(
        GroupRecords(group, is_copy, source, rank, Arrivals.from_bytes(bytes(table)), *own)
        for (group, is_copy, source, rank), table, *own in zip(header["held"], tables, refusing, counted, strict=True)
    )


def _owed(plain: Sequence[Any]) -> tuple[str, str, str, int]:
    query, source, word, count = plain
    return str(query), str(source), str(word), int(count)


def _counted(plain: list[tuple[int, list[str]]] | None) -> tuple[tuple[int, tuple[str, ...]], ...] | None:
    return None if plain is None else tuple((end, tuple(titles)) for end, titles in plain)


def refuse_impossible(arrivals: Arrivals, plan: Plan) -> None:
    """Refuse held records that cannot be, before kernels read them without looking at bounds.

    Raises ValueError if they lack a system column, have a null in it or are of no kind.
    """
    table = arrivals.table
    table.validate(full=True)
    known = arrivals_schema(plan)
    for own in table.schema:
        if own.name in known.names and own.type != known.field(own.name).type:
            raise ValueError(f"held records have {own.type} in '{own.name}'")
    for own in SYSTEM_FIELDS:
        if own.nullable:
            continue
        if not has_column(table, own.name) or table.column(own.name).null_count:
            raise ValueError(f"held records have no '{own.name}'")
    if len(table):
        kinds = pc.min_max(table.column("_kind")).as_py()
        if kinds["min"] < min(RecordKind) or kinds["max"] >= len(plan.events):
            raise ValueError("held records are of an event type that there is not")


# The states that buckets begin with where a driver begins anew, each in a file of its own.


def write_seeds(folder: Place, states: Iterable[tuple[int, bytes]]) -> int:
    """Write the states of buckets to a new folder; how many bytes they have."""
    make_kept_folder(folder)
    size = 0
    for bucket, data in states:
        place = folder / _name(bucket)
        here = writable(place)
        with new_file(here) as file:
            file.write(data)
        complete([(here, place)])
        size += len(data)
    sync(folder)
    return size


def first_state(program: Program, bucket: int) -> bytes | None:
    """The state that a bucket begins with; None = it begins empty."""
    return None if program.seeds is None else read_seed(place_of(program.seeds), bucket)


def read_seed(folder: Place, bucket: int) -> bytes:
    """The state that a bucket begins with; raises InputError if it is not there."""
    file = folder / _name(bucket)
    try:
        with local_copy(file) as here:
            return here.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{file}: is missing: it has the state of bucket {bucket}; restore it from a copy") from error


def seeds_of(folder: str, buckets: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """The states of buckets, one at a time."""
    for bucket in buckets:
        yield bucket, read_seed(place_of(folder), bucket)


def _name(bucket: int) -> str:
    return f"{bucket:05d}.state"
