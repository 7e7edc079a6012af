"""Spark's types in Arrow, times in UTC: PySpark 4.2 asks for the time zone, before it was fixed."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_type).parameters else {}


def arrow_schema(schema: StructType) -> pa.Schema:
    """The columns of a DataFrame."""
    return pa.schema([pa.field(part.name, arrow_type(part.dataType)) for part in schema.fields])


def arrow_type(type_: DataType) -> pa.DataType:
    """One type; raises PySparkTypeError if Arrow has none."""
    return to_arrow_type(_nullable(type_), **_IN_UTC)


def _nullable(type_: DataType) -> DataType:
    """The type with nulls in it: Arrow has no empty arrays of nothing otherwise."""
    if isinstance(type_, ArrayType):
        return ArrayType(_nullable(type_.elementType))
    if isinstance(type_, MapType):
        return MapType(_nullable(type_.keyType), _nullable(type_.valueType))
    if isinstance(type_, StructType):
        if len(set(type_.names)) < len(type_.names):  # Spark gives no such rows to Python
            raise PySparkTypeError(f"{type_.simpleString()} has two fields of one name")
        return StructType([StructField(part.name, _nullable(part.dataType)) for part in type_.fields])
    return type_
