"""Every code block of the documents runs.

The blocks of one document run in order in one empty folder that holds a copy of `queries/`. What a block is:

- `query`: query text, must have no mistakes and no warnings;
- `query error=CODE`: query text that must have mistakes of this code and of no other; `query warning=CODE` likewise. The text
  is called example.query; `data=A.x:float,...` are columns of its data, `definitions=FILE,...` were written before;
- `python`: executed; the blocks of a document share their names;
- `bash`: executed; commands about installing and `make` are looked up instead, for these tests run inside of them; a command of ours,
  or a program that makes no session of Spark itself, runs in this process, whose session is shared; a shell gets what it prints;
- `ebnf`: a grammar, read by people; `mended`: the lines of a query that have changed, which other tests compile;
- a language and a file name, as in `csv cards.csv`: written to that file;
- `text` right after a block that is executed or has mistakes: what that block prints; elsewhere just text.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import querylang
from ensue import cli
from spark_backend.launch.session_settings import class_options
from tests.project.repository import ROOT, tracked_files

BLOCK = re.compile(r"^```(\w+)?(?: +([^\n`]+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOOKED_UP = ("make ", "pip install ", "git clone ", "cd ")
OURS = re.compile(r"""(ensue \w+ (?:[^|<>;&$"]|"[^"$]*")+)(?: \| ([^|<>;&$].*))?""")
"""A command of ours whose errors go nowhere else, and what reads the rest of what it prints."""

PROGRAM = re.compile(r"python (\w+\.py)")

DOCUMENTS = [path for path in tracked_files() if path.suffix == ".md" and path.name != "CHANGELOG.md"]


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    file: str | None
    marks: dict[str, str]
    text: str
    line: int


def blocks_of(document: str) -> list[Block]:
    return [block_of(found, document[: found.start()].count("\n") + 1) for found in BLOCK.finditer(document)]


def block_of(found: re.Match[str], line: int) -> Block:
    words = (found[2] or "").split()
    marks = dict(word.split("=", 1) for word in words if "=" in word)
    files = [word for word in words if "=" not in word]
    assert len(files) <= 1, f"line {line}: two file names"
    assert marks.keys() <= {"error", "warning", "data", "definitions"}, f"line {line}: an unknown mark"
    return Block(found[1] or "", files[0] if files else None, marks, found[3], line)


@dataclass(slots=True)
class Reader:
    """Does what a reader of a document would do, in a folder of its own."""

    folder: Path
    names: dict[str, Any]
    printed: str | None = None
    """What the last block printed, if it was executed."""

    def follow(self, block: Block) -> None:
        before, self.printed = self.printed, None
        match block.language:
            case _ if block.file is not None:
                path = self.folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text)
            case "query" if block.marks:
                self.printed = self.mistakes(block)
            case "query":
                # What is kept for ever is a matter of a job: a document may leave that open.
                warnings = [item for item in querylang.check_text(block.text).warnings if item.code != "kept-keys"]
                assert warnings == [], f"line {block.line}"
            case "python":
                self.printed = self.python(block.text)
            case "bash":
                self.printed = "".join(self.bash(line) for line in commands(block.text))
            case "text":
                assert before is None or before.split() == block.text.split()
            case "ebnf" | "json" | "mended":
                pass
            case other:
                raise AssertionError(f"line {block.line}: a block of an unknown kind {other!r}")

    def mistakes(self, block: Block) -> str:
        """What the compiler says of a text with the mistakes that it is marked with."""
        given = re.findall(r"(\w+)\.(\w+):(\w+)", block.marks.get("data", ""))
        schemas: dict[str, dict[str, querylang.Type]] = {}
        for event, name, type_ in given:
            schemas.setdefault(event, {})[name] = querylang.Type.parse(type_)
        beside = block.marks["definitions"].split(",") if "definitions" in block.marks else []
        definitions = [querylang.Source(name, (self.folder / name).read_text()) for name in beside]
        errors, warnings = self.told(block.text, schemas, definitions)
        assert {error.code for error in errors} == set(block.marks.get("error", "").split()), f"line {block.line}"
        assert {error.code for error in warnings} == set(block.marks.get("warning", "").split()), f"line {block.line}"
        return "\n".join(map(str, (*errors, *warnings)))

    def told(
        self, text: str, schemas: querylang.Schemas, definitions: list[querylang.Source]
    ) -> tuple[tuple[querylang.QueryError, ...], tuple[querylang.QueryError, ...]]:
        try:
            return (), querylang.compile_text(text, "example.query", schemas, definitions).warnings
        except querylang.QueryErrors as found:
            return found.errors, ()

    def python(self, text: str) -> str:
        out = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out):
            exec(compile(text, "document", "exec"), self.names)
        return out.getvalue()

    def bash(self, line: str) -> str:
        if line.startswith(LOOKED_UP):
            return look_up(line)
        if (command := OURS.fullmatch(line)) is not None:
            printed = self.ours(command[1])
            return printed if command[2] is None else self.shell(command[2], printed)
        if (program := PROGRAM.fullmatch(line)) is not None:
            text = (self.folder / program[1]).read_text()
            if "SparkSession" not in text:
                return Reader(self.folder, {"__name__": "__main__"}).python(text)
        return self.shell(line)

    def shell(self, line: str, given: str = "") -> str:
        """What a shell prints; `given`: its standard input."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        command = ["bash", "-euo", "pipefail", "-c", line]
        options = f"{os.environ['SPARK_SUBMIT_OPTS']} {class_options()}"  # of a session that is not ours
        environment = {**os.environ, "PATH": path, "SPARK_SUBMIT_OPTS": options}
        done = subprocess.run(
            command, check=False, cwd=self.folder, env=environment, capture_output=True, text=True, input=given
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def ours(self, line: str) -> str:
        """A command of the command line, as its entry point runs it."""
        out, errors = io.StringIO(), io.StringIO()
        arguments = pytest.MonkeyPatch()
        arguments.setattr(sys, "argv", shlex.split(line))
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            try:
                cli.main()
                code = None
            except SystemExit as end:  # the entry point ends the process
                code = end.code
            finally:
                arguments.undo()
        assert not code, f"{line}\n{out.getvalue()}{errors.getvalue()}"
        return out.getvalue()


def commands(text: str) -> Iterator[str]:
    """The commands of a block, one each, lines that end in a backslash joined, comments left out."""
    for line in text.replace("\\\n", " ").splitlines():
        command = re.sub(r"\s+#\s.*$", "", line).strip()
        if command and not command.startswith("#"):
            yield command


def look_up(command: str) -> str:
    if command.startswith("make "):
        target = re.sub(r" [A-Z]+=.*", "", command).split()[1]
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"no target {target}"
    return ""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_the_documents_say_works(document: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "queries", tmp_path / "queries")
    reader = Reader(tmp_path, {"__name__": "document"})
    for block in blocks_of(document.read_text()):
        reader.follow(block)


@pytest.mark.parametrize(
    "document",
    [
        "```query\ninputs { A() within 30 secs; }\nfind A as a\n```\n",
        "```query error=unknown-unit\ninputs { A() within 30 sec; }\nfind A as a\n```\n",
        "```query error=unknown-unit\ninputs { A() within 30 secs; }\nfind B as b\n```\n",
        "```query warning=unused-input\nevent A { integer n; } inputs { A() within 9.0; } find A as a\n```\n",
    ],
)
def test_a_wrong_query_in_a_document_would_be_seen(document: str, tmp_path: Path) -> None:
    (block,) = blocks_of(document)
    with pytest.raises((AssertionError, querylang.QueryErrors)):
        Reader(tmp_path, {}).follow(block)


def test_a_wrong_document_would_be_seen(tmp_path: Path) -> None:
    reader = Reader(tmp_path, {})
    first, second = blocks_of("```bash\necho one   # a comment\n```\n\nprints\n\n```text\ntwo\n```\n")
    reader.follow(first)
    with pytest.raises(AssertionError):
        reader.follow(second)
