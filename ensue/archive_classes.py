"""Make the archive of Spark's classes, by a small job: later jobs start sooner.

`python -m ensue.archive_classes` does so with the lowest priority.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ensue.background import give_way
from runtime.compiling.compiled import VARIABLE, CompileSetting
from runtime.temporary import temporary_folder

QUERY = """
event A { float v; }
query Pairs { inputs { A() within 30 seconds; } find A as a -> A as b where b.v > a.v }
"""

DEPLOYMENT = """\
name: classes
queries: [classes.query]
sources:
  events: {format: json, path: events, options: {maxFilesPerTrigger: 1}}
sinks:
  matches: {format: parquet, path: matches}
buckets: 2
checkpoint: state
"""


def main() -> None:
    """Make it, quietly."""
    give_way()
    os.environ[VARIABLE] = CompileSetting.OFF  # this job's kernels are not worth compiling
    archive_classes()


def archive_classes() -> Path | None:
    """Make the archive anew; gives its file, None = there is no Java. Raises OSError."""
    from spark_backend.launch.session_settings import archive_file, making

    file = archive_file()
    if file is not None:
        with making(file):
            _run_job()
    return file


def _run_job() -> None:
    """Run a job of three micro-batches in this process, and wait for the end of its JVM."""
    from pyspark import SparkContext

    from job_engine.job.job import run

    with temporary_folder() as folder:
        (folder / "classes.query").write_text(QUERY, encoding="utf-8")
        (folder / "classes.yaml").write_text(DEPLOYMENT, encoding="utf-8")
        (folder / "events").mkdir()
        for second in range(3):
            row = {"event": "A", "at": float(second), "ts": float(second), "v": float(second)}
            (folder / "events" / f"{second}.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
        run(folder / "classes.yaml", once=True)
        context = SparkContext._active_spark_context  # noqa: SLF001 # nothing public gives the JVM's process
        gateway = SparkContext._gateway  # noqa: SLF001 # as above
        if context is not None and gateway is not None:
            process = gateway.proc
            context.stop()
            process.stdin.close()
            code = process.wait()
            if code != 0:
                raise OSError(f"the JVM that wrote the archive failed with code {code}")


if __name__ == "__main__":
    main()
