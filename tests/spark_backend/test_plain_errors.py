"""What ends a job is reported in one line, without values of the environment."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from ensue.commands.findings import check_files
from job_engine.deployment_file import load_deployment
from job_engine.errors import WorkerDied, in_plain_words
from job_engine.job.preflight import checked, refuse_damaged_logs
from job_engine.setting_keys import Engine
from job_engine.sinks.kinds import FORMATS, MicroBatch, TaskWriter, writing
from job_engine.sinks.topics.settings import TopicSink
from querylang.errors import FileErrors, InputError
from spark_backend.plain_errors import plain_error
from tests.support.sensors import project
from tests.support.sinks import sink_of
from tests.support.small_disk import small_disk

CONTINUES = ": the disk is full. Make room and run the job again: it continues where it stopped"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("java.io.IOException: No space left on device\n\tat java.base", "a disk that the job writes to"),
        ("OSError: [Errno 28] No space left on device", "a disk that the job writes to"),
        ("OSError: [Errno 28] No space left on device: '/state/ensue/a.json'\n...", "/state/ensue/a.json"),
        ("OSError: [Errno 122] Disk quota exceeded: '/state/a'", "/state/a"),
    ],
)
def test_a_full_disk_is_reported_in_one_line(text: str, place: str) -> None:
    assert str(plain_error(RuntimeError(text))) == place + CONTINUES


def test_our_own_message_comes_before_what_caused_it() -> None:
    text = (
        "OSError: [Errno 28] No space left on device\nThe above\nquerylang.errors.InputError: /out: the disk is full\n"
    )
    assert str(plain_error(RuntimeError(text))) == "/out: the disk is full"


def test_a_worker_that_did_not_start_in_time_says_so() -> None:
    text = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"
    error = plain_error(RuntimeError(text))
    assert isinstance(error, InputError)
    assert str(error).startswith("a Python worker of Spark did not start in time: the machine is overloaded. Run")


CRASHED = "SparkException: Python worker exited unexpectedly (crashed)"


@pytest.mark.parametrize(
    ("text", "how"),
    [
        (f"{CRASHED}: Fatal Python error: Segmentation fault\n\nThread", "with signal 11 (Segmentation fault)"),
        (f"{CRASHED} - Fatal Python error: Aborted\n", "with signal 6 (Aborted)"),
        (CRASHED, "without a word, as one does that is killed"),
        (f"{CRASHED}, exit code 137", "with exit code 137: the system killed it, as it does for memory"),
    ],
)
def test_a_worker_that_ended_says_how_and_memory_only_where_it_was(text: str, how: str) -> None:
    error = plain_error(RuntimeError(text))
    assert isinstance(error, WorkerDied)
    assert str(error) == f"a Python process of Spark ended {how}"


def test_a_worker_without_memory_says_so() -> None:
    error = plain_error(RuntimeError("Traceback ...\npyarrow.lib.ArrowMemoryError: malloc of size 9 failed\n"))
    assert str(error) == "a Python process of Spark had too little memory"


def test_damaged_state_of_spark_is_reported_in_one_line() -> None:
    text = (
        "o1.collectToPython.\n: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error"
        " occurred during loading state.  SQLSTATE: 58030\n\tat org.apache.spark\n"
        "Caused by: org.apache.spark.SparkException: Job aborted\n\tat org.apache.spark\n"
        "Caused by: java.io.IOException: Stream is corrupted\n\tat net.jpountz\n"
    )
    error = plain_error(RuntimeError(text))
    assert isinstance(error, InputError)
    assert str(error).startswith("the state in the checkpoint cannot be read: Stream is corrupted. Restore the whole")


@pytest.mark.parametrize("text", ["", "v1", 'v1\n{"a', "v1\n" + "[" * 100_000, "v1\n\xff"])
@pytest.mark.parametrize("file", ["metadata", "offsets/9", "offsets/10", "commits/10"])
@pytest.mark.parametrize("engine", Engine)
def test_damaged_logs_are_refused_by_name(tmp_path: Path, file: str, text: str, engine: Engine) -> None:
    entries = ("metadata", "offsets/1", "offsets/9", "offsets/10", "commits/1", "commits/9", "commits/10")
    for name in entries:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text('{"id": 1}' if name == "metadata" else 'v1\n{"a": 1}\n-')
    refuse_damaged_logs(tmp_path, engine)
    (tmp_path / "offsets/1").write_text("")  # a restart does not read it
    refuse_damaged_logs(tmp_path, engine)
    (tmp_path / file).write_text(text, encoding="latin-1")
    with pytest.raises(InputError) as raised:
        refuse_damaged_logs(tmp_path, engine)
    assert str(raised.value).startswith(f"{tmp_path / file}: is damaged: ")
    # the local engine has no states of the micro-batch before, which would have to be repeated
    may_be_deleted = file.startswith("commits") and engine is Engine.SPARK
    assert ("delete it, and its micro-batch is repeated" in str(raised.value)) is may_be_deleted


def test_values_of_the_environment_are_replaced_by_their_names() -> None:
    environment = {"TOKEN": "abc-123", "LONG": "abc-123-456", "SHORT": "a"}
    with pytest.raises(InputError) as one, in_plain_words(environment):
        raise InputError("/abc-123-456/x and abc-123, a")
    assert str(one.value) == "/${LONG}/x and ${TOKEN}, a"
    with pytest.raises(FileErrors) as two, in_plain_words(environment):
        raise FileErrors("/abc-123/d.yaml", [(3, "not abc-123")])
    assert str(two.value) == "/${TOKEN}/d.yaml:3: not ${TOKEN}"
    with pytest.raises(InputError) as three, in_plain_words(environment, plain_error):
        raise RuntimeError("File ...\nInputError: password abc-123 is wrong\n")
    assert str(three.value) == "password ${TOKEN} is wrong"


def test_no_value_of_the_environment_is_in_messages_or_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project(tmp_path)
    (tmp_path / "s3cret").write_text("")
    text = path.read_text().replace("path: out/matches", "path: '${PLACE}/matches'")
    path.write_text(text + "parameters: {Rise: {n: '${PLACE}'}}\n")
    monkeypatch.setenv("PLACE", str(tmp_path / "s3cret"))
    (error,) = check_files([path]).errors
    assert "s3cret" not in str(error)
    path.write_text(text)
    deployment = load_deployment(path)
    match = r"^\$\{PLACE\}/matches: cannot be written: '.*' is not a folder$"
    with pytest.raises(InputError, match=match) as caught, in_plain_words(deployment.environment):
        checked(deployment)
    assert str(tmp_path / "s3cret") not in str(caught.value)


def fill(writer: TaskWriter, table: pa.Table) -> None:
    for _ in range(3):
        writer.write("Q", table)
    writer.finish()


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_sink_on_a_full_disk_leaves_nothing_and_says_so(tmp_path: Path, name: str) -> None:
    random.seed(1)
    table = pa.table({"text": [random.randbytes(2000).hex() for _ in range(200)]})
    with small_disk(tmp_path / "out", 256):
        own = TopicSink("matches", "topic", drafts=str(tmp_path / "out")) if name == "kafka" else None
        sink = sink_of(name, tmp_path / "out", own)
        writer = writing(sink).open(sink, MicroBatch("0123456789ab", 1), 0, 0)
        with pytest.raises(InputError, match=r"/out(/Q)?: the disk is full\. Make room") as caught:
            fill(writer, table)
        writer.abort()
        assert "\n" not in str(caught.value)
        assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []


_END = {"_stackTrace": "Caused by: java.io.EOFException\n\tat java.base/java.io.DataInputStream.readInt"}
_Captured = type("_Captured", (RuntimeError,), _END)
"""As Spark's error, which says what happened in Java in an attribute."""


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Lost task 0.0 in stage 30.0: Python worker exited unexpectedly (crashed). Consider setting"),
        _Captured("[STREAM_FAILED] Query [id = 1] terminated with exception:  SQLSTATE: XXKST"),
    ],
    ids=["task", "planner"],
)
def test_python_that_was_killed_is_no_failure_of_ensue(error: Exception) -> None:
    assert str(plain_error(error)) == "a Python process of Spark ended without a word, as one does that is killed"


def test_nothing_is_said_of_an_error_that_is_not_known() -> None:
    error = RuntimeError("[STREAM_FAILED] Query [id = 1] terminated with exception:  SQLSTATE: XXKST")
    assert plain_error(error) is error
