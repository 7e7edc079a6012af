"""A job whose disk is full stops with one line, and continues exactly once there is room."""

from __future__ import annotations

from pathlib import Path

import pytest

from job_engine.job.job import run
from job_engine.setting_keys import Engine
from querylang.errors import InputError
from tests.support.sensors import add_files, expected, project, streamed, table
from tests.support.small_disk import enlarge, small_disk


@pytest.mark.parametrize(
    ("place", "kilobytes"), [("out/matches", 12), ("state", 48), ("state/ensue", 12)], ids=["sink", "state", "progress"]
)
def test_a_full_disk_stops_a_job_that_then_continues(
    engine: Engine, tmp_path: Path, place: str, kilobytes: int
) -> None:
    path = project(tmp_path, buckets=2)
    add_files(tmp_path, table(1000), 3)
    with small_disk(tmp_path / place, kilobytes):
        with pytest.raises(InputError, match=r"^[^\n]*: the disk is full\. Make room and run the job again[^\n]*$"):
            run(path, once=True, flush=True)
        enlarge(tmp_path / place)
        run(path, once=True, flush=True)
        assert streamed(tmp_path) == expected(tmp_path)
