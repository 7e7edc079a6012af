"""The job that is tortured: three queries with waits, three sources, a control stream, every sink."""

from __future__ import annotations

import random
from pathlib import Path

from tests.torture.streams import Source

QUERIES = """\
@TimeFrom("ts")
event A { string k; integer v; integer n; float ts; }
@TimeFrom("ts")
event B { string k; integer v; integer n; float ts; }
@TimeFrom("ts")
event C { string k; integer v; integer n; float ts; }

query Rise {
    inputs {
        A() key k within 20.0 wait 3.0;
        B() key k within 20.0 wait 2.0;
    }
    find A as a -> B as b where b.v > a.v {
        print a.n.toString() + " before " + b.n.toString();
    }
}
query Silence {
    inputs { B() key k within 30.0 wait 4.0; }
    find B as b -> wait(5.0) as late without B as other { send B(b.k, b.v, b.n, b.ts) to "silent"; }
}
query _Three {
    inputs {
        A(v > 20) key k within 40.0;
        C() key k within 40.0 wait 1.0;
    }
    find A as a -> C as c -> wait(2.0) as t where c.v != a.v
}
"""

SINKS = """\
sinks:
  matches:   {format: parquet, path: out/matches}
  output:    {format: parquet, path: out/output}
  discarded: {format: parquet, path: out/discarded}
  ledger:    {format: parquet, path: out/ledger}"""

SOURCE = "  {name}: {{format: {format}, path: {name}, {event}source_time: ts, options: {{maxFilesPerTrigger: {files}, recursiveFileLookup: true}}}}\n"
DEPLOYMENT = """\
name: torture
queries: [torture.query]
sources:
{sources}control: {{format: csv, path: control}}
{sinks}
buckets: {buckets}
trigger: 100ms
checkpoint: state
"""


def write_project(chooser: random.Random, folder: Path, sources: list[Source], sink: str = "parquet") -> Path:
    """The query file, the deployment file and empty folders; gives the deployment file. `sink`: a format."""
    text = "".join(
        SOURCE.format(
            name=source.name,
            format=source.format,
            event=f"event: {source.event}, " if source.event else "",
            files=chooser.choice((1, 2, 5, 50)),
        )
        for source in sources
    )
    for name in [*(source.name for source in sources), "control"]:
        (folder / name).mkdir(parents=True)
    # the package deltalake takes the folder `%5FThree` for `_Three`
    queries = QUERIES.replace("_Three", "Three") if sink == "delta" else QUERIES
    (folder / "torture.query").write_text(queries, encoding="utf-8")
    path = folder / "torture.yaml"
    path.write_text(
        DEPLOYMENT.format(
            sinks=SINKS.replace("format: parquet", f"format: {sink}"), sources=text, buckets=chooser.choice((1, 2, 3))
        ),
        encoding="utf-8",
    )
    return path
