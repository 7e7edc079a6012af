"""Prose of the repository: docstrings, comments and messages of a module, running text of a Markdown document."""

from __future__ import annotations

import ast
import bisect
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

INLINE_CODE = re.compile(r"(`+)[^`\n]+\1")
PLY_RULE = re.compile(r"[pt]_")
"""ply reads grammar rules from the docstrings of functions with such names: they are not prose."""


@dataclass(frozen=True, slots=True)
class Passage:
    """One docstring, one run of comment lines or one paragraph.

    `line`: number of its first line. `lines`: its lines, without indentation and comment signs, inline code blanked.
    `widths`: columns of each line in the file; none of a comment behind code, nor of a document.
    """

    line: int
    lines: tuple[str, ...]
    widths: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """All on one line, so that a phrase is found across a line break."""
        return " ".join(self.lines)

    def line_at(self, offset: int) -> int:
        """The number of the line in which this place of `text` is."""
        starts = list(accumulate((len(line) + 1 for line in self.lines), initial=0))
        return self.line + bisect.bisect_right(starts, offset) - 1


def passages_of(path: Path) -> list[Passage]:
    """The passages of a module or a document, in the order of the file."""
    text = path.read_text()
    if path.suffix == ".md":
        return list(_paragraphs(text))
    return sorted([*_docstrings(text), *_comments(text)], key=lambda passage: passage.line)


def _prose(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(INLINE_CODE.sub("`…`", line.strip()) for line in lines)


@lru_cache(1)
def _tree(source: str) -> ast.Module:
    return ast.parse(source)


def _docstrings(source: str) -> Iterator[Passage]:
    """Docstrings of modules, classes, functions and fields; not of functions inside of other statements."""
    lines = source.splitlines()
    waiting: list[ast.AST] = [_tree(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef) and PLY_RULE.match(node.name):
            continue
        for statement in getattr(node, "body", ()):
            match statement:
                case ast.ClassDef() | ast.FunctionDef():
                    waiting.append(statement)
                case ast.Expr(value=ast.Constant(value=str()), lineno=first, end_lineno=last):
                    part = lines[first - 1 : last]
                    yield Passage(first, _prose(part), tuple(map(len, part)))


def messages_of(path: Path) -> Iterator[Passage]:
    """Strings of a module that have a space in them and are not docstrings; of an f-string each fixed part."""
    tree = _tree(path.read_text())
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text), lineno=line) if " " in text and node not in docstrings:
                yield Passage(line, _prose([" ".join(text.split())]))


def _comments(source: str) -> Iterator[Passage]:
    """Comments; those on adjacent lines that begin in the same column are one passage."""
    run: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if run and token.start != (run[-1].start[0] + 1, run[-1].start[1]):
            yield _comment(run)
            run = []
        run.append(token)
    if run:
        yield _comment(run)


def _comment(run: list[tokenize.TokenInfo]) -> Passage:
    own = run[0].line[: run[0].start[1]].isspace() or run[0].start[1] == 0
    widths = tuple(token.end[1] for token in run) if own else ()
    return Passage(run[0].start[0], _prose(token.string.lstrip("#") for token in run), widths)


def _paragraphs(text: str) -> Iterator[Passage]:
    """Paragraphs of a document. Code blocks are left out."""
    fenced = False
    run: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        if fenced or fence or not line.strip():
            if run:
                yield Passage(number - len(run), _prose(run))
            run = []
        else:
            run.append(line)
        fenced ^= fence
