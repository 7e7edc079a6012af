"""Text of data and names acts on no terminal, wherever it is shown."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from pathlib import Path

import pytest

import ensue
from ensue.commands.status_text import status_text
from ensue.rendering.text_table import text_table
from job_engine.job.status import QueryStatus, SourceStatus, Status, TimelineStatus
from job_engine.sources.source import PartitionBacklog, SourceBacklog
from job_engine.wire.reports import Report
from querylang.errors import FileErrors, InputError
from querylang.printable import json_text, masked, one_line, printable, warn
from runtime.policies.presets import OrderingError
from tests.ensue.command import Done, Run
from tests.project.modules import FILES

C0 = "".join(map(chr, (*range(1, 9), *range(11, 32))))
LATER = "".join(
    map(chr, (0x7F, *range(0x80, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)))
)
HOSTILE = f"<{C0}{LATER}>"
RAW = re.compile(f"[{re.escape(C0 + LATER)}]")
RED = "\x1b]0;x\x07\x9b31m\u202e"

QUERY = """
event A { string s; }
query Q {
    inputs { A() key s within 9.0; }
    find A as a -> A as b { send A("HERE") to "HERE"; print "HERE" + a.s; }
}
"""


def test_a_text_is_escaped_once_and_letters_stay() -> None:
    assert printable("a\x1b[31m\x9b\u202e\n\tb\r\udcff") == "a\\x1b[31m\\x9b\\u202e\n\tb\\r\\udcff"
    assert one_line("a\nb\tc\x1b\u00a0é漢") == "a\\nb\\tc\\x1b\u00a0é漢"
    assert printable(printable(HOSTILE)) == printable(HOSTILE)
    assert not RAW.search(printable(HOSTILE) + one_line(HOSTILE))


def test_json_reads_back_as_it_was() -> None:
    value = {HOSTILE: [HOSTILE, "é漢", "\udcff"]}
    written = json_text(value)
    assert not RAW.search(written)
    assert "é漢" in written
    assert json.loads(written) == value


def test_cells_are_escaped_before_they_are_measured() -> None:
    assert text_table(["a\x1b", "b"], [["x\x9b\n", "1"]]).splitlines() == ["a\\x1b    b", "-------  -", "x\\x9b\\n  1"]


def test_errors_keep_to_their_lines() -> None:
    assert str(InputError("a\nb\x1b.csv: no such file")) == "a\\nb\\x1b.csv: no such file"
    assert str(FileErrors("a\n.yaml", [(1, "x\x07"), (2, "y")])) == "a\\n.yaml:1: x\\x07\na\\n.yaml:2: y"
    assert str(OrderingError([(None, "no policy\x9b"), (None, "y")])) == "ordering: no policy\\x9b\nordering: y"


def test_carets_stay_below_what_they_mark() -> None:
    text = 'query Q { inputs { A() within 9.0; } find A as a where a.s = "\x1b\u202e" + nobody {} }'
    with pytest.raises(ensue.QueryErrors) as caught:
        ensue.load("event A { string s; }\n" + text).template()
    line, carets = str(caught.value).splitlines()[1:3]
    assert "\\x1b\\u202e" in line
    assert line[carets.index("^") : carets.rindex("^") + 1] == "nobody"


def test_a_secret_is_found_behind_its_escapes() -> None:
    assert masked(str(InputError("no user sec\x1bret")), {"WORD": "sec\x1bret"}) == "no user ${WORD}"


def test_warnings_are_lines(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="ensue"):
        warn(f"{RED}\nforged")
    assert caplog.messages == ["\\x1b]0;x\\x07\\x9b31m\\u202e\\nforged"]


def test_there_is_one_way_out_for_warnings_and_one_for_commands() -> None:
    loggers = {
        "querylang.printable",
        "ensue.commands.json_log",  # takes what the logger says, and writes it as JSON
        "job_engine.sinks.topics.publishing",  # silences the client's own
        "spark_backend.session",  # silences PySpark's own
    }
    ways = {"getLogger(": loggers, "sys.stdout.write": {"ensue.commands.common"}}
    for call, expected in ways.items():
        assert {name for name, path in FILES.items() if call in path.read_text()} == expected


def written(folder: Path, query: str = QUERY) -> tuple[str, str]:
    """A query and a table, of which names, columns, cells and texts are hostile; some rows are malformed."""
    folder /= f"dir{RED}\n"
    folder.mkdir()
    (folder / f"q{RED}.query").write_text(query.replace("HERE", RED.replace("\n", "")), "utf-8")
    rows = [{"at": 1, "event": "A", "s": HOSTILE}, {"at": 2, "event": "A", "s": HOSTILE}]
    rows += [
        {"at": 3, "event": HOSTILE, HOSTILE: "x"},
        {"at": HOSTILE, "event": "A"},
        {"at": 4, "event": "A", "s": [HOSTILE]},
    ]
    table = folder / f"t{RED}.jsonl"
    table.write_text("\n".join(map(json.dumps, rows)) + f'\n{{"at": 5, "event": "A", "s": "{LATER}{RED}\n', "utf-8")
    return str(next(folder.glob("*.query"))), str(table)


def refuse_raw(done: Done, *, is_wordless: bool = False) -> None:
    assert is_wordless or done.stdout + done.stderr
    assert not RAW.search(done.stdout + done.stderr), ascii(done)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "options", [(), ("--json",), *(("--format", word) for word in ("table", "steps", "matches", "outputs"))]
)
def test_replay(ensue: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    done = ensue("replay", *written(tmp_path), *options)
    refuse_raw(done)
    assert done.returncode == 0
    assert "x9b" in done.stdout or "u009b" in done.stdout


@pytest.mark.parametrize("options", [(), ("--json",), ("--dot",), ("--program",)])
def test_explain(ensue: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    done = ensue("explain", written(tmp_path)[0], *options)
    refuse_raw(done)
    assert done.returncode == 0


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize(
    "query",
    [
        QUERY.replace("string s", f"string `{RED}`"),
        QUERY.replace("a.s;", f"a.{RED};"),
        QUERY.replace('"HERE" + a.s', f'"{RED}" + nobody'),
        QUERY.replace("find", f'"{RED} find'),
    ],
)
def test_check(ensue: Run, tmp_path: Path, query: str, options: tuple[str, ...]) -> None:
    done = ensue("check", written(tmp_path, query)[0], *options)
    refuse_raw(done)
    assert done.returncode == 1


@pytest.mark.parametrize("command", ["check", "explain", "fmt", "status", "run", "replay", "match", "verify"])
def test_a_missing_file_and_wrong_usage(ensue: Run, command: str) -> None:
    for arguments in ([RED], [RED, RED], [RED, RED, RED, f"--{RED}"], ["--json", RED, "--ordering", RED, RED]):
        done = ensue(command, *arguments)
        refuse_raw(done)
        assert done.returncode in {1, 2}


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("command", ["status", "check"])
def test_a_deployment(ensue: Run, tmp_path: Path, command: str, options: tuple[str, ...]) -> None:
    query, table = written(tmp_path)
    plain = {
        "name": HOSTILE,
        "queries": [query],
        "sources": [{"name": RED, "format": "json", "path": str(Path(table).parent), RED: 1}],
        "sinks": {"matches": {"format": "json", "path": str(tmp_path / RED)}},
        "checkpoint": str(tmp_path / RED),
    }
    for changed in (plain, plain | {RED: 1}, {**plain, "sources": [{"name": RED, "format": "json", "path": "in"}]}):
        file = tmp_path / "job.yaml"
        file.write_text(json.dumps(changed))
        refuse_raw(ensue(command, str(file), *options))


def test_formatted_text_is_exact_in_a_pipe_and_escaped_on_a_terminal(
    ensue: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "q.query"
    file.write_text(f"// {RED}\nevent A {{ string s; }}\n", "utf-8")
    assert RED in ensue("fmt", "--stdout", str(file)).stdout

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    ensue("fmt", "--stdout", str(file))
    assert "// \\x1b]0" in terminal.getvalue()
    assert not RAW.search(terminal.getvalue())


def test_a_status() -> None:
    query = QueryStatus(
        RED, RED, 1, 1, 1, 1, 1, (TimelineStatus(RED, 1, 1, 1, 1, holds_back=True),), 1, (RED,), is_behind=True
    )
    status = Status(
        name=f"{RED}\nforged",
        at=1,
        is_active=True,
        batch=1,
        moment=1,
        clock=1,
        buckets=1,
        queries=(query,),
        sources=(SourceStatus(RED, 1, 1, 1, holds_back=True),),
        held=1,
        kept=1,
        state_bytes=1,
        rates=None,
        ledger={(RED, RED, "received"): 1, (RED, RED, "used"): 1},
        reports=(Report("lost", RED, 1, f"{RED}\nforged"),),
        damaged=(f"{RED}\nforged",),
        backlog=(
            SourceBacklog(RED, files=1, bytes=1),
            SourceBacklog(RED, messages=1, partitions=(PartitionBacklog(RED, 1, 1),)),
            SourceBacklog(RED, problem=f"{RED}\nforged"),
        ),
    )
    for text in (status_text(status), json_text(status.to_plain())):
        assert RED.strip() not in text
        assert not RAW.search(text)
        assert "\nforged" not in text


def test_notebooks_and_python(tmp_path: Path) -> None:
    result = ensue.replay(*map(Path, written(tmp_path)))
    shown = [result._repr_html_(), repr(result), result.table(), result.account(), result.summary()]
    assert not RAW.search("".join(shown))
