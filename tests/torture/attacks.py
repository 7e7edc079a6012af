"""What is broken, how, and what it is given to: query texts, tables, deployment files, control events, saved state."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

import ensue
from job_engine.delta_log import LOG, transactions
from job_engine.deployment_file import load_deployment
from job_engine.operator.bucket_state import open_state
from job_engine.operator.step import run_step
from job_engine.sources.folder.listing import FileStamp
from job_engine.sources.folder.pieces import FolderPiece, SourceCount, TakenFile
from job_engine.sources.kinds import Part
from job_engine.sources.listing.command_folder import Command, CommandFolder
from job_engine.sources.listing.manifests import Manifest, ManifestFolder
from job_engine.sources.table.commits import UnreadableTable
from job_engine.sources.table.pieces import TablePosition
from job_engine.sources.table.planning import CommitPlanner
from job_engine.sources.table.settings import DeltaSource
from job_engine.wire.packed_rows import pack_arrivals
from job_engine.wire.program import Program
from querylang.load import compile_text
from runtime.reading.tables import read_arrivals
from tests.support.mutants import json_mutant
from tests.torture import kept_files

ROOT = Path(__file__).resolve().parents[2]
QUERY = """\
@TimeFrom("ts")
event A { string k; integer v; decimal d; sequence<float> s; float ts; }
inputs { A() key k within 20.0 wait 2.0; }
find A as a -> A as b where b.v > a.v { print a.k + b.d.toString(); }
"""
LINES = 100
"""So many broken lines are in one table."""

TROUBLES = (
    *(
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\x1b[2J",
        b"\xe2\x80\xae",
        b"\r",
        b"\n",
        b'"',
        b"'",
        b"\\",
        b",",
    ),
    *(b"1e308", b"-1e308", b"1e99999999999999999999", b"9" * 400, b"18446744073709551615", b"-9223372036854775809"),
    *(b"NaN", b"sNaN", b"infinity", b"-0.0", b"null", b"true", b"2024-02-30T25:61:61Z", b"9" * 5_000, b"." * 5_000),
    *(
        b"(" * 500,
        b"[" * 5_000,
        b"{" * 5_000,
        b'{"a":' * 2_000,
        b"[[" * 5_000,
        b"A(" * 500,
        b"-" * 3_000,
        b"&a [*a]",
        b"!!timestamp x",
    ),
    *(
        b"${HOME}",
        b"../",
        b"*",
        b"a" * 300,
        b";" * 1_000,
        b"/*",
        b"//",
        b"\\u0000",
        b"\\ud800",
        b"&a ",
        b"*a ",
        b"<<: *a",
        b"? ",
        b"- " * 300,
    ),
)


@dataclass(frozen=True, slots=True)
class Attack:
    """Whole inputs, what breaks them, and what reads them."""

    samples: tuple[bytes, ...]
    run: Callable[[bytes], object]
    together: int = 1
    """So many inputs are given at once, as lines: rows of a table stand side by side in practice too."""
    is_json: bool = False
    """Whether half of the inputs have other values, fields too many or too few, in place of broken bytes."""

    def make(self, chooser: random.Random) -> bytes:
        """A broken input, or as many lines as belong together; the same chooser makes the same."""
        if self.is_json and chooser.random() < 0.5:
            return json_mutant(chooser.choice(self.samples), chooser)
        return b"\n".join(broken(chooser, self.samples) for _ in range(self.together))


def broken(chooser: random.Random, samples: tuple[bytes, ...]) -> bytes:
    """A sample after one to six random changes."""
    data = chooser.choice(samples)
    for _ in range(chooser.choice((1, 1, 1, 2, 3, 6))):
        start = chooser.randrange(len(data) + 1)
        end = min(len(data), start + chooser.choice((1, 1, 2, 5, 20, 100)))
        match chooser.randrange(9):
            case 0:  # remove
                data = data[:start] + data[end:]
            case 1:  # repeat
                data = data[:end] + data[start:end] * chooser.choice((1, 2, 50, 1000)) + data[end:]
            case 2:  # change bits
                data = data[:start] + bytes(byte ^ 1 << chooser.randrange(8) for byte in data[start:end]) + data[end:]
            case 3 | 4 | 5:  # trouble
                data = data[:start] + chooser.choice(TROUBLES) + data[chooser.choice((start, end)) :]
            case 6:  # cut
                data = data[:start]
            case 7:  # a piece of another
                other = chooser.choice(samples)
                place = chooser.randrange(len(other) + 1)
                data = data[:start] + other[place : place + 80] + data[end:]
            case _:  # bytes
                data = data[:start] + chooser.randbytes(chooser.choice((1, 4, 30))) + data[end:]
    return data[:2_000_000]


def query_texts() -> Attack:
    """Query files."""
    cases = (ROOT / "tests" / "querylang" / "legal.cases").read_text("utf-8").split("\n=== ")
    events = cases[1].partition("\n")[2]
    texts = [events + case.partition("\n")[2] for case in cases[2:]]
    texts += [path.read_text("utf-8") for path in sorted((ROOT / "queries").rglob("*.query"))]
    return Attack((QUERY.encode(), *(text.encode() for text in texts)), _compile)


def _compile(data: bytes) -> None:
    path = Path("attack.query")
    path.write_bytes(data)
    ensue.load(path)


def _rows() -> list[dict[str, object]]:
    return [
        {
            "at": f"2024-01-01T10:00:{n:02}Z",
            "event": "A",
            "k": "xyz"[n % 3],
            "v": n % 7,
            "d": "1.50",
            "s": "[1.0,2.5]",
            "ts": 1704103200.0 + n,
        }
        for n in range(12)
    ]


def csv_tables() -> Attack:
    """CSV files."""
    rows = _rows()
    lines = [
        ",".join(rows[0]),
        *(",".join(f'"{value}"' if name == "s" else str(value) for name, value in row.items()) for row in rows),
    ]
    return Attack(("\n".join(lines).encode(), "\r\n".join(lines).encode()), _replay("attack.csv"))


def json_tables() -> Attack:
    """JSON lines."""
    native = [{**row, "s": [1.0, 2.5], "d": 1.5} for row in _rows()]
    return Attack(
        ("\n".join(map(json.dumps, _rows())).encode(), "\n".join(map(json.dumps, native)).encode()),
        _replay("attack.jsonl"),
    )


def json_lines() -> Attack:
    """Lines of a JSON file that are broken one by one."""
    native = [{**row, "s": [1.0, 2.5], "d": 1.5} for row in _rows()]
    samples = tuple(json.dumps(row).encode() for row in [*_rows(), *native])
    return Attack(samples, _replay("lines.jsonl"), together=LINES)


def csv_lines() -> Attack:
    """Rows of a CSV file that are broken one by one, below a header that is whole."""
    header, *rows = csv_tables().samples[0].split(b"\n")
    replay = _replay("lines.csv")
    return Attack(tuple(rows), lambda data: replay(header + b"\n" + data), together=LINES)


CSV_FORMS: tuple[dict[str, str | bool | int], ...] = (
    {"delimiter": ";", "decimal": ",", "thousands": ".", "missing": "NA,nil"},
    {"header": False, "names": "at,event,k,v,d,s,ts"},
    {"header": False},
    {"skip": 1, "escape": "\\"},
    {"encoding": "utf-16", "delimiter": "tab"},
    {"encoding": "latin-1", "thousands": " "},
)


def csv_forms() -> Attack:
    """CSV files that are written in other ways; the size of a file decides in which."""
    loaded, path = ensue.load(QUERY), Path("forms.csv")
    lines = csv_tables().samples[0].decode().split("\n")
    texts = ["\n".join(line.replace(",", ";") for line in lines), "\n".join(lines[1:]), "\n".join(["# head", *lines])]
    samples = [text.encode() for text in texts] + ["\n".join(lines).replace(",", "\t").encode("utf-16")]

    def run(data: bytes) -> None:
        path.write_bytes(data)
        _check(ensue.replay(loaded, path, csv=CSV_FORMS[len(data) % len(CSV_FORMS)]))

    return Attack(tuple(samples), _ignoring_refusal_of_sample(run))


def parquet_tables() -> Attack:
    """Parquet files."""
    made = []
    rows = [{**row, "s": [1.0, 2.5], "d": Decimal("1.50")} for row in _rows()]
    for compression in ("none", "snappy"):
        sink = io.BytesIO()
        pa.parquet.write_table(pa.Table.from_pylist(rows), sink, compression=compression)
        made.append(sink.getvalue())
    return Attack(tuple(made), _replay("attack.parquet"))


def arrow_tables() -> Attack:
    """Arrow files, and streams."""
    table = pa.Table.from_pylist([{**row, "s": [1.0, 2.5], "d": Decimal("1.50")} for row in _rows()])
    made = []
    for open_writer in (pa.ipc.new_file, pa.ipc.new_stream):
        sink = io.BytesIO()
        with open_writer(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=5)
        made.append(sink.getvalue())
    return Attack(tuple(made), _replay("attack.arrow"))


def _replay(name: str) -> Callable[[bytes], object]:
    loaded = ensue.load(QUERY)

    def run(data: bytes) -> None:
        path = Path(name)
        path.write_bytes(data)
        _check(ensue.replay(loaded, path))

    return run


def _check(result: ensue.Replay) -> None:
    received = result.ledger.query("what == 'received'")["count"].sum()
    beside = ("received", "before_clock", "late_by_idle", "lost", "forgotten_keys")
    used = result.ledger[~result.ledger["what"].isin(beside)]["count"].sum()
    assert received == used, "the ledger does not add up"


def control_events() -> Attack:
    """Control events, event texts and JSON in the column `event`."""
    texts = (
        *("SetDelayedEventsLeeway(300.0, 10.0)", "com.apama.queries.SetDelayedEventsLeeway(infinity, 0.0)"),
        *(
            'Heartbeat("A", 1704103200.0)',
            'Heartbeat("A", "2024-01-01T10:00:00Z")',
            'A("x", 1, 1.5d, [1.0], 1704103200.0)',
        ),
        *('{"Heartbeat": ["A", 1704103200]}', '{"Heartbeat": {"event": "A", "time": 1704103200}}', '{"A": ["x", 1]}'),
    )
    loaded = ensue.load(QUERY)

    def run(data: bytes) -> None:
        texts = [line.decode("utf-8", "replace") for line in data.split(b"\n")]
        texts.append('A("x", 1, 1.5d, [1.0], 1704103200.0)')
        rows = [{"at": 1704103200.0 + row, "event": text} for row, text in enumerate(texts)]
        _check(ensue.replay(loaded, rows))

    return Attack(tuple(text.encode() for text in texts), run, together=LINES)


def deployments() -> Attack:
    """Deployment files."""
    text = """\
