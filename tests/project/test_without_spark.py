"""Without PySpark and Java everything that is embedded or local works, and the rest names the extra in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ensue
from ensue.cli import command_line
from ensue.commands import all_commands
from tests.project.repository import ROOT
from tests.support.waiting import LONGEST

BLOCK = "import sys\nfor name in ('pyspark', 'py4j'):\n    sys.modules[name] = None\n"
"""In every process, those that Ensue starts included: importing either is an ImportError, as if it were not there."""

QUERY = """\
event A {
    float v;
}

query Rising {
    inputs {
        A() within 30 seconds;
    }
    find A as a -> A as b
        where b.v > a.v
}
"""
PEAKS = QUERY.replace("    inputs", "    parameters { float least; }\n    inputs").replace("> a.v", "> a.v + least")
OTHER = QUERY.replace("Rising", "Falling").replace("b.v > a.v", "b.v < a.v")
JOB = """\
name: rising
queries: [rising.query]
sources: {events: {format: csv, path: in, event: A}}
sinks: {matches: {format: json, path: out}, discarded: {format: json, path: discarded}}
buckets: 2
engine: local
checkpoint: state
"""
EVENTS = "at,v\n10:00:00,1.0\n10:00:10,3.0\n10:00:20,2.0\n"
SQL = """\
SELECT * FROM ticks MATCH_RECOGNIZE (
  PARTITION BY symbol ORDER BY at MEASURES A.at AS first_at
  ONE ROW PER MATCH AFTER MATCH SKIP TO NEXT ROW
  PATTERN (A B) WITHIN INTERVAL '1' MINUTE
  DEFINE B AS B.v > A.v
)
"""
CASE = """\
- name: a rise
  query: told.query
  rows:
    - {at: "10:00:00", event: A, v: 1.0}
    - {at: "10:00:10", event: A, v: 3.0, out: [up]}
