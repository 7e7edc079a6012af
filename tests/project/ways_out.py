"""What a module uses of what leaves the process, by the dotted names behind its imports."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

_TYPE_CHECKS = ("isinstance", "issubclass", "cast", "TypeVar")
_BUILTINS = {name: name for name in ("input", "open", "print")}
_CLASSES_OF_PATHS = ("pathlib.Path", "pathlib.PosixPath")


def way_of(name: str, ways: Mapping[str, str]) -> str | None:
    """The way that a dotted name goes: that of the longest beginning of it which has one; None = none.

    ways: by beginning of a name
    """
    parts = name.split(".")
    return next((ways[begin] for n in range(len(parts), 0, -1) if (begin := ".".join(parts[:n])) in ways), None)


def used_names(source: str) -> set[str]:
    """The dotted names of others' modules, and built-in ones, that a module uses, annotations left out.

    A class of paths counts where it is called or handed on; whoever only asks for it touches no file.
    """
    tree = ast.parse(source)
    names = {**_BUILTINS, **dict(_imported(tree))}
    annotations = {id(inner) for node in ast.walk(tree) for part in _annotations(node) for inner in ast.walk(part)}
    classes = {id(node) for node in _classes_handed_on(tree)}
    inside: set[int] = set()
    found = set()
    for node in ast.walk(tree):  # an attribute comes before what it is an attribute of
        if not isinstance(node, ast.Name | ast.Attribute) or id(node) in annotations | inside:
            continue
        name = _dotted(node, names)
        if name is not None:
            inside |= {id(inner) for inner in ast.walk(node)}
        if name is not None and (name not in _CLASSES_OF_PATHS or id(node) in classes):
            found.add(name)
    return found


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """By the name that a module has for it: what it imports, anywhere."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
            case ast.ImportFrom(module=str(module), names=names):
                yield from ((alias.asname or alias.name, f"{module}.{alias.name}") for alias in names)


def _annotations(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.arg(annotation=ast.expr() as part) | ast.AnnAssign(annotation=part):
            yield part
        case ast.FunctionDef(returns=ast.expr() as part) | ast.AsyncFunctionDef(returns=ast.expr() as part):
            yield part


def _classes_handed_on(tree: ast.Module) -> Iterator[ast.AST]:
    """What is called, or is an argument of a call that does not only ask for a type."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield node.func
            if not (isinstance(node.func, ast.Name) and node.func.id in _TYPE_CHECKS):
                yield from (*node.args, *(keyword.value for keyword in node.keywords))


def _dotted(node: ast.AST, names: Mapping[str, str]) -> str | None:
    """`pa.fs.X` as `pyarrow.fs.X`; None = its first name is not of another module."""
    match node:
        case ast.Name(id=name):
            return names.get(name)
        case ast.Attribute(value=value, attr=attribute):
            above = _dotted(value, names)
            return None if above is None else f"{above}.{attribute}"
        case _:
            return None


def ways_used(source: str, ways: Mapping[str, str]) -> dict[str, list[str]]:
    """By way: the names that a module uses of it."""
    found: dict[str, list[str]] = {}
    for name in sorted(used_names(source)):
        way = way_of(name, ways)
        if way is not None:
            found.setdefault(way, []).append(name)
    return found


def is_in(module: str, allowed: Collection[str]) -> bool:
    """Whether a module is one of these, or in one of these folders."""
    return any(f"{module}.".startswith(f"{name}.") for name in allowed)
