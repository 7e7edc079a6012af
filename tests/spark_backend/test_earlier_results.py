"""A checkpoint that is older than its sinks, or is not theirs, is refused before it doubles results."""

from __future__ import annotations

from pathlib import Path

import pytest

from job_engine.job.preflight import refuse_other_results
from querylang.errors import InputError
from tests.support.sinks import sink_of

OURS, OTHERS = "0123456789ab", "ba9876543210"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint whose newest micro-batch in the log of offsets is 12."""
    (tmp_path / "state" / "offsets").mkdir(parents=True)
    for name in ("9", "12", ".12.crc", "notes"):
        (tmp_path / "state" / "offsets" / name).write_text("")
    return tmp_path / "state"


def write(checkpoint: Path, identity: str, batch: int, folder: str = "matches/Q/eu") -> None:
    path = checkpoint.parent / folder
    path.mkdir(parents=True, exist_ok=True)
    (path / f"{identity}-{batch:08d}-00003.parquet").write_text("")


def refusal(checkpoint: Path, *, shared: bool = False, numbers: tuple[int, ...] = (11, 12)) -> str | None:
    sinks = {"matches": sink_of("parquet", checkpoint.parent / "matches", shared=shared)}
    try:
        refuse_other_results(checkpoint, OURS, sinks, {"ledger": numbers})
    except InputError as error:
        return str(error).replace(str(checkpoint.parent), "")
    return None


def test_results_up_to_the_interrupted_micro_batch_are_fine(checkpoint: Path) -> None:
    for batch in (0, 11, 12):
        write(checkpoint, OURS, batch)
    (checkpoint.parent / "matches" / "notes.parquet").write_text("")
    assert refusal(checkpoint) is None


def test_a_later_result_means_that_the_checkpoint_is_an_older_copy(checkpoint: Path) -> None:
    write(checkpoint, OURS, 13)
    message = refusal(checkpoint, shared=True)
    assert message is not None
    assert message.startswith(
        "/state: has reached micro-batch 12, but the sink 'matches' holds results of micro-batch 13"
    )
    assert f"remove later files from the sinks ('{OURS}-NUMBER-...')" in message


def test_counts_of_a_later_micro_batch_mean_the_same(checkpoint: Path) -> None:
    message = refusal(checkpoint, numbers=(12, 14))
    assert message is not None
    assert "its folder 'ledger' has counts of micro-batch 14" in message


def test_results_of_another_checkpoint_are_refused_unless_the_sink_is_shared(checkpoint: Path) -> None:
    write(checkpoint, OTHERS, 3)
    message = refusal(checkpoint)
    assert message is not None
    assert message.startswith("the sink 'matches' holds results of another checkpoint, such as /matches/Q/eu/")
    assert refusal(checkpoint, shared=True) is None


def test_a_checkpoint_whose_offsets_are_gone_is_refused(checkpoint: Path) -> None:
    for path in (checkpoint / "offsets").iterdir():
        path.unlink()
    (checkpoint / "offsets").rmdir()
    message = refusal(checkpoint)
    assert message is not None
    assert message.startswith("/state: has processed nothing yet, but its folder 'ledger' has counts of micro-batch 12")
