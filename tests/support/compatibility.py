"""One version of PySpark at work: each case is a small real job, compared with the embedded engine.

Run as a program by `tools/compatibility.py`, with the Python of that version. Prints a line of JSON per case.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

import ensue
from tests.support.sensors import QUERY, add_files, expected, project, streamed, table

RUN = [sys.executable, "-m", "ensue", "run"]


def matched(folder: Path) -> None:
    """`ensue.match` of a DataFrame."""
    rows = readings(folder)
    found = ensue.match(session().createDataFrame(rows), QUERY)
    assert sorted(row["match_id"] for row in found.select("match_id").collect()) == ids(rows)


def streamed_with_restart(folder: Path) -> None:
    """`ensue.stream`, stopped after each of two files."""
    rows = readings(folder)
    schema = session().createDataFrame(rows).schema
    (folder / "in").mkdir()
    for number, part in enumerate((rows[:400], rows[400:])):
        session().createDataFrame(part, schema).coalesce(1).write.mode("append").parquet(str(folder / "in"))
        matches = ensue.stream(session().readStream.schema(schema).parquet(str(folder / "in")), QUERY)
        writer = matches.writeStream.format("parquet").option("checkpointLocation", str(folder / "state"))
        writer.trigger(availableNow=True).start(str(folder / "out")).awaitTermination()
        assert number == 0 or len(pd.read_parquet(folder / "out")) > 100
    found = pd.read_parquet(folder / "out")["match_id"]
    assert found.is_unique
    assert set(found) <= set(ids(rows))


def ran_once(folder: Path) -> None:
    """`ensue run --once`, in two runs."""
    path = project(folder)
    add_files(folder, table(600), 2)
    command(path, "--once")
    add_files(folder, table(1200)[600:], 2, first=2)
    command(path, "--once", "--flush")
    assert streamed(folder) == expected(folder)


def killed(folder: Path) -> None:
    """A job that is killed in mid-batch and run again."""
    path = project(folder)
    add_files(folder, table(1200), 4)
    process = subprocess.Popen([*RUN, str(path), "--once"], stderr=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + 120
    while not (folder / "state" / "offsets" / "2").exists():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.01)
    subprocess.run(["pkill", "-KILL", "--session", str(process.pid)], check=False)
    process.wait()
    command(path, "--once", "--flush")
    assert streamed(folder) == expected(folder)


def ran_until_stopped(folder: Path) -> None:
    """`ensue.deploy`: a job that is stopped and started again."""
    path = project(folder)
    add_files(folder, table(300), 1)
    for count in (300, 600):
        handle = ensue.deploy(path, session())
        until = time.monotonic() + 120
        while received(handle) < count:
            handle.await_termination(0.2)
            assert time.monotonic() < until
        handle.stop()
        add_files(folder, table(600)[300:], 1, first=1)


def verified(folder: Path) -> None:
    """`ensue verify`."""
    (folder / "q.query").write_text(QUERY)
    readings(folder).to_csv(folder / "rows.csv", index=False)
    done = subprocess.run(
        [sys.executable, "-m", "ensue", "verify", str(folder / "q.query"), str(folder / "rows.csv"), "--batches", "2"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-300:]


CASES: dict[str, Callable[[Path], None]] = {
    "match": matched,
    "stream, restarted": streamed_with_restart,
    "verify": verified,
    "run --once": ran_once,
    "killed, run again": killed,
    "deploy, stop, again": ran_until_stopped,
}


def session() -> object:
    from spark_backend.session import get_session

    return get_session("compatibility", cores=2)


def readings(folder: Path) -> pd.DataFrame:
    """Rows with coordinates, so that identities of matches are those of a replay."""
    return table(800).assign(source="table", partition="0", offset=range(800))


def ids(rows: pd.DataFrame) -> list[str]:
    return sorted(ensue.replay(QUERY, rows).matches["match_id"])


def received(handle: object) -> int:
    counts = handle.status().ledger.items()
    return sum(count for (query, _, what), count in counts if (query, what) == ("Rise", "received"))


def command(path: Path, *options: str) -> None:
    done = subprocess.run([*RUN, str(path), *options], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ensue.InputError(done.stderr.strip().splitlines()[-1])


def outcome(case: Callable[[Path], None]) -> str:
    """`yes`, or one line that says what was wrong."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            case(Path(folder))
        except ensue.EnsueError as error:
            return str(error).splitlines()[0]
        except Exception as error:  # noqa: BLE001 # it is what the table is to say
            return f"{type(error).__name__}: {str(error).strip()[:300]}"
    return "yes"


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        began = time.monotonic()
        line = json.dumps([name, outcome(CASES[name]), round(time.monotonic() - began, 1)])
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
