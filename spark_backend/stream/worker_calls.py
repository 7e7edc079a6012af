"""Functions for Spark to run on its workers: sent by name, so that no code of ours is pickled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def on_worker(module: str, function: str, *arguments: Any) -> Callable[..., Any]:
    """A callable that runs `module.function(*arguments, *what Spark passes)` on a worker.

    Only the two names and the arguments (plain data) are sent. The function must return an
    iterator, as Spark expects. Raises RuntimeError where Ensue is not installed on the executor.
    """

    def run(*passed: Any) -> Any:
        import importlib

        try:
            importlib.import_module("job_engine.worker_memory").set_objects_aside()
            importlib.import_module("spark_backend.stream.job_kernels").use_shipped_kernels()
            target = getattr(importlib.import_module(module), function)
        except ImportError as error:
            message = f"Ensue cannot be imported on a Spark executor ({error}); install it there, or send it along"
            raise RuntimeError(message) from error
        yield from target(*arguments, *passed)

    return run