name: cards
queries: [attack.query]
sources:
  a: {format: csv, path: ., event: A, arrival: at, options: {maxFilesPerTrigger: 1}}
  b: {format: json, path: ., ordering: {policy: stream_analytics, late: 5s, over: [k]}}
control: {format: json, path: control}
sinks:
  matches: {format: parquet, path: out/matches}
clock: arrival
buckets: 4
trigger: 1 second
checkpoint: state
parameters: {Q: {eu: {least: 10.0, tags: ["a", "b"]}, us: {least: 50.0}}}
"""
    more = (ROOT / "queries" / "flights" / "flights.yaml").read_bytes()

    def run(data: bytes) -> None:
        path = Path("attack.yaml")
        path.write_bytes(data)
        load_deployment(path, {"HOME": "secret"})

    return Attack((more, text.encode()), _ignoring_refusal_of_sample(run))


def _ignoring_refusal_of_sample(run: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """The samples' folders do not exist, which is a mistake like any other."""

    def wrapped(data: bytes) -> None:
        with suppress(ensue.EnsueError):
            run(data)

    return wrapped


def states() -> Attack:
    """State of a bucket: with windows, pending events and waits."""
    Path("state.csv").write_bytes(csv_tables().samples[0])
    plan = compile_text(QUERY).plan
    program = Program.of(plan, buckets=1)
    packed = pack_arrivals(read_arrivals("state.csv", plan), program.groups(), program.buckets)
    step = run_step(program, 0, None, [packed.column(1)[0].as_py()], 1_704_103_300_000)

    def run(data: bytes) -> None:
        state = open_state(program, 0, data)
        for each in state.engines:
            each.flush()

    return Attack((step.state,), run)


