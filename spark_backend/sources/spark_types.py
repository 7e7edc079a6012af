"""Spark's types in Arrow, times in UTC: PySpark 4.2 asks for the time zone, before it was fixed."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import DataType, StructType

_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns of a DataFrame."""
    return to_arrow_schema(schema, **_IN_UTC)


def arrow_type(type_: DataType) -> pa.DataType:
    """One type; raises PySparkTypeError if Arrow has none."""
    return to_arrow_type(type_, **_IN_UTC)
