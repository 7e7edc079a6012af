"""What numba has found out about types of calls and attributes, kept for the next time.

Numba infers types in several rounds, and looks anew for the result of each operator and attribute,
in each round and again when it makes code: among a hundred candidates for an operator, most of them
for types that kernels do not have. The answer depends on the types alone.
"""

from __future__ import annotations

from operator import getitem
from typing import Any

from numba.core import types

_known: dict[tuple[bool, Any], KnownTypes] = {}


class KnownTypes:
    """A typing context of numba's that keeps what it has resolved."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._calls = dict[Any, Any]()
        self._attributes = dict[Any, Any]()

    @staticmethod
    def of(context: Any, flags: Any) -> KnownTypes:
        """That of a context, for functions that count references or do not."""
        key = bool(flags.nrt), context
        if key not in _known:
            _known[key] = KnownTypes(context)
        return _known[key]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """The signature of a call; numba's own functions only are kept."""
        is_numbas = func is getitem or isinstance(func, types.Function | str)
        if kws or not is_numbas or not all(isinstance(one, types.Type) for one in args):
            return self._context.resolve_function_type(func, args, kws)
        key = func, tuple(args)
        found = self._calls.get(key)
        if found is None:
            found = self._context.resolve_function_type(func, args, kws)
            if found is not None:
                self._calls[key] = found
        return found

    def resolve_getattr(self, typ: Any, attr: str) -> Any:
        """The type of an attribute; those of tuples and records only are kept."""
        if not isinstance(typ, types.BaseNamedTuple | types.Record):
            return self._context.resolve_getattr(typ, attr)
        key = typ, attr
        found = self._attributes.get(key)
        if found is None:
            found = self._context.resolve_getattr(typ, attr)
            if found is not None and not isinstance(found, types.Callable):
                self._attributes[key] = found
        return found

    def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
        """The signature of the writing of an item."""
        key = "setitem", target, index, value
        found = self._calls.get(key)
        if found is None:
            found = self._calls[key] = self._context.resolve_setitem(target, index, value)
        return found
