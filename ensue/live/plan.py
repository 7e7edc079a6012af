"""The plan of open queries: known from the start, or from the first rows if types are open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ensue.data_options import DataOptions
from ensue.live.state import Schemas
from ensue.parameters import read_parameters
from ensue.plans import decide, fitted
from ensue.queries import Queries
from querylang.errors import InputError
from querylang.parameters import with_instances
from querylang.plan.expression import Type
from querylang.plan.model import Plan
from runtime.policies.plan_policies import SourceOrdering, parse_orderings, policy_of, with_ordering
from runtime.policies.settings_text import parse_forget_keys, with_forget_keys
from runtime.reading.column_names import STANDARD_NAMES, TYPE, ColumnNames
from runtime.reading.inference.own_columns import says_types
from runtime.reading.inference.schema import infer_schemas


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
        return with_forget_keys(plan, self._forget_keys)

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
