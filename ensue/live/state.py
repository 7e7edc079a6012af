"""The state of open queries: their plan, and a file that is versioned and replaced as a whole."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ensue.data_options import DataOptions, read_parameters
from ensue.plans import decide, fitted
from ensue.queries import Queries
from job_engine.durable_files import new_file, publish
from job_engine.wire.packed_rows import ContainerError, pack, unpack
from job_engine.wire.plan_text import fingerprint, plan_text
from querylang.dataclass import dataclass, field
from querylang.errors import InputError
from querylang.parameters import with_instances
from querylang.plan.expression import Type
from querylang.plan.model import Plan
from querylang.plan.routing import NOT_FED, has_chains
from querylang.printable import warn
from querylang.system_errors import refused
from runtime.instants import NO_TIME
from runtime.policies.plan_policies import SourceOrdering, parse_orderings, policy_of, with_ordering
from runtime.policies.settings_text import parse_forget_keys, with_forget_keys
from runtime.reading import STANDARD_NAMES, TYPE, ColumnNames, infer_schemas, says_types
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
            "schemas": {
                name: {field_name: str(kind) for field_name, kind in fields.items()}
                for name, fields in self.schemas.items()
            },
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
            name: {field_name: Type.parse(kind) for field_name, kind in types.items()}
            for name, types in header["schemas"].items()
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
    """The plan of the queries as the release made it that has written the state; refuses others.

    Raises InputError.
    """
    own, titles = identity_of(plan)
    if saved.plan == own:
        return plan
    for earlier in plan.earlier():
        if saved.plan == identity_of(earlier)[0]:
            if has_chains(plan.queries) and not has_chains(earlier.queries):
                warn(f"{path}: {NOT_FED}; begin without `state`, and queries feed each other")
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
            raise refused(error, f"{path}: cannot be written") from None
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
        raise refused(error, f"{path}: cannot be read") from None


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


# The plan of open queries: known from the start, or from the first rows if types are open.


class LivePlan:
    """Compiles the queries, once.

    columns: how rows are read
    schemas: what the first rows say of the event types that nothing defines
    fields: the roles whose standard columns are fields, by the first rows; None = no rows yet
    """

    def __init__(self, queries: Queries, options: DataOptions) -> None:
        self.queries = queries
        self.columns: ColumnNames = queries.columns(options.columns)
        self.schemas: Schemas = {}
        self.fields: tuple[str, ...] | None = None
        self._parameters = read_parameters(options.parameters)
        self._orderings = parse_orderings(options.ordering)
        self._forget_keys = parse_forget_keys(options.forget_keys)
        self._lookup_tables = options.lookup_tables

    @property
    def is_open(self) -> bool:
        """Whether the first rows decide which fields there are."""
        return bool(self.queries.open_types)

    def compiled(self, tables: Sequence[Any]) -> Plan:
        """The plan for the first rows. Raises QueryErrors, InputError."""
        if not self.is_open:
            return self.compiled_for({})
        ready = fitted(self.queries, tables, self.columns)
        self._take(ready.columns)
        return self.compiled_for(ready.schemas)

    def decide(self, tables: Sequence[Any]) -> None:
        """Decide by the first rows which columns are ours. Raises InputError.

        Later rows may have event types that the first ones do not have.
        """
        self._take(decide(self.queries, tables, self.columns, is_whole=False).columns)

    def _take(self, columns: Sequence[ColumnNames]) -> None:
        given = self.columns
        roles = [role for role in STANDARD_NAMES if given.given(role) is None]
        self.read_as(tuple(role for role in roles if any(own.of(role) is None for own in columns)))

    def read_as(self, fields: tuple[str, ...]) -> None:
        """Read the standard columns of these roles as fields."""
        self.fields, self.columns = fields, self.columns.without(*fields)

    def refuse_types(self, tables: Sequence[Any]) -> None:
        """Raise InputError for event types in a column that was a field in the first rows."""
        if TYPE not in (self.fields or ()):
            return
        if any(says_types(table, self.queries.known_types) for table in tables):
            raise InputError(
                f"{TYPE!r} was a field in the first rows, and here it has event types; say which when the queries are"
                f" opened: `--type {TYPE}` or `--type none`"
            )

    def compiled_for(self, schemas: Schemas) -> Plan:
        """The plan for the types that earlier rows had."""
        plan = with_instances(self.queries.template(schemas if self.is_open else None), self._parameters)
        if self._orderings:
            given = self._orderings
            named = [SourceOrdering(name, policy_of(given, name)) for name in given if name is not None]
            plan = with_ordering(plan, named or [SourceOrdering(None, given[None])])
        self.schemas = schemas
        return self._lookup_tables.bound(with_forget_keys(plan, self._forget_keys))

    def refuse_other_types(self, tables: Sequence[Any]) -> None:
        """Raise InputError for rows whose types are not those of the first ones."""
        if not self.is_open:
            return
        for event, fields in self._inferred(tables).items():
            known = self.schemas.get(event, {})
            for name, type_ in fields.items():
                if known.get(name) != type_ and (known.get(name), type_) != (Type.FLOAT, Type.INTEGER):
                    before = f"was {known[name]} in the first rows" if name in known else "was not in the first rows"
                    defined = definition(event, dict(known) | dict(fields))
                    raise InputError(f"field {name!r} of {event!r} is {type_} here and {before}; define it: {defined}")

    def _inferred(self, tables: Sequence[Any]) -> Mapping[str, Mapping[str, Type]]:
        inputs = self.queries.input_types
        known = {name.casefold() for fields in self.schemas.values() for name in fields}
        event = inputs[0] if len(inputs) == 1 else ""
        found = infer_schemas(*tables, names=self.columns, event=event, fields=known & set(STANDARD_NAMES))
        return {name: fields for name, fields in found.items() if name in self.queries.open_types}


def definition(event: str, fields: Mapping[str, Type]) -> str:
    """The definition of an event type, to be copied into a query."""
    return f"event {event} {{ {' '.join(f'{type_} {name};' for name, type_ in fields.items())} }}"
