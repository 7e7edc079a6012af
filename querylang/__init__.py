"""The query language: from text to a plan. No module inside imports these public names.

>>> compiled = compile_text("inputs { A() within 30.0; } find A as a1 -> A as a2")
>>> [term.name for term in compiled.plan.query("query").terms]
['a1', 'a2']
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from querylang.checker.checked import Checked
    from querylang.errors import EnsueError, InputError, QueryError, QueryErrors
    from querylang.formatter.formatting import format_text
    from querylang.load import Compiled, Schemas, check_paths, check_text, compile_paths, compile_text, read_sources
    from querylang.parameters import InstanceError, bind, instances_of
    from querylang.plan.describe import describe, describe_plan, to_dot
    from querylang.plan.expression import Type
    from querylang.source import Source, Span

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

_HOMES = {
    "checker.checked": ("Checked",),
    "errors": ("EnsueError", "InputError", "QueryError", "QueryErrors"),
    "formatter.formatting": ("format_text",),
    "load": ("Compiled", "Schemas", "check_paths", "check_text", "compile_paths", "compile_text", "read_sources"),
    "parameters": ("InstanceError", "bind", "instances_of"),
    "plan.describe": ("describe", "describe_plan", "to_dot"),
    "plan.expression": ("Type",),
    "source": ("Source", "Span"),
}
"""By module the names from it. They are imported when they are asked for: who needs only the errors
starts faster."""


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"querylang.{module}"), name)
    raise AttributeError(f"module 'querylang' has no attribute {name!r}")
