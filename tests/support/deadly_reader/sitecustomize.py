"""On the path of a process: a reader of JSON ends it where a line has the text `deadly`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

NAME = "runtime.reading.formats.json_files"


class DeadlyLoader(Loader):
    """Loads the module, whose reader is then another one."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self.loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        for name in ("parse_lines", "row_of"):
            setattr(module, name, deadly(getattr(module, name)))


def deadly(read: Callable[..., object]) -> Callable[..., object]:
    """A function that reads bytes, or ends the process."""

    def read_or_end(data: bytes, *more: object) -> object:
        if b"deadly" in data:
            os.kill(os.getpid(), signal.SIGSEGV)
        return read(data, *more)

    return read_or_end


class DeadlyFinder(MetaPathFinder):
    """Finds the one module."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != NAME:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader = DeadlyLoader(spec.loader)
        return spec


sys.meta_path.insert(0, DeadlyFinder())
