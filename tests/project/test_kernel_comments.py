"""Compiled loops say why they are right: a comment in every long one, and a share of comment lines per folder."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.project.repository import ROOT

DECORATORS = {"kernel", "borrowing", "inlined"}
LONG = 25
"""A loop of more lines needs a comment, inside or directly above."""

SHARES = {"runtime/admission": 0.03, "runtime/matching/kernel": 0.03}
"""Per folder, the least share of the lines of its modules with compiled loops that are comments."""


def comment_lines(source: str) -> set[int]:
    """The lines that hold nothing but a comment."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0] for token in tokens if token.type == tokenize.COMMENT and token.line.strip()[0] == "#"}


def compiled_functions(source: str) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            names = {item.id for item in node.decorator_list if isinstance(item, ast.Name)}
            if names & DECORATORS:
                yield node


def silent_loops(source: str) -> list[int]:
    """The first lines of long loops without a comment."""
    comments = comment_lines(source)
    found = []
    for function in compiled_functions(source):
        for node in ast.walk(function):
            if isinstance(node, ast.For | ast.While):
                end = node.end_lineno or node.lineno
                if end - node.lineno >= LONG and not comments & set(range(node.lineno - 1, end + 1)):
                    found.append(node.lineno)
    return sorted(found)


def share_of_comments(paths: Sequence[Path]) -> float:
    sources = [path.read_text(encoding="utf-8") for path in paths]
    return sum(len(comment_lines(source)) for source in sources) / sum(len(source.splitlines()) for source in sources)


FOLDERS = ("runtime/admission", "runtime/columns", "runtime/matching")
"""Where long loops have comments."""

KERNELS = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "runtime.compiling.compiled import" in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: str(path.relative_to(ROOT)))
def test_long_compiled_loops_have_comments(path: Path) -> None:
    assert silent_loops(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("folder", SHARES)
def test_kernels_have_comments(folder: str) -> None:
    assert share_of_comments([path for path in KERNELS if path.is_relative_to(ROOT / folder)]) >= SHARES[folder]


def test_a_loop_without_comment_is_found() -> None:
    body = "        count += 1\n" * LONG
    loop = f"@kernel\ndef count_up(count):\n    for _ in range(count):\n{body}    return count\n"
    assert silent_loops(loop) == [3]
    assert silent_loops(loop.replace("    for", "    # Invariant: it grows.\n    for")) == []
    assert silent_loops(loop.replace("@kernel", "@other")) == []
