"""The meaning of values, expressions and statements, in plain Python."""

from __future__ import annotations

from runtime.interpreter.aggregates import BY_RECENCY, aggregate
from runtime.interpreter.containers import Constant, constant_receiver
from runtime.interpreter.context import Budget, Context, Output, PlanWorld, event_numbers
from runtime.interpreter.decimals import decimal, of_float
from runtime.interpreter.expressions import combine, evaluate, holds, takes_nulls, value_type
from runtime.interpreter.statements import run_action, run_block
from runtime.interpreter.strings import (
    WHITE_SPACE,
    equal_ignoring_case,
    in_network,
    like_ignoring_case,
    match_whole,
    regular_expression,
)
from runtime.interpreter.values import (
    Dictionary,
    EvaluationError,
    Event,
    LimitError,
    Location,
    OrderKey,
    TableContent,
    Value,
    World,
    decimal_text,
    default_value,
    event_text,
    floating_text,
    inner_text,
    order_key,
    seconds,
    text_of,
)

__all__ = [
    "BY_RECENCY",
    "WHITE_SPACE",
    "Budget",
    "Constant",
    "Context",
    "Dictionary",
    "EvaluationError",
    "Event",
    "LimitError",
    "Location",
    "OrderKey",
    "Output",
    "PlanWorld",
    "TableContent",
    "Value",
    "World",
    "aggregate",
    "combine",
    "constant_receiver",
    "decimal",
    "decimal_text",
    "default_value",
    "equal_ignoring_case",
    "evaluate",
    "event_numbers",
    "event_text",
    "floating_text",
    "holds",
    "in_network",
    "inner_text",
    "like_ignoring_case",
    "match_whole",
    "of_float",
    "order_key",
    "regular_expression",
    "run_action",
    "run_block",
    "seconds",
    "takes_nulls",
    "text_of",
    "value_type",
]