def delta_commits() -> Attack:
    """Commits of Delta tables, as a source reads them."""
    add = {"path": "a%20b.parquet", "size": 5, "dataChange": True, "partitionValues": {"k": None}}
    lines = (
        {"commitInfo": {"timestamp": 1704103200000}},
        {"protocol": {"minReaderVersion": 3, "readerFeatures": ["timestampNtz"]}},
        {"metaData": {"id": "x", "schemaString": json.dumps({"fields": [{"name": "at", "type": "timestamp"}]})}},
        {"add": add | {"stats": json.dumps({"numRecords": 2})}},
        {"remove": {"path": "c.parquet", "dataChange": False}},
        {"txn": {"appId": "ensue-0123456789ab", "version": 7}},
    )
    with suppress(FileExistsError):
        Path("table", LOG).mkdir(parents=True)

    def run(data: bytes) -> None:
        Path("table", LOG, f"{1:020d}.json").write_bytes(data)
        before = {"s": TablePosition("x", 0, None, {"at": '"timestamp"'})}
        try:
            CommitPlanner([DeltaSource("s", "table", "at")]).next(before, {}, lambda *_: None)
        except UnreadableTable:
            return
        transactions(Path("table"))

    return Attack(("\n".join(map(json.dumps, lines)).encode(),), run, is_json=True)


