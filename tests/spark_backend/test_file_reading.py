"""What a worker reads, without Spark: exactly what the manifest says, and nothing that stops a job needlessly."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from job_engine.operator.step import run_step
from job_engine.sources.folder.listing import FileStamp
from job_engine.sources.folder.pieces import FolderWork, TakenFile
from job_engine.sources.folder.settings import ListedSource
from job_engine.sources.listing.manifests import SOURCES, Task, sources_to_text
from job_engine.sources.reading import Reading, plain_csv
from job_engine.sources.task_reading import read_task
from job_engine.wire.packed_rows import HOME
from job_engine.wire.program import Program
from job_engine.wire.tagged_rows import Tag
from querylang.errors import InputError
from runtime.file_forms import USUAL_CSV, CsvForm, read_csv_form
from runtime.reading.column_names import ColumnNames
from runtime.reading.tables import read_arrivals
from tests.spark_backend.samples import PLAN
from tests.support.buckets import ledger_of, rows_of
from tests.support.manifests import of_files

ROWS = "at,event,k,v,ts\n1.0,A,x,1.0,1.0\n2.0,B,x,2.0,2.0\n"


@dataclass(slots=True)
class Folder:
    """A source's folder and the files of one micro-batch."""

    path: Path
    source: ListedSource = field(default_factory=lambda: ListedSource("a", "", (".csv",)))
    files: tuple[TakenFile, ...] = ()
    csv: CsvForm = USUAL_CSV
    earlier: tuple[TakenFile, ...] = ()

    def add(self, name: str, text: str = ROWS) -> None:
        (self.path / name).write_text(text)
        stamp = FileStamp.of((self.path / name).stat())
        self.files = (*self.files, TakenFile("a", len(self.files) + 1, name, stamp))

    def read(
        self, *, is_repeated: bool = False, is_new: bool = False, accept_loss: bool = False
    ) -> dict[Tag, list[dict[str, object]]]:
        """The rows of bucket HOME after a step, by kind."""
        program = Program.of(PLAN, buckets=1)
        options = {
            "program": program.to_text(),
            SOURCES: sources_to_text(of_files(replace(self.source, folder=str(self.path)))),
            "readings": json.dumps({"a": Reading(name="a", prefix="a/", csv=plain_csv(self.csv)).to_text()}),
            "accept_loss": str(accept_loss).lower(),
        }
        work = FolderWork(self.files, (self.earlier or self.files) if is_new else None)
        found = read_task(options, Task({"a": work}, is_repeated=is_repeated).to_text())
        packed = [row["data"] for batch in found for row in batch.to_pylist()]
        tagged = list(run_step(program, HOME, None, packed, 0).rows)
        return {tag: rows_of(tagged, tag) for tag in Tag if tag is not Tag.MATCH}


def counts(rows: dict[Tag, list[dict[str, object]]]) -> dict[object, object]:
    return {key[1:]: count for key, count in ledger_of(rows[Tag.LEDGER]).items()}  # type: ignore[arg-type,misc]


