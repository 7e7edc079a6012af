"""The setting `engine`: what it may be, what cannot be with it, and checkpoints of the other engine."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import ensue
from job_engine.deployment_file import load_deployment
from job_engine.deployment_sections import unused_settings
from job_engine.errors import WorkerDied, plain_error
from job_engine.job.checkpoint.checkpoint_record import read_record, refuse_other_engine, write_record
from job_engine.job.driver import in_words_of_driver
from job_engine.job.preflight import checked, note_release, other_release, plan_of
from job_engine.job.stages.prepare import prepare
from job_engine.job.upkeep.opened_checkpoint import open_checkpoint
from job_engine.setting_keys import Engine
from querylang.errors import InputError
from tests.project.repository import ROOT
from tests.support.sensors import project


def with_text(path: Path, text: str) -> Path:
    path.write_text(path.read_text() + text)
    return path


def mistakes(path: Path, engine: Engine | None = None) -> list[str]:
    with pytest.raises(InputError) as caught:
        load_deployment(path, engine=engine)
    return str(caught.value).replace(f"{path}:", "").split("\n")


def test_a_file_without_an_engine_is_for_spark(tmp_path: Path) -> None:
    assert load_deployment(project(tmp_path)).engine is Engine.SPARK


def test_a_file_names_its_engine_and_a_start_another_one(tmp_path: Path) -> None:
    path = with_text(project(tmp_path), "engine: local\n")
    assert load_deployment(path).engine is Engine.LOCAL
    assert load_deployment(path, engine=Engine.SPARK).engine is Engine.SPARK


def test_where_neither_says_it_a_variable_of_the_environment_does(tmp_path: Path) -> None:
    path = project(tmp_path)
    variable = {"ENSUE_ENGINE": "local"}
    assert load_deployment(path, variable).engine is Engine.LOCAL
    assert load_deployment(path, {"ENSUE_ENGINE": ""}).engine is Engine.SPARK
    assert load_deployment(path, variable, Engine.SPARK).engine is Engine.SPARK
    assert load_deployment(with_text(path, "engine: spark\n"), variable).engine is Engine.SPARK


def test_an_unknown_engine_of_the_environment_has_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_deployment(project(tmp_path), {"ENSUE_ENGINE": "lcal"})
    told = "the environment variable ENSUE_ENGINE must be spark or local, not 'lcal'; did you mean 'local'?"
    assert str(caught.value) == told


def test_an_unknown_engine_has_a_hint(tmp_path: Path) -> None:
    path = with_text(project(tmp_path), "engine: lcal\n")
    (line,) = mistakes(path)
    assert line.endswith(": 'engine' must be spark or local, not 'lcal'; did you mean 'local'?")


def test_an_unknown_engine_of_a_program_has_a_hint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^`engine` must be spark or local, not 'lcal'; did you mean 'local'\?$"):
        ensue.deploy(project(tmp_path), engine="lcal")


def test_a_cluster_is_refused_with_its_line(tmp_path: Path) -> None:
    path = with_text(project(tmp_path), "engine: local\nspark:\n  master: spark://host:7077\n")
    line = len(path.read_text().splitlines())
    (mistake,) = mistakes(path)
    assert mistake == (
        f"{line}: 'spark://host:7077' is a cluster, and `engine: local` runs on this machine alone; leave the master"
        " out, or choose `engine: spark`"
    )
    path.write_text(
        path.read_text().replace("  master: spark:", "  conf: {spark.master: 'spark:").replace("7077", "7077'}")
    )
    assert mistakes(path)[0].startswith(f"{line}: 'spark://host:7077' is a cluster")


def test_a_file_for_a_cluster_is_tried_on_one_machine(tmp_path: Path) -> None:
    path = with_text(project(tmp_path), "spark:\n  master: spark://host:7077\n")
    deployment = load_deployment(path, engine=Engine.LOCAL)
    (line,) = unused_settings(path, deployment.spark, deployment.engine)
    assert line == f"{path}: what `spark` sets is for `engine: spark`; `engine: local` does not use it"
    assert not list(unused_settings(path, deployment.spark, Engine.SPARK))
    assert not list(unused_settings(path, {}, Engine.LOCAL))


def test_a_table_of_a_catalog_is_refused_with_its_line_until_a_checkpoint_knows_its_place(tmp_path: Path) -> None:
    path = project(tmp_path)
    text = path.read_text().replace(
        "output:    {format: parquet, path: out/output}", "output: {format: delta, table: lake.a}"
    )
    path.write_text(text)
    line = next(number for number, item in enumerate(text.splitlines(), 1) if "lake.a" in item)
    assert load_deployment(path).engine is Engine.SPARK
    (mistake,) = mistakes(path, Engine.LOCAL)
    assert mistake == (
        f"{line}: the table 'lake.a' is found by the catalog of Spark, which `engine: local` does not have; name the"
        " folder of the table as 'path'"
    )
    (tmp_path / "state/ensue").mkdir(parents=True)
    (tmp_path / "state/ensue/tables.json").write_text(json.dumps({"lake.a": str(tmp_path / "a")}))
    assert load_deployment(path, engine=Engine.LOCAL).sinks["output"].place == tmp_path / "a"


def started(path: Path, engine: Engine) -> Path:
    ready = checked(load_deployment(path, engine=engine))
    write_record(ready.deployment.checkpoint, ready.record)
    return ready.deployment.checkpoint / "ensue.json"


def test_a_checkpoint_of_spark_is_written_as_before(tmp_path: Path) -> None:
    record = json.loads(started(project(tmp_path), Engine.SPARK).read_text())
    assert record["version"] == 4
    assert "engine" not in record


def test_a_checkpoint_of_the_local_engine_is_of_a_version_that_earlier_releases_refuse(tmp_path: Path) -> None:
    file = started(project(tmp_path), Engine.LOCAL)
    record = json.loads(file.read_text())
    assert (record["version"], record["engine"]) == (5, "local")
    kept = read_record(file.parent)
    assert kept is not None
    assert kept.engine is Engine.LOCAL
    write_record(file.parent, replace(kept, engine=Engine.SPARK))
    assert json.loads(file.read_text())["version"] == 4


@pytest.mark.parametrize("own", Engine)
def test_a_checkpoint_of_the_other_engine_is_refused_in_one_line(tmp_path: Path, own: Engine) -> None:
    path = project(tmp_path)
    (other,) = set(Engine) - {own}
    started(path, own)
    refuse_other_engine(load_deployment(path, engine=own))
    with pytest.raises(InputError) as caught:
        prepare(path, engine=other)
    assert str(caught.value) == (
        f"{tmp_path / 'state'}: this checkpoint is of `engine: {own}`, and this start of `engine: {other}`. Continue it"
        f" with `--engine {own}`, or move it: `ensue move {path} --to {other}`; nothing was changed"
    )


def test_beside_a_start_a_checkpoint_says_of_which_engine_it_is(tmp_path: Path) -> None:
    path = project(tmp_path)
    started(path, Engine.LOCAL)
    assert open_checkpoint(load_deployment(path)).deployment.engine is Engine.LOCAL
    with pytest.raises(InputError, match="this checkpoint is of `engine: local`, and this start of `engine: spark`"):
        plan_of(path)  # it says what a start would do


@pytest.mark.parametrize("engine", Engine)
def test_a_start_on_an_own_checkpoint_speaks_of_no_other_release(tmp_path: Path, engine: Engine) -> None:
    path = project(tmp_path)
    started(path, engine)
    deployment = load_deployment(path, engine=engine)
    note_release(deployment.checkpoint)
    assert list(other_release(deployment)) == []


def test_what_only_spark_meets_is_put_in_words_by_spark_alone(tmp_path: Path) -> None:
    text = "Lost task 0.0 in stage 30.0: Python worker exited unexpectedly (crashed). Consider setting"
    deployment = load_deployment(project(tmp_path))
    with pytest.raises(WorkerDied, match="a Python process of Spark ended"), in_words_of_driver(deployment):
        raise RuntimeError(text)
    assert not isinstance(plain_error(RuntimeError(text)), InputError)


@pytest.mark.parametrize("name", ["errors", "job/driver"])
def test_no_text_of_all_engines_names_one(name: str) -> None:
    found = re.findall(r"(?i)\bjava\b|py4j|\bjvm\b", (ROOT / f"job_engine/{name}.py").read_text())
    assert found == []


def test_without_pyspark_a_start_names_both_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(InputError) as caught:
        prepare(project(tmp_path))
    assert str(caught.value) == (
        "PySpark is not installed: `pip install 'ensue[spark]'`, or run the job on this machine alone: `--engine local`"
    )
    assert not (tmp_path / "state").exists()


def usual(path: Path, *, sinks: str = "", engine: Engine = Engine.LOCAL) -> tuple[int, int]:
    """Buckets and trigger of a deployment that says neither."""
    text = re.sub(r"buckets: \d+\n|trigger: \w+\n", "", path.read_text())
    if sinks:
        text = re.sub(r"sinks:\n(  .*\n)+", f"sinks:\n{sinks}\n", text)
    path.write_text(text)
    deployment = load_deployment(path, engine=engine)
    return deployment.buckets, deployment.trigger


def test_a_local_job_has_a_bucket_for_each_core_unless_its_checkpoint_has_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project(tmp_path, buckets=3)
    monkeypatch.setenv("ENSUE_THREADS", "5")
    assert load_deployment(path, engine=Engine.LOCAL).buckets == 3
    assert usual(path) == (5, 1_000_000)
    assert usual(path, engine=Engine.SPARK) == (16, 1_000_000)
    started(path, Engine.LOCAL)
    monkeypatch.setenv("ENSUE_THREADS", "2")
    assert usual(path)[0] == 5
    monkeypatch.setenv("ENSUE_THREADS", "64")
    (tmp_path / "state/ensue.json").unlink()
    assert usual(path)[0] == 16


def test_a_local_job_that_writes_messages_alone_waits_for_no_trigger(tmp_path: Path) -> None:
    topic = '  output: {format: kafka, topic: t, options: {kafka.bootstrap.servers: "h:1"}}'
    assert usual(project(tmp_path), sinks=topic)[1] == 0
    assert usual(project(tmp_path), sinks=topic, engine=Engine.SPARK)[1] == 1_000_000
