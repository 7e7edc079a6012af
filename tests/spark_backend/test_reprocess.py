"""Mended records that are put back into their source; needs no Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from job_engine.deployment_file import load_deployment
from job_engine.job.checkpoint.checkpoint_record import write_record
from job_engine.job.preflight import checked
from job_engine.job.upkeep.results import reprocess
from querylang.errors import InputError
from tests.support.old_checkpoint import unpacked
from tests.support.readings_job import write_job

SAMPLE = Path(__file__).parents[1] / "snapshots" / "checkpoint-3.tar.gz"
ROW = {
    "query": "Rise",
    "reason": "late",
    "event": "A",
    "source": "2.csv",
    "partition": 0,
    "offset": 1,
    "arrival": "1970-01-01T00:00:12.000000Z",
    "fields": {"k:string": "a", "v": 5.0, "ts:float": 11.0},
}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    unpacked(SAMPLE, tmp_path)
    return tmp_path / "old.yaml"


def mended(job: Path, *rows: object) -> Path:
    folder = job.parent / "mended"
    folder.mkdir(exist_ok=True)
    (folder / "1.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_record_comes_back_once_with_its_arrival_and_only_once(job: Path) -> None:
    folder = mended(job, ROW, ROW | {"query": "Silence"})
    done = reprocess(job, folder)
    assert (done.records, done.twice) == (1, 0)
    written = Path(done.files["s"])
    assert written.parent == job.parent / "in"
    assert written.read_text() == "at,event,k,v,ts\n1970-01-01T00:00:12.000000Z,A,a,5.0,11.0\n"
    with pytest.raises(InputError, match="have been put back before"):
        reprocess(job, folder)


def test_a_record_that_a_query_has_used_is_put_back_only_if_that_is_wanted(job: Path) -> None:
    before = sorted((job.parent / "in").iterdir())
    with pytest.raises(InputError, match="Silence would use them a second time"):
        reprocess(job, mended(job, ROW))
    assert sorted((job.parent / "in").iterdir()) == before
    assert reprocess(job, mended(job, ROW), again=True).twice == 1
    assert reprocess(job, mended(job, ROW | {"query": None, "reason": "malformed", "offset": 2})).twice == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"event": "B"}, "'B' is not an event type; the queries know A"),
        ({"event": None}, "has no event type; the queries know A"),
        ({"arrival": "soon"}, "the arrival 'soon' is not"),
        ({"fields": {"w": 1}}, "A has no field 'w'"),
        ({"fields": None}, "has no fields; write them as"),
        ({"source": "route:Rise"}, "'Rise' has routed it, so no source has it: leave it out"),
    ],
)
def test_what_is_not_mended_is_refused_with_its_line(job: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        reprocess(job, mended(job, ROW | {"query": ""} | change))
    assert "1.json:1: " in str(refused.value)


def test_rows_of_one_record_have_to_be_mended_alike(job: Path) -> None:
    other = ROW | {"query": "Silence", "fields": {"k": "b"}}
    with pytest.raises(InputError, match=r"1.json:2: the record of .*1.json:1 again, with another content"):
        reprocess(job, mended(job, ROW, other))


def test_a_folder_without_rows_is_refused(job: Path) -> None:
    with pytest.raises(InputError, match="there are no rows of the sink 'discarded'"):
        reprocess(job, mended(job))


def test_a_malformed_record_is_of_the_type_that_its_source_has(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    text = "event Reading { string k; float v; }\nquery Q { inputs { Reading() key k retain 1; } find Reading:a }\n"
    file = write_job(tmp_path, text)
    ready = checked(load_deployment(file))
    ready.deployment.checkpoint.mkdir()
    write_record(ready.deployment.checkpoint, ready.record)
    row = ROW | {"query": "", "reason": "malformed", "event": None, "fields": {"k:string": "a", "v:float": 5.0}}
    done = reprocess(file, mended(file, row))
    assert Path(done.files["readings"]).read_text() == "at,k,v\n1970-01-01T00:00:12.000000Z,a,5.0\n"
