"""The state of open queries as a file: versioned, with a checksum, and replaced as a whole."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from job_engine.durable_files import new_file, publish
from job_engine.wire.container import ContainerError, pack, unpack
from job_engine.wire.plan_text import fingerprint, plan_text
from querylang.errors import InputError
from querylang.plan.expression import Type
from querylang.plan.model import Plan
from runtime.instants import NO_TIME
from runtime.results.ledger import Account

LIVE_VERSION = 1

_USE = "live"

OWN = 0o600
"""Permissions of a state: it has records of users."""

Schemas = Mapping[str, Mapping[str, Type]]
"""Fields of event types that were inferred from rows, by event type and field."""

_IMPOSSIBLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)
"""What reading a header raises whose content cannot be."""


@dataclass(frozen=True, slots=True)
class SavedLive:
    """Open queries between two processes.

    plan: fingerprint of the plan; empty = no rows were sent yet, and they decide it
    queries: titles
    snapshot: of the engine; empty = as `plan`
    clock: µs; NO_TIME = none
    rows: by source, how many rows it has sent
    places: how many rows there were of all sources
    names: the columns that rows in Python have had
    schemas: inferred event types
    account: of all records
    fields: the roles whose standard columns are fields; None = no row has decided it
    offsets: by source and partition: the offsets that were sent, as ranges
    """

    plan: str
    queries: tuple[str, ...]
    snapshot: bytes
    clock: int = NO_TIME
    rows: Mapping[str, int] = field(default_factory=dict)
    places: int = 0
    names: Sequence[str] = ()
    schemas: Schemas = field(default_factory=dict)
    account: Account = field(default_factory=Counter)
    fields: tuple[str, ...] | None = ()
    offsets: Mapping[tuple[str, int], Sequence[tuple[int, int]]] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The content of a file."""
        header: dict[str, object] = {
            "plan": self.plan,
            "queries": self.queries,
            "clock": self.clock,
            "rows": dict(self.rows),
            "places": self.places,
            "names": list(self.names),
            "schemas": {name: {part: str(kind) for part, kind in own.items()} for name, own in self.schemas.items()},
            "account": [[*key, count] for key, count in self.account.items()],
        }
        if self.fields != ():
            header["fields"] = None if self.fields is None else list(self.fields)
        if self.offsets:
            header["offsets"] = [[*key, list(map(list, ranges))] for key, ranges in self.offsets.items()]
        return pack(_USE, LIVE_VERSION, header, [self.snapshot], is_stored=True)

    @staticmethod
    def from_bytes(data: bytes) -> SavedLive:
        """The inverse of `to_bytes`; raises ContainerError, and what `_IMPOSSIBLE` lists."""
        header, (snapshot,) = unpack(_USE, LIVE_VERSION, data)
        schemas = {
            name: {part: Type.parse(kind) for part, kind in own.items()} for name, own in header["schemas"].items()
        }
        account = Counter({(query, source, what): int(count) for query, source, what, count in header["account"]})
        return SavedLive(
            str(header["plan"]),
            tuple(header["queries"]),
            bytes(snapshot),
            int(header["clock"]),
            {str(name): int(count) for name, count in header["rows"].items()},
            int(header["places"]),
            tuple(header["names"]),
            schemas,
            account,
            None if (fields := header.get("fields", ())) is None else tuple(fields),
            {
                (str(source), int(partition)): [(int(first), int(last)) for first, last in ranges]
                for source, partition, ranges in header.get("offsets", ())
            },
        )


def identity_of(plan: Plan) -> tuple[str, tuple[str, ...]]:
    """What a state is for: fingerprint and titles of the queries."""
    return fingerprint(plan_text(plan)), tuple(query.title for query in plan.queries)


def plan_of_state(path: Path, saved: SavedLive, plan: Plan) -> Plan:
    """The plan of the queries by the rule for nulls that the state has; refuses other queries.

    Raises InputError.
    """
    own, titles = identity_of(plan)
    if saved.plan == own:
        return plan
    earlier = plan.with_failing_nulls()
    if saved.plan == identity_of(earlier)[0]:
        return earlier
    without = [title for title in titles if title not in saved.queries]
    more = [title for title in saved.queries if title not in titles]
    parts = [f"without {', '.join(without)}"] * bool(without) + [f"with {', '.join(more)}"] * bool(more)
    what = " and ".join(parts) or "with other conditions, event types, orderings or values of parameters"
    raise InputError(f"{path}: this state is of other queries: {what}; open them, or begin without `state`")


@dataclass(slots=True)
class StateFiles:
    """The state files of one `Live`: it replaces those only that it has read or written itself."""

    _known: dict[Path, str] = field(default_factory=dict)

    def read(self, path: Path) -> SavedLive:
        """The state of a file. Raises InputError."""
        data = _content(path)
        if data is None:
            raise InputError(f"{path}: no such file; leave `state` out to begin without one")
        try:
            saved = SavedLive.from_bytes(data)
        except (ContainerError, *_IMPOSSIBLE) as error:
            raise InputError(f"{path}: cannot be continued: {error}") from None
        self._known[path.resolve()] = _digest(data)
        return saved

    def write(self, path: Path, data: bytes, *, overwrite: bool) -> None:
        """Replace a file as a whole, durably. Raises InputError."""
        target = path.resolve()
        draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
        try:
            with _locked(target.parent):
                self._refuse_other(path, target, overwrite=overwrite)
                try:
                    with new_file(draft, OWN) as file:
                        file.write(data)
                    publish([(draft, target)])
                finally:
                    with suppress(OSError):
                        draft.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
        self._known[target] = _digest(data)

    def _refuse_other(self, path: Path, target: Path, *, overwrite: bool) -> None:
        """Raise InputError for a file that is not a state, or not the one that we know."""
        found = _content(target)
        if found is None:
            return
        try:
            unpack(_USE, LIVE_VERSION, found)
        except ContainerError:
            raise InputError(f"{path}: is not the state of open queries, so it is not overwritten") from None
        if not overwrite and _digest(found) != self._known.get(target):
            raise InputError(
                f"{path}: holds a state that somebody else has saved; open it with `state=`, or write"
                " `overwrite=True` to lose it"
            )


def _content(path: Path) -> bytes | None:
    """None = there is no such file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        told = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{path}: cannot be read: {told}") from None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Nobody else replaces a state in this folder meanwhile."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
