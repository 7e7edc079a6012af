"""On the path of a process: Arrow's reader of JSON ends it where a line has the text `deadly`."""

from __future__ import annotations

import os
import signal
import sys
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
        read = module.parse_lines

        def parse_lines(data: bytes) -> object:
            if b"deadly" in data:
                os.kill(os.getpid(), signal.SIGSEGV)
            return read(data)

        module.parse_lines = parse_lines  # type: ignore[attr-defined]


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
