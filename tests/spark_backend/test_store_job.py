"""A job whose sources and sinks are in a store: killed, and with a store that goes away."""

from __future__ import annotations

from pathlib import Path

from job_engine.setting_keys import Engine
from tests.support.killed_runs import kill_when, start
from tests.support.sensors import expected
from tests.support.store_project import results, store_project
from tests.support.stores import StoreServer, run_while_the_store_goes_away
from tests.support.waiting import LONGEST


def test_a_run_that_is_killed_and_one_whose_store_goes_away_lose_and_double_nothing(
    tmp_path: Path, store: StoreServer, engine_of_processes: Engine
) -> None:
    path = store_project(tmp_path, store)
    killed = start(path)
    kill_when(killed, lambda: any("-00000001-" in key for key in store.keys("out/")))
    store.stop()
    path.write_text("retry: 1s\n" + path.read_text())
    left = start(path, "-m", "ensue.cli", "run", "--once")
    _, errors = left.communicate(timeout=LONGEST)
    assert left.returncode == 4
    assert "the store cannot be reached for 1 s" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    store.start()
    path.write_text(path.read_text().replace("retry: 1s", "retry: 10 minutes"))
    run_while_the_store_goes_away(path, store, behind="batch 2")
    assert results(tmp_path, store) == expected(tmp_path)
    assert not [key for key in store.keys("out/") if key.endswith(".draft")]