"""
TOLD = QUERY.replace("Rising", "Told").replace("b.v > a.v\n", 'b.v > a.v\n    {\n        print "up";\n    }\n')

JOB_COMMANDS: dict[str, list[str]] = {
    "run": ["job.yaml", "--once", "--json"],
    "status": ["job.yaml", "--json"],
    "plan": ["job.yaml"],
    "state": ["job.yaml", "--json"],
    "deploy": ["job.yaml", "falling.query", "--no-wait"],
    "replace": ["job.yaml", "rising.query", "--no-wait"],
    "shadow": ["job.yaml", "rising.query", "--no-wait"],
    "diff": ["job.yaml", "Rising", "Rising"],
    "control": ["job.yaml", 'UndeployQuery("Falling")', "--no-wait"],
    "undeploy": ["job.yaml", "Rising", "--no-wait"],
    "compact": ["job.yaml"],
    "backup": ["job.yaml", "copy"],
    "restore": ["job.yaml", "copy", "--replace"],
    "rebucket": ["job.yaml", "3"],
}
"""By command, in this order: what is done with a job of the local engine."""

COMMANDS: dict[str, list[str]] = {
    "check": ["rising.query", "job.yaml"],
    "fmt": ["rising.query", "--check"],
    "explain": ["rising.query"],
    "list": ["rising.query"],
    "replay": ["rising.query", "in/1.csv", "--format", "matches"],
    "why": ["rising.query", "in/1.csv"],
    "funnel": ["rising.query", "in/1.csv"],
    "backtest": ["rising.query", "in/1.csv", "--labels", "labels.csv"],
    "sweep": ["peaks.query", "in/1.csv", "--labels", "labels.csv", "--vary", "least=1,2"],
    "schema": [],
    "import": ["dip.sql"],
    "package": ["--out", "ensue.zip"],
    "verify": ["rising.query", "in/1.csv"],
}

NEED_SPARK: dict[str, list[str]] = {
    "match": ["rising.query", "in/1.csv", "--out", "found"],
}

SAME_CODE = {
    "set": "a control event, as `control`",
    "remove": "as `set`",
    "forget": "as `control`, and the rows of sinks",
    "reprocess": "reads files and writes one",
    "compile": "takes minutes; `test_compile_kernels.py` does not start Spark either",
    "move": "either way; its own tests have both",
}
"""Why they are not run here."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked/sitecustomize.py").write_text(BLOCK)
    (tmp_path / "in").mkdir()
    for name, text in {
        "rising.query": QUERY,
        "falling.query": OTHER,
        "told.query": TOLD,
        "peaks.query": PEAKS,
        "labels.csv": "row\n2\n",
        "job.yaml": JOB,
        "in/1.csv": EVENTS,
        "dip.sql": SQL,
        "rising.case.yaml": CASE,
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def python(folder: Path, *arguments: str, text: str = "") -> str:
    """What a Python prints that finds neither PySpark nor Java."""
    environment = {
        **{name: value for name, value in os.environ.items() if name != "JAVA_HOME"},
        "PYTHONPATH": f"{folder / 'blocked'}{os.pathsep}{ROOT}",
        "PATH": str(folder),
        "CI": "1",
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def outcomes(folder: Path, commands: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    given = [[name, *arguments] for name, arguments in commands.items()]
    lines = python(folder, "-m", "tests.support.commands_in_one_process", text=json.dumps(given)).splitlines()
    return dict(zip(commands, map(json.loads, lines), strict=True))


def test_every_command_is_in_a_table() -> None:
    command = command_line(*all_commands.COMMANDS)
    known = {*COMMANDS, *JOB_COMMANDS, *NEED_SPARK, *SAME_CODE}
    assert {*command.commands} <= known  # type: ignore[attr-defined] # a group


def test_commands_without_a_job_need_no_spark(folder: Path) -> None:
    found = outcomes(folder, COMMANDS)
    assert {name: item["code"] for name, item in found.items()} == dict.fromkeys(COMMANDS, 0), found
    assert "park" not in "".join(item["err"] for item in found.values())
    assert found["replay"]["out"].count('"match_id"') == 2


def test_commands_of_a_local_job_need_no_spark(folder: Path) -> None:
    found = outcomes(folder, JOB_COMMANDS)
    assert {name: item["code"] for name, item in found.items()} == dict.fromkeys(JOB_COMMANDS, 0), found
    assert json.loads(found["run"]["out"])["matches"] == {"Rising": 2}
    assert "park" not in "".join(item["out"] + item["err"] for item in found.values())


def test_what_needs_spark_names_the_extra_in_one_line(folder: Path) -> None:
    line = (
        "PySpark is not installed: `pip install 'ensue[spark]'`; replays, open queries and `ensue run --engine local`"
        " need none\n"
    )
    found = outcomes(folder, NEED_SPARK)
    assert {name: (item["code"], item["err"]) for name, item in found.items()} == dict.fromkeys(NEED_SPARK, (1, line))


def test_a_job_of_spark_names_both_ways_out(folder: Path) -> None:
    (folder / "job.yaml").write_text(JOB.replace("engine: local\n", ""))
    (found,) = outcomes(folder, {"run": ["job.yaml", "--once"]}).values()
    assert found["err"] == (
        "PySpark is not installed: `pip install 'ensue[spark]'`, or run the job on this machine alone: `--engine local`\n"
    )
    assert not (folder / "state").exists()


def test_without_java_a_job_of_spark_names_the_local_engine(folder: Path) -> None:
    (folder / "job.yaml").write_text(JOB.replace("engine: local\n", ""))
    (folder / "blocked/sitecustomize.py").write_text("")
    (found,) = outcomes(folder, {"run": ["job.yaml", "--once"]}).values()
    assert found["err"].startswith("no Java was found: Spark needs Java 17 or later.")
    assert "`ensue run --engine local`" in found["err"]
    assert found["err"].count("\n") == 1


PUBLIC = """
import json, ensue
query = "inputs { A() within 30 seconds; } find A as low -> A as high where high.v > low.v"
rows = [{"at": 0.0, "v": 1.0}, {"at": 10.0, "v": 3.0}]
live = ensue.open(query)
answers = [live.send(row) for row in rows]
found = {"replay": len(ensue.replay(query, rows)), "open": len(answers[-1].matches), "load": type(ensue.load("rising.query")).__name__}
handle = ensue.deploy("job.yaml", engine="local")
while handle.status().batch is None:
    handle.await_termination(0.1)
handle.stop()
found["deploy"] = dict(handle.status().to_plain())["batch"]
try:
    ensue.deploy("spark.yaml")
except ensue.InputError as error:
    found["deploy on Spark"] = str(error)
for name in ensue.__all__:
    getattr(ensue, name)
for name in ("match", "batch", "stream", "streams"):
    try:
        getattr(ensue, name)(object(), query)
    except ensue.InputError as error:
        found[name] = str(error)
print(json.dumps(found))
"""


def test_public_functions_need_no_spark_or_name_the_extra(folder: Path) -> None:
    (folder / "spark.yaml").write_text(JOB.replace("engine: local\ncheckpoint: state", "checkpoint: other"))
    found = json.loads(python(folder, "-c", PUBLIC))
    embedded = [found.pop(name) for name in ("replay", "open", "load", "deploy")]
    assert embedded == [1, 1, "Queries", 0]
    assert found.pop("deploy on Spark").endswith("or run the job on this machine alone: `--engine local`")
    line = (
        "PySpark is not installed: `pip install 'ensue[spark]'`; replays, open queries and `ensue run --engine local`"
    )
    assert found == dict.fromkeys(("match", "batch", "stream", "streams"), f"{line} need none")
    assert set(ensue.__all__) >= {"Batch", "Streams", "deploy"}


def test_cases_of_users_are_tested_without_spark(folder: Path) -> None:
    out = python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "rising.case.yaml")
    assert "1 passed" in out


WALK = """
import importlib, pkgutil
for top in ("querylang", "runtime", "job_engine", "ensue"):
    package = importlib.import_module(top)
    for module in pkgutil.walk_packages(package.__path__, f"{top}."):
        if module.name not in ("ensue.spark", "ensue.__main__", "ensue.demo.__main__"):
            importlib.import_module(module.name)
"""


def test_only_one_module_above_spark_imports_it(folder: Path) -> None:
    python(folder, "-c", WALK)
