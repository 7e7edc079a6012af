"""The states that buckets begin with where a driver begins anew, each in a file of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from job_engine.durable_files import complete, make_kept_folder, new_file, sync
from job_engine.places.place import Place, local_copy, place_of, writable
from job_engine.wire.program import Program
from querylang.errors import InputError


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
