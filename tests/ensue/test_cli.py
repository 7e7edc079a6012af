"""The command line: what it prints, and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO, TextIOWrapper
from pathlib import Path
from threading import Thread

import pytest

import ensue as api
from tests.ensue.command import Run
from tests.support.pace import measured

QUERY = """@OutOfOrder()
event A { integer id; }
query Q {
    inputs { A() within 30.0 wait 20.0; }
    find A as a1 -> A as a2 { print a1.toString() + a2.toString(); }
}
"""
EVENTS = "at,event,ts,id\n10:00:20,A,10:00:10,1\n10:00:32,A,10:00:15,3\noops,A,10:00:12,2\n10:00:37,A,10:00:12,2\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    (tmp_path / "q.query").write_text(QUERY)
    (tmp_path / "e.csv").write_text(EVENTS)
    (tmp_path / "bad.query").write_text("query Q {\n    inputs { A() within 30.0; }\n    find A as a -> B as b\n}\n")
    return tmp_path


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of its own."""
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_check_counts_files_without_mistakes(ensue: Run) -> None:
    done = ensue("check", "q.query")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 file, no mistakes\n", "")


def test_check_tells_mistakes_with_their_place(ensue: Run) -> None:
    done = ensue("check", "q.query", "bad.query")
    assert (done.returncode, done.stdout) == (1, "")
    assert "bad.query:3:20: " in done.stderr
    assert "^" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_file_hides_no_mistakes_of_the_others(ensue: Run) -> None:
    lines = ensue("check", "none.query", "bad.query").stderr.splitlines()
    assert lines[0] == "none.query: no such file or folder"
    assert lines[1].startswith("bad.query:3:20: ")


def test_check_for_machines(ensue: Run) -> None:
    found = json.loads(ensue("check", "--json", "bad.query").stdout)
    assert [(error["path"], error["line"], error["column"]) for error in found["errors"]] == [("bad.query", 3, 20)]


def test_check_needs_the_language_only(folder: Path) -> None:
    heavy = {"pandas", "numpy", "numba", "pyarrow", "pyspark", "rich", "pydantic"}
    code = (
        "import sys; sys.argv = ['ensue', 'check', 'q.query']\n"
        "from ensue.cli import main\n"
        "try: main()\n"
        f"except SystemExit as end: print(end.code, sorted({heavy!r} & set(sys.modules)))"
    )
    done = python(folder, "-c", code)
    assert done.stdout == "1 file, no mistakes\n0 []\n"


def test_check_of_a_small_file_takes_less_than_half_a_second(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(folder / "compiled"))

    def seconds() -> float:
        """All but the first find the modules compiled, as users do."""
        with measured() as used:
            assert python(folder, "-m", "ensue.cli", "check", "q.query").returncode == 0
        return used.seconds

    assert min(seconds() for _ in range(3)) < 0.5


def test_a_deployment_file_is_checked_without_spark(folder: Path, ensue: Run) -> None:
    (folder / "run.yaml").write_text("name: x\nquery: [q.query]\n")
    done = ensue("check", "run.yaml")
    assert done.returncode == 1
    assert "run.yaml:2" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("format_", ["matches", "outputs", "steps"])
def test_replay_prints_json_lines(ensue: Run, format_: str) -> None:
    done = ensue("replay", "q.query", "e.csv", "--format", format_)
    assert done.returncode == 0
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == {"matches": 1, "outputs": 1, "steps": 6}[format_]


def test_replay_tells_what_could_not_be_read(ensue: Run) -> None:
    done = ensue("replay", "q.query", "e.csv", "--format", "outputs")
    assert json.loads(done.stdout)["text"] == "A(1)A(3)"
    assert done.stderr == (
        "4 rows, 1 match, 2 discarded (1 malformed, 1 late)\n  line 4: 'oops' in 'at' is not a time: oops,A,10:00:12,2\n"
    )


def test_of_several_tables_each_unreadable_row_names_its_own(ensue: Run, folder: Path) -> None:
    (folder / "f.csv").write_text("at,event,ts,id\n10:00:20,B,10:00:10,1\n10:00:20,B,10:00:10,1\n10:00:21,A,,x\n")
    done = ensue("replay", "q.query", "e.csv", "f.csv", "--format", "outputs")
    assert done.stderr.splitlines()[1:] == [
        "  f.csv: line 4: 'x' is not a value of 'id' (integer): 10:00:21,A,,x",
        "  e.csv: line 4: 'oops' in 'at' is not a time: oops,A,10:00:12,2",
        "  unknown event type 'B' in 2 rows",
    ]


