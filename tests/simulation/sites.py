"""The functions of a job that leave the process, as the code says: which of them no world has met.

They are those that call a method which only paths have, or a function of the module for durable files, or that of the
client of Kafka, or of the package of Delta tables. What a simulated world counts are the same functions by the same names.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.project.ways_out import used_names
from tests.simulation.faults import ROOT

OF_PATHS = frozenset(
    {
        *("exists", "is_dir", "is_file", "stat", "lstat", "iterdir", "rglob", "walk_below", "entries"),
        *("read_bytes", "read_text", "write_text", "plain_file", "shared_file", "new_file", "copy_to", "remove_tree"),
        *("mkdir", "rmdir", "unlink", "chmod", "hardlink_to", "rename", "is_taken"),
    }
)
"""Methods that nothing else has than paths."""

DURABLE = frozenset(
    {
        *("write_durably", "create_durably", "new_file", "publish", "rename", "make_folder", "make_kept_folder"),
        *("make_checkpoint", "complete", "sync", "numbers_in", "names_in"),
    }
)
"""Functions of `job_engine.durable_files`, and of places."""

OF_CLIENT = frozenset(
    {
        *("list_topics", "describe_topics", "describe_configs", "list_offsets", "consume", "committed", "flush"),
        *("init_transactions", "commit_transaction", "abort_transaction", "send_offsets_to_transaction"),
        "get_watermark_offsets",
    }
)
"""Methods of Kafka's client that ask a broker."""

OF_TABLES = frozenset({"open_table", "create_checkpoint", "cleanup_metadata"})
"""What asks the package of Delta tables."""

NOT_SIMULATED = (
    *("job_engine/local_path", "job_engine/place", "job_engine/stores", "job_engine/arrow_files"),
    "job_engine/delta_package",
)
"""Modules below the calls that are counted, and those of which no world has any yet."""


def sites() -> Iterator[str]:
    """The functions, as `module:function`."""
    for file in sorted(Path(ROOT, "job_engine").rglob("*.py")):
        module = str(file.relative_to(ROOT)).removesuffix(".py")
        if not module.startswith(NOT_SIMULATED) and module != "job_engine/durable_files":
            yield from (f"{module}:{function}" for function in sites_of(file.read_text("utf-8"), module))


def sites_of(source: str, module: str = "") -> list[str]:
    """The functions of one module that leave the process, by their qualified names."""
    has_client = module == "job_engine/kafka_broker" or "/topics/" in module
    durable = {name.rpartition(".")[2] for name in used_names(source) if name.startswith("job_engine.")} & DURABLE
    found: list[str] = []

    def walk(node: ast.AST, above: str, owner: str | None) -> None:
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.FunctionDef(name=name):
                    own = f"{above}{name}"
                    walk(child, f"{own}.<locals>.", own)
                    continue
                case ast.ClassDef(name=name):
                    walk(child, f"{above}{name}.", owner)
                    continue
                case ast.Call(func=ast.Attribute(attr=name)) if owner and (
                    name in OF_PATHS | OF_TABLES or (has_client and name in OF_CLIENT)
                ):
                    found.append(owner)
                case ast.Call(func=ast.Name(id=name)) if owner and (name in durable or name in OF_TABLES):
                    found.append(owner)
            walk(child, above, owner)

    walk(ast.parse(source), "", None)
    return list(dict.fromkeys(found))


def unmet(met: Collection[str]) -> list[str]:
    """The functions that no call of these names came from, not even from a function inside."""
    return [site for site in sites() if not any(f"{name}.".startswith(f"{site}.") for name in met)]
