"""The modules of the four packages and what each of them imports, wherever the import is."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.project.repository import PACKAGES, ROOT


def module_name(path: Path) -> str:
    """The dotted name of a file of the repository; a package's is that of its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))}
"""Every module of the four packages."""


def imported_names(source: str) -> Iterator[str]:
    """The dotted name behind every import of a module, function-level ones too."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.ImportFrom():
                yield "a relative import"


def imported_modules(name: str, source: str) -> set[str]:
    """Modules of ours that a module imports: of a dotted name, the longest part that is a module."""
    found = set()
    for imported in imported_names(source):
        module = imported if imported in FILES else imported.rpartition(".")[0]
        if module in FILES:
            found.add(module)
    return found - {name}


@cache
def imports() -> Mapping[str, set[str]]:
    """Every module with those of ours that it imports. Asked for by tests, not while they are collected: it takes
    seconds."""
    return {name: imported_modules(name, path.read_text()) for name, path in FILES.items()}


def cycles(graph: Mapping[str, set[str]]) -> list[str]:
    """Modules in an import cycle, or that import one: modules without open imports are removed until none is left."""
    left = {name: set(targets) for name, targets in graph.items()}
    while free := {name for name, targets in left.items() if not targets & left.keys()}:
        left = {name: targets for name, targets in left.items() if name not in free}
    return sorted(left)


def part_of(folder: str, module: str) -> str | None:
    """The part of a folder that a module belongs to; None for other modules and the folder's own `__init__`."""
    inside = module.removeprefix(folder + ".")
    return None if inside == module else inside.split(".")[0]