def test_replay_warns_of_what_a_query_probably_does_not_mean(ensue: Run, folder: Path) -> None:
    (folder / "w.query").write_text(
        "event B { integer n; }\ninputs { B() retain 3; }\nfind B as a -> B as b without B as c where a.n > 1\n"
    )
    (folder / "b.csv").write_text("at,n\n1,1\n")
    told = ensue("replay", "w.query", "b.csv").stderr.splitlines()
    assert (
        told[0] == "warning: w.query:3:38: idle-where: this `where` belongs to the `without` before it and does not"
        " mention its 'c'"
    )
    assert not any("kept-keys" in line for line in told)


def test_replay_as_one_object(ensue: Run) -> None:
    found = json.loads(ensue("replay", "q.query", "e.csv", "--json", "--no-flush").stdout)
    assert [len(found[name]) for name in ("matches", "outputs")] == [1, 1]
    assert [row["value"] for row in found["metrics"] if row["metric"] == "Late Input Events"] == [1.0, 0.0]


def test_explain_shows_the_automaton_and_the_matcher(ensue: Run) -> None:
    done = ensue("explain", "q.query")
    assert done.returncode == 0
    assert "automaton" in done.stdout
    assert "\n  matcher\n    kernel\n  before the shuffle, on Spark\n" in done.stdout


def test_query_text_in_place_of_a_file_is_told_so(ensue: Run) -> None:
    done = ensue("replay", "inputs { A() retain 2; } find A as a", "e.csv")
    assert done.returncode == 1
    assert done.stderr.endswith("; query text is written to a file, or to standard input, where the file is `-`\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("replay", "none.query", "e.csv"), "none.query: no such file or folder"),
        (("replay", "q.query", "none.csv"), "none.csv: no such file"),
        (("replay", "q.query", "e.csv", "--arrival", "att"), "e.csv: has no column 'att'; did you mean 'at'?"),
        (
            ("replay", "q.query", "e.csv", "--until", "noon"),
            "until: 'noon' is not a time: write ISO 8601, HH:MM:SS or seconds since 1970",
        ),
        (
            ("replay", "q.query", "e.csv", "--arrival", "when"),
            "e.csv: has no column 'when'; it has 'at', 'event', 'ts' and 'id'",
        ),
        (
            ("replay", "e.csv", "q.query"),
            "e.csv: is a table of events, not a query file; expected one that ends in .query or .qry",
        ),
        (
            ("run", "q.query"),
            "q.query: is a query file; a deployment file, such as `job.yaml`, names it under `queries`",
        ),
        (("check", "none.yaml"), "none.yaml: no such file"),
        (("match", "q.query", "none.csv", "--out", "m"), "none.csv: no such file or folder"),
    ],
)
def test_a_mistake_of_the_user_is_one_line_and_exit_code_1(ensue: Run, arguments: tuple[str, ...], told: str) -> None:
    done = ensue(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told + "\n")


