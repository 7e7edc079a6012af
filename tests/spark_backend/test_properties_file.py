"""Settings of Spark are not on a command line, which every user of a machine sees."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_backend.launch.jvm import SUBMIT_ARGS, submit_arguments

ODD = {"spark.a": " = :x\\ü\n😀#!", "spark.b key": "", "spark.c": "plain"}

PROGRAM = """
import sys
from pathlib import Path
from spark_backend.session import get_session
settings = {"spark.hadoop.fs.s3a.secret.key": "sesame = open\\\\", "spark.local.dir": sys.argv[1]}
session = get_session("probe", 1, settings)
lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
print(any(b"sesame" in line for line in lines if b"probe.py" not in line))
print(session.sparkContext.getConf().get("spark.hadoop.fs.s3a.secret.key"))
"""


def test_the_file_is_private_and_java_reads_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    defaults = tmp_path / "users.conf"
    defaults.write_text("spark.c before\nspark.d kept")
    monkeypatch.setenv(SUBMIT_ARGS, shlex.join(["--properties-file", str(defaults), "--name", "x", "pyspark-shell"]))
    file = tmp_path / "spark.properties"
    assert submit_arguments(ODD, file) == ["--properties-file", str(file), "--name", "x", "pyspark-shell"]
    assert file.stat().st_mode & 0o777 == 0o600
    java = spark.sparkContext._jvm
    assert java is not None
    found = java.java.util.Properties()
    found.load(java.java.io.FileReader(str(file)))
    assert dict(found) == ODD | {"spark.d": "kept"}


def test_a_session_gets_secrets_that_no_command_line_has(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "probe.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.splitlines() == ["False", "sesame = open\\"]
