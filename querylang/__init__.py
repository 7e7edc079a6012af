"""The query language: from text to a plan. No module inside imports these public names.

>>> compiled = compile_text("inputs { A() within 30.0; } find A as a1 -> A as a2")
>>> [term.name for term in compiled.plan.query("query").terms]
['a1', 'a2']
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from querylang.checker.checked import Checked
from querylang.errors import EnsueError, InputError, QueryError, QueryErrors
from querylang.load import Compiled, Schemas, check_paths, check_text, compile_paths, compile_text, read_sources
from querylang.parameters.binding import InstanceError, bind, instances_of
from querylang.plan.describe import describe, describe_plan
from querylang.plan.graph import to_dot
from querylang.plan.value_types import Type
from querylang.source import Source, Span

if TYPE_CHECKING:
    from querylang.formatter.formatting import format_text

__all__ = [
    "Checked",
    "Compiled",
    "EnsueError",
    "InputError",
    "InstanceError",
    "QueryError",
    "QueryErrors",
    "Schemas",
    "Source",
    "Span",
    "Type",
    "bind",
    "check_paths",
    "check_text",
    "compile_paths",
    "compile_text",
    "describe",
    "describe_plan",
    "format_text",
    "instances_of",
    "read_sources",
    "to_dot",
]


def __getattr__(name: str) -> Any:
    """What a check does not need is imported when it is asked for."""
    if name != "format_text":
        raise AttributeError(f"module 'querylang' has no attribute {name!r}")
    return import_module("querylang.formatter.formatting").format_text