@pytest.mark.parametrize(
    "arguments", [("fly",), ("replay",), ("replay", "q.query", "e.csv", "--format", "x"), ("check",)]
)
def test_wrong_usage_is_exit_code_2(ensue: Run, arguments: tuple[str, ...]) -> None:
    done = ensue(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""


def test_our_own_failure_is_exit_code_3(ensue: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.commands.texts.load", lambda _file: 1 // 0)
    done = ensue("explain", "q.query")
    assert done.returncode == 3
    assert "this is a failure of Ensue itself" in done.stderr


def test_the_package_is_a_command(folder: Path) -> None:
    done = python(folder, "-m", "ensue.cli", "check", "q.query")
    assert (done.returncode, done.stdout) == (0, "1 file, no mistakes\n")


def test_a_table_on_standard_input_may_have_tabs(ensue: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "w.query").write_text("query W { inputs { A() within 9.0; } find A as a }")
    _piped(monkeypatch, "at\tn\n1\t1\n2\t2\n")
    assert len(ensue("replay", "w.query", "-", "--format", "matches").stdout.splitlines()) == 2


def test_mistakes_of_standard_input_name_it_as_it_was_given(
    ensue: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "w.query").write_text("query W { inputs { A() within 9.0; } find A as a }")
    _piped(monkeypatch, "at|n\n1|1\n")
    told = "its only column is 'at|n'; is the delimiter another one? `--csv \"delimiter=|\"`"
    assert ensue("replay", "w.query", "-").stderr == f"-: {told}\n"


def test_the_form_of_csv_files_may_be_given_in_parts(ensue: Run, folder: Path) -> None:
    (folder / "l.csv").write_bytes("at;ts;event;id\n1;1;A;1\n1;1;Ä;1\n".encode("latin-1"))
    done = ensue("replay", "q.query", "l.csv", "--csv", "delimiter=;", "--csv", "encoding=latin-1")
    assert "unknown event type 'Ä'" in done.stderr
    assert ensue("replay", "q.query", "l.csv", "--csv", "delimiter=;", "--csv", "delimiter=,").returncode == 1


SHELLS = {
    "bash": "complete -o default -F _ensue_completion ensue",
    "zsh": "#compdef ensue",
    "fish": "complete --command ensue",
    "powershell": "Set-PSReadLineKeyHandler",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_is_shown_for_the_shell_that_is_named(folder: Path, shell: str) -> None:
    assert SHELLS[shell] in python(folder, "-m", "ensue", "--show-completion", shell).stdout


def test_the_version_is_told(ensue: Run) -> None:
    assert ensue("--version").stdout == f"ensue {api.__version__}\n"


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_has_a_short_option(ensue: Run, option: str) -> None:
    assert "Commands:" in ensue(option).stdout
    assert "DEPLOYMENT.yaml" in ensue("run", option).stdout


def test_the_package_is_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ensue", "check", "q.query"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "1 file, no mistakes\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(ensue: Run, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    monkeypatch.setenv("_ENSUE_COMPLETE", f"source_{shell}")
    assert f"_ENSUE_COMPLETE=complete_{shell}" in ensue().stdout


def _piped(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    from querylang import load

    load._standard_input.cache_clear()
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(text.encode())))


def test_a_query_may_come_from_standard_input(ensue: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (folder / "q.query").read_text()
    _piped(monkeypatch, text)
    assert ensue("check", "-").stdout == "1 file, no mistakes\n"
    _piped(monkeypatch, text)
    of_file = ensue("replay", "q.query", "e.csv", "--format", "outputs")
    assert ensue("replay", "-", "e.csv", "--format", "outputs").stdout == of_file.stdout
    _piped(monkeypatch, "inputs { A() within 3; } find B as b")
    done = ensue("check", "-")
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        1,
        "-:1:31: not-an-input: 'B' is not an input of this query",
    )


def test_an_unknown_event_type_gets_the_nearest_known_one(ensue: Run, folder: Path) -> None:
    (folder / "w.query").write_text("inputs { Reading() within 3; } find Reading as r")
    (folder / "w.csv").write_text("at,event\n10:00:20,Raeding\n")
    done = ensue("replay", "w.query", "w.csv")
    assert done.returncode == 1
    assert done.stderr == (
        "no row has an event type that the queries read: they read Reading, and the rows are 'Raeding';"
        " did you mean 'Reading'?; `--type none` where the column is a field\n"
    )


@contextmanager
def piped(path: Path, text: str) -> Iterator[str]:
    """The path of a pipe that brings the text once, as `<(...)` of a shell gives it."""
    os.mkfifo(path)
    writer = Thread(target=path.write_text, args=(text,), daemon=True)
    writer.start()
    yield str(path)
    writer.join()


@pytest.mark.parametrize("command", [["replay"], ["explain"], ["replay", "--format", "matches"]])
def test_a_query_may_come_through_a_pipe(ensue: Run, folder: Path, command: list[str]) -> None:
    """Nothing defines its type, so it is compiled again for the table."""
    query = "query Q { inputs { A() within 30.0; } find A as a where a.id > 2 }"
    (folder / "plain.csv").write_text("at,event,id\n1,A,1\n2,A,3\n")
    with piped(folder / "pipe", query) as pipe:
        done = ensue(*command, pipe, str(folder / "plain.csv"))
    assert (done.returncode, done.stderr) == (0, "")


def test_values_of_parameters_may_come_through_a_pipe(ensue: Run, folder: Path) -> None:
    (folder / "p.query").write_text(
        "query Q { parameters { integer least; } inputs { A(id >= least) retain 1; } find A as a }"
    )
    (folder / "plain.csv").write_text("at,event,id\n1,A,1\n2,A,3\n")
    with piped(folder / "values", "{least: 2}") as values:
        out = str(folder / "found.csv")
        done = ensue("replay", "--parameters", values, str(folder / "p.query"), str(folder / "plain.csv"), "--out", out)
    assert done.returncode == 0
    assert "1 match in" in done.stdout


@pytest.mark.parametrize("command", ["check", "explain", "fmt", "list"])
def test_a_query_file_that_a_disk_does_not_give_may_be_read_later(tmp_path: Path, command: str) -> None:
    (tmp_path / "x.query").symlink_to("/proc/self/mem")  # reading its first byte is an error of input
    found = subprocess.run(
        [sys.executable, "-m", "ensue", command, "x.query"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout) == (4, "")
    assert found.stderr.startswith("x.query: ")
    assert found.stderr.endswith("Input/output error\n")


def test_a_wrong_file_beside_it_is_wrong_input(tmp_path: Path) -> None:
    (tmp_path / "x.query").symlink_to("/proc/self/mem")
    (tmp_path / "y.query").write_text("find")
    command = [sys.executable, "-m", "ensue", "check", "x.query", "y.query"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 1


def test_signals_are_heard_before_anything_large_is_imported() -> None:
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); import ensue.__main__;"
        "print(signal.getsignal(signal.SIGINT) is signal.SIG_DFL, 'querylang' in sys.modules, 'ensue.cli' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "True False False\n"