def test_records_are_named_by_their_source_and_file(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.add("1.csv")
    assert counts(folder.read())["a/1.csv", "received"] == 2


def test_a_file_that_is_not_a_table_is_one_discarded_row_and_an_error(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.add("1.csv", "nonsense\n1\n")
    folder.add("2.csv")
    rows = folder.read()
    (discarded,) = rows[Tag.DISCARDED]
    (error,) = rows[Tag.ERROR]
    assert (discarded["reason"], discarded["source"]) == ("malformed_file", "a/1.csv")
    assert str(error["text"]) == f"the file 'a/1.csv' is discarded: {discarded['text']}"
    assert str(tmp_path) not in str(discarded["text"])
    found = counts(rows)
    assert (found["a/1.csv", "received"], found["a/1.csv", "malformed_file"]) == (1, 1)
    assert found["a/2.csv", "received"] == 2
    assert [(row["cause"], row["source"], row["example"]) for row in rows[Tag.REPORT]] == [
        ("malformed_file", "a", f"1.csv: {discarded['text']}")
    ]


def test_a_file_of_no_bytes_is_no_table(tmp_path: Path) -> None:
    folder = Folder(tmp_path, ListedSource("a", "", (".csv",), stops=True))
    folder.add("0.csv", "")
    folder.add("1.csv")
    found = counts(folder.read(is_new=True))
    assert {name: count for name, count in found.items() if name[1] in ("received", "malformed_file")} == {
        ("a/1.csv", "received"): 2
    }


def test_keys_of_folders_are_columns(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    (tmp_path / "event=A" / "k=x").mkdir(parents=True)
    folder.add("event=A/k=x/1.csv", "at,v,ts\n1.0,1.0,1.0\n")
    found = counts(folder.read())
    assert found == {("a/event=A/k=x/1.csv", "received"): 1, ("a/event=A/k=x/1.csv", "pending"): 1}


def test_workers_read_a_form_of_csv_as_a_replay_does(tmp_path: Path) -> None:
    form = "skip=1 names=at,event,k,v,ts missing=NA thousands=, escape=\\"
    folder = Folder(tmp_path, csv=read_csv_form(form))
    folder.add("1.csv", 'a report\n1.0,A,"say \\"x\\"","1,000.5",1.0\n2.0,A,y,NA,2.0\n')
    (tmp_path / "plain.csv").write_text('at,event,k,v,ts\n1.0,A,"say ""x""",1000.5,1.0\n2.0,A,y,,2.0\n')
    plain = read_arrivals(tmp_path / "plain.csv", PLAN, source="a/1.csv").table
    given = read_arrivals(tmp_path / "1.csv", PLAN, ColumnNames(csv=read_csv_form(form)), source="a/1.csv").table
    assert given.equals(plain)
    found = counts(folder.read())
    assert found == {("a/1.csv", "received"): 2, ("a/1.csv", "pending"): 2}


def test_a_file_that_is_not_a_table_stops_the_job_if_the_source_says_so(tmp_path: Path) -> None:
    folder = Folder(tmp_path, ListedSource("a", "", (".csv",), stops=True))
    folder.add("1.csv", "nonsense\n1\n")
    with pytest.raises(InputError, match=r"^/.*/1.csv: "):
        folder.read()


def test_it_stops_the_job_until_the_source_has_brought_a_record(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.add("1.csv", "nonsense\n1\n")
    folder.add("2.csv")
    with pytest.raises(InputError, match=r"^/.*/1.csv: "):
        folder.read(is_new=True)


def test_an_earlier_file_of_the_micro_batch_counts_whatever_task_reads_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.add("1.csv")
    folder.add("2.csv", "nonsense\n1\n")
    folder.earlier = folder.files
    folder.files = folder.files[1:]
    assert [row["reason"] for row in folder.read(is_new=True)[Tag.DISCARDED]] == ["malformed_file"]


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_file_that_is_missing_stops_the_job_with_its_name(tmp_path: Path, is_repeated: bool) -> None:
    folder = Folder(tmp_path)
    folder.add("1.csv")
    (tmp_path / "1.csv").unlink()
    with pytest.raises(InputError, match=r"^/.*/1.csv: .* now there is none: .* ensue run --accept-loss$"):
        folder.read(is_repeated=is_repeated)


def test_a_file_that_has_changed_stops_a_repeated_micro_batch_only(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.add("1.csv")
    (tmp_path / "1.csv").write_text(ROWS + "3.0,A,x,1.0,3.0\n")
    assert counts(folder.read())["a/1.csv", "received"] == 3
    with pytest.raises(InputError, match=r"^/.*/1.csv: .* it had 48 bytes and has 64\. Restore"):
        folder.read(is_repeated=True)


def test_a_loss_that_is_accepted_is_counted(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.add("1.csv")
    folder.add("2.csv")
    (tmp_path / "1.csv").unlink()
    rows = folder.read(is_repeated=True, accept_loss=True)
    assert counts(rows)["a/1.csv", "lost"] == 1
    assert counts(rows)["a/2.csv", "received"] == 2
    assert [(row["cause"], row["source"], row["count"]) for row in rows[Tag.REPORT]] == [("lost", "a", 0)]


@pytest.mark.parametrize("name", ["a[1]*.csv", "b\n.csv", "c %41#:{x,y}.csv", "d\udcff.csv", "E.CSV"])
def test_any_legal_name_can_be_read(tmp_path: Path, name: str) -> None:
    folder = Folder(tmp_path)
    folder.add(name)
    shown = name.replace("\udcff", "\\xff")
    assert counts(folder.read())[f"a/{shown}", "received"] == 2


@pytest.mark.parametrize("is_together", [True, False])
def test_the_first_file_may_lack_a_column_that_another_file_of_the_folder_has(
    tmp_path: Path, *, is_together: bool
) -> None:
    folder = Folder(tmp_path)
    folder.add("1.csv", "at,event,k,ts\n1.0,A,x,1.0\n")
    with pytest.raises(InputError, match=r"1\.csv: has no column 'v', a field of 'A'"):
        folder.read(is_new=True)
    first = folder.files
    folder.add("2.csv")
    folder.files = folder.files if is_together else first
    rows = folder.read(is_new=True)
    assert rows[Tag.DISCARDED] == []
    assert rows[Tag.REPORT] == [
        {
            "cause": "missing_column",
            "source": "a",
            "count": 1,
            "example": "a/1.csv: has no column 'v', which other tables have: it is null there",
            "field": "v",
        }
    ]