def manifests() -> Attack:
    """Manifests of a checkpoint."""
    folder = ManifestFolder(Path("state/manifests"))
    file, command = TakenFile("s", 1, "a.csv", FileStamp(5, 7, 9)), Command(7, "Heartbeat()", 8)
    piece = FolderPiece(SourceCount(1, "a.csv"), (file,))
    folder.write(Manifest(1, {"s": Part("csv", piece)}, commands=(command,)))
    place = Path("state/manifests/0000000001.json")

    def run(data: bytes) -> None:
        place.write_bytes(data)
        folder.read(1)

    return Attack((place.read_bytes(),), run, is_json=True)


def commands() -> Attack:
    """Commands in a checkpoint, none of which may stop the job."""
    folder = CommandFolder(Path("state"))
    number = folder.send('{"key": {"k": "x"}}', at=8, kind="forget").number
    place = Path("state/ensue/commands", f"{number:020d}.json")

    def run(data: bytes) -> None:
        place.write_bytes(data)
        found = folder.read(number)
        assert found is not None, "it is there"
        json.dumps(found.to_plain(), allow_nan=False)
        found.text.encode()

    return Attack((place.read_bytes(),), run, is_json=True)


def _kept(kind: str) -> Callable[[], Attack]:
    def made() -> Attack:
        samples, run = kept_files.KINDS[kind]()
        return Attack(samples, run, is_json=True)

    return made


ATTACKS: Mapping[str, Callable[[], Attack]] = {
    **{kind: _kept(kind) for kind in kept_files.KINDS},
    "delta_log": delta_commits,
    "manifest": manifests,
    "command": commands,
    "query": query_texts,
    "csv": csv_tables,
    "csv-forms": csv_forms,
    "csv-lines": csv_lines,
    "json": json_tables,
    "json-lines": json_lines,
    "parquet": parquet_tables,
    "arrow": arrow_tables,
    "control": control_events,
    "deployment": deployments,
    "state": states,
}
WEIGHTS = {
    **dict.fromkeys(kept_files.KINDS, 20),
    "delta_log": 60,
    "manifest": 40,
    "command": 40,
    "query": 150,
    "csv": 10,
    "csv-forms": 20,
    "csv-lines": 150,
    "json": 10,
    "json-lines": 200,
    "parquet": 20,
    "arrow": 20,
    "control": 240,
    "deployment": 120,
    "state": 80,
}
"""Inputs of each kind, in a thousand; whole tables are dear."""

TOGETHER = {"csv-lines": LINES, "json-lines": LINES, "control": LINES}
"""Inputs per attempt, where it is not one."""
