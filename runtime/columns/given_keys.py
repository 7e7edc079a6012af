"""Keys that a user names: which queries have such a key, and which rows are of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from querylang.errors import InputError, listed
from querylang.plan.model import Plan, QueryPlan
from runtime.arrow_types import arrow_type, one_chunk
from runtime.columns.keys import hash_keys, plain_columns
from runtime.interpreter.json_text import JsonError, parse_json


@dataclass(frozen=True, slots=True)
class GivenKey:
    """A key as it was written.

    parts: by name of the key's part; "" = the only part, whatever its name
    """

    parts: Mapping[str, Any]

    @staticmethod
    def of_texts(texts: Sequence[str], plan: Plan) -> GivenKey:
        """A key of texts: `VALUE` of queries with one key, `NAME=VALUE` a part, or a JSON object.

        Raises InputError if no query has such a key.
        """
        given = GivenKey(_parts(texts, {key.name for query in plan.queries for key in query.keys}))
        if not any(given.values_for(plan, query) for query in plan.queries):
            known = dict.fromkeys(f"({', '.join(query.key_names)})" for query in plan.queries if query.keys)
            have = f"the queries have the keys {listed(list(known))}" if known else "no query has a key"
            raise InputError(f"--key {' '.join(texts)}: no query has such a key; {have}")
        return given

    def values_for(self, plan: Plan, query: QueryPlan) -> tuple[pa.Scalar, ...] | None:
        """The key of a query, a value per part; None = the query has no such key."""
        names = query.key_names
        parts = {names[0]: self.parts[""]} if len(names) == 1 and self.parts.keys() == {""} else self.parts
        if not names or parts.keys() != set(names):
            return None
        try:
            return tuple(_scalar(parts[key.name], arrow_type(key.type, plan)) for key in query.keys)
        except (ValueError, TypeError, OverflowError, pa.ArrowException):
            return None


def is_of_key(columns: Sequence[pa.Array], values: Sequence[pa.Scalar]) -> NDArray[np.bool_]:
    """Which rows are of a key; `columns`: the key's parts."""
    count = len(columns[0])
    sides = plain_columns(list(columns)), plain_columns([pa.repeat(value, count) for value in values])
    equal = reduce(pc.and_kleene, map(pc.equal, *sides))
    found: NDArray[np.bool_] = pc.fill_null(one_chunk(equal), False).to_numpy(zero_copy_only=False)
    return found


def bucket_of_key(values: Sequence[pa.Scalar], buckets: int) -> int:
    """The bucket of a key, as `runtime.columns.keys.bucket_of` chooses it."""
    return int(hash_keys([pa.array([value.as_py()], value.type) for value in values])[0] % np.uint64(buckets))


def _parts(texts: Sequence[str], names: set[str]) -> dict[str, Any]:
    if len(texts) == 1 and texts[0].lstrip().startswith("{"):
        try:
            found = parse_json(texts[0])
        except JsonError as error:
            raise InputError(f"--key {texts[0]}: is not JSON: {error}") from None
        return dict(found)
    parts: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        is_part = bool(sign) and name in names
        parts[name if is_part else ""] = value if is_part else text
    return parts


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    if isinstance(value, str) and not pa.types.is_string(type_):
        if pa.types.is_nested(type_):
            value = parse_json(value)
        else:
            return pa.scalar(value).cast(type_)
    return pa.scalar(value, type_)
