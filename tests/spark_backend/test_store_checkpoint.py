"""A checkpoint in a store: the driver's files and the job's, after a run that was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from job_engine.setting_keys import Engine
from tests.support.killed_runs import kill_when, start
from tests.support.maven import ROOT, fetched_jars
from tests.support.sensors import expected
from tests.support.store_project import results, store_project
from tests.support.stores import StoreServer
from tests.support.waiting import LONGEST

POM = ROOT / "tests" / "support" / "hadoop_aws" / "pom.xml"


def of_engine(engine: Engine) -> str:
    """What a deployment file needs for it; only Spark's classes of Hadoop are fetched."""
    if engine is Engine.LOCAL:
        return "engine: local\n"
    jars = sorted(map(str, fetched_jars(POM, ROOT / "build" / "hadoop-aws" / "jars").iterdir()))
    return f"engine: spark\nspark: {{jars: [{', '.join(jars)}]}}\n"


@pytest.mark.parametrize("engine", Engine)
def test_a_killed_run_is_continued_from_its_checkpoint_in_the_store(
    tmp_path: Path, store: StoreServer, engine: Engine
) -> None:
    path = store_project(tmp_path, store, files=3)
    text = path.read_text().replace("checkpoint: state", "checkpoint: s3://bucket/state")
    path.write_text(text + of_engine(engine))
    killed = start(path)
    kill_when(killed, lambda: any("-00000001-" in key for key in store.keys("out/")))
    last = start(path, "-m", "ensue.cli", "run", "--once", "--flush")
    _, errors = last.communicate(timeout=LONGEST)
    assert last.returncode == 0, errors
    assert results(tmp_path, store) == expected(tmp_path)
    keys = set(store.keys("state/"))
    assert {"state/ensue.json", "state/offsets/0"} < keys
    assert any(key.startswith("state/commits/") for key in keys)  # the local engine does not commit each micro-batch
    assert not (tmp_path / "state").exists()
