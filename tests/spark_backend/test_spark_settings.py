"""What a deployment asks of Spark: `spark:`, the master that is given, and sessions that exist already."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from job_engine.deployment_file import load_deployment
from querylang.errors import InputError
from spark_backend.launch.session_settings import OPTIONS, is_local, refuse_silent, settings_of_start, submitted_master
from spark_backend.session import existing_session, own_session, unmet

GOOD = """\
spark:
  master: spark://one:7077,two:7077
  packages: ["org.apache.hadoop:hadoop-aws:3.4.1", "a:b_2.13:1"]
  jars: [own.jar, "https://host/other.jar"]
  executor_memory: 2g
  driver_memory: 512m
  conf: {spark.executor.cores: 2, spark.sql.shuffle.partitions: "${COUNT}"}
"""


def load(folder: Path, text: str) -> dict[str, str]:
    for name in ("q.query", "own.jar"):
        (folder / name).write_text("")
    (folder / "in").mkdir(exist_ok=True)
    rest = "name: a\nqueries: [q.query]\nsources: {a: {format: csv, path: in}}\n"
    rest += "sinks: {matches: {format: csv, path: out}}\ncheckpoint: state\n"
    (folder / "job.yaml").write_text(text + rest)
    return dict(load_deployment(folder / "job.yaml", {"COUNT": "8"}).spark)


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(folder, text)
    return str(caught.value).replace(f"{folder}/job.yaml:", "").split("\n")


def test_settings_have_the_names_that_spark_gives_them(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD) == {
        "spark.master": "spark://one:7077,two:7077",
        "spark.jars.packages": "org.apache.hadoop:hadoop-aws:3.4.1,a:b_2.13:1",
        "spark.jars": f"{tmp_path}/own.jar,https://host/other.jar",
        "spark.executor.memory": "2g",
        "spark.driver.memory": "512m",
        "spark.executor.cores": "2",
        "spark.sql.shuffle.partitions": "8",
    }


def test_every_mistake_has_its_line(tmp_path: Path) -> None:
    text = """\
spark:
  master: sprk://host:7077
  packages: [a:b]
  jars: [owm.jar]
  executor_memory: 2 gigs
  driver_memry: 2g
  conf:
    sparc.executor.cores: 2
    spark.executor.memory: 1g
    spark.sql.adaptive.enabled: true
"""
    assert mistakes(tmp_path, text) == [
        (
            "2: 'master' must be a master of Spark such as local[2], spark://HOST:7077, yarn, k8s://https://HOST:443,"
            " not 'sprk://host:7077'; did you mean 'spark'?"
        ),
        "3: 'packages' must be group:artifact:version, such as `org.apache.hadoop:hadoop-aws:3.4.1`, not 'a:b'",
        "4: no such file: 'owm.jar'; did you mean 'own.jar'?",
        "5: 'executor_memory' must be a size such as `512m` or `2g`, not '2 gigs'",
        "6: unknown key 'driver_memry' in 'spark'; did you mean 'driver_memory'?",
        "8: settings of Spark begin with 'spark.'; did you mean 'spark.executor.cores'?",
        "9: 'spark.executor.memory' is the same as 'executor_memory' of 'spark'; give one of them",
        "10: 'spark.sql.adaptive.enabled' is set by every job; it cannot be chosen",
    ]


def test_a_session_on_a_cluster_has_no_settings_of_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    chosen = settings_of_start("a", settings={"spark.master": "spark://host:1", OPTIONS: "-Dmine=1"})
    assert not chosen.keys() & {"spark.driver.host", "spark.shuffle.compress", "spark.sql.shuffle.partitions"}
    assert "-Xss16m" in chosen[OPTIONS]
    assert "-Dmine=1" in chosen[OPTIONS]
    assert settings_of_start("a", cores=3)["spark.master"] == "local[3]"


def test_the_master_of_a_command_holds_where_the_file_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 1g --master spark://host:1 pyspark-shell")
    assert settings_of_start("a")["spark.master"] == "spark://host:1"
    assert submitted_master({"PYSPARK_SUBMIT_ARGS": "--master=yarn pyspark-shell"}) == "yarn"
    assert submitted_master({"PYSPARK_SUBMIT_ARGS": '"'}) is None


@pytest.mark.parametrize(
    ("master", "local"), [("local", True), ("local[2]", True), ("local-cluster[1,1,512]", False), ("yarn", False)]
)
def test_which_masters_are_this_machine(master: str, local: bool) -> None:
    assert is_local(master) == local


def test_a_master_that_does_not_answer_is_refused_at_once() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        with pytest.raises(InputError, match=f"no master of Spark answers at spark://127.0.0.1:{port} .*refused"):
            refuse_silent(f"spark://127.0.0.1:{port}")
        listener.listen()
        refuse_silent(f"spark://127.0.0.1:1,127.0.0.1:{port}")


def test_a_session_that_exists_is_used_and_stays_as_it_was(spark: SparkSession) -> None:
    before = dict(spark.conf.getAll)
    wanted = {"spark.executor.memory": "7g", "spark.master": "local[2]", "spark.sql.files.maxPartitionBytes": "1m"}
    own = own_session(wanted=wanted)
    assert unmet(own, wanted) == {"spark.executor.memory": ""}
    folder = own.conf.get("spark.sql.warehouse.dir").removeprefix("file:")
    assert unmet(own, {"spark.sql.warehouse.dir": folder}) == {}
    assert own.conf.get("spark.sql.files.maxPartitionBytes") == "1m"
    assert dict(spark.conf.getAll) == before


def test_a_thread_without_an_active_session_finds_that_of_the_process(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise Spark would give the existing one, with our settings in it."""
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    before = dict(spark.conf.getAll)
    found = existing_session()
    assert found is not None
    assert found.sparkContext is spark.sparkContext
    assert dict(spark.conf.getAll) == before
