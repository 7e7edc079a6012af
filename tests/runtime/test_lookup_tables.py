"""Contents of tables beside the stream: rows by key and moment against brute force, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest

import ensue
from querylang.errors import InputError
from querylang.load import compile_text
from querylang.plan.model import Table
from runtime.instants import SECOND
from runtime.lookup_tables import LookupTable, read_lookup_table, with_places, with_read_places
from tests.support.lookups import ADDRESSES, DEFINITIONS, HOSTS, KEYS, World

_USES = """query Q { inputs { E() within 10.0; } find E as a
    where T.hasKey(a.h) and U.hasKey(a.h, a.n) and N.hasKey(a.ip) and M.hasKey(a.g, a.ip) }"""


def definitions(text: str = DEFINITIONS + _USES) -> dict[str, Table]:
    (query,) = compile_text(text).plan.queries
    return {table.name: table for table in query.tables}


ASSET = definitions(
    "table Asset { key string host; integer level; boolean live; float x; } event A { string h; }"
    " query Q { inputs { A() within 9.0; } find A as a where Asset.hasKey(a.h) }"
)["Asset"]


def test_rows_are_those_of_brute_force() -> None:
    tables, found = definitions(), 0
    for seed in range(40):
        chance = random.Random(seed)
        world = World(chance)
        for name, table in tables.items():
            content = read_lookup_table(table, pa.Table.from_pylist(world.tables[name], _schema(name)))
            values = {"h": HOSTS, "g": ["g0", "g1"], "n": [1, 2, 3], "cidr": ADDRESSES}
            probes = [[chance.choice(values[part]) for part in KEYS[name]] for _ in range(50)]
            moments = [chance.choice([0, 1, 10, 30, 59, chance.randrange(60)]) for _ in probes]
            columns = [pa.array(column) for column in zip(*probes, strict=True)]
            rows = content.rows_of(columns, np.array(moments, np.int64) * SECOND)
            for probe, moment, row in zip(probes, moments, rows.tolist(), strict=True):
                expected = world.row(name, probe, moment)
                assert (row >= 0) == (expected is not None), (name, probe, moment)
                assert content.row_of(probe, moment * SECOND) == row
                if expected is not None:
                    found += 1
                    own = {field.name: content.cell(field.name, row) for field in (*table.keys, *table.fields)}
                    assert own == {key: value for key, value in expected.items() if not key.startswith("valid")}
    assert found > 300


def _schema(name: str) -> pa.Schema:
    types = {"level": pa.int64(), "n": pa.int64(), "x": pa.float64(), "live": pa.bool_()}
    columns = {"T": "h level owner live", "U": "h n x", "N": "cidr level owner", "M": "g cidr level"}[name].split()
    own = [(column, types.get(column, pa.string())) for column in columns]
    return pa.schema([*own, ("valid_from", pa.int64()), ("valid_to", pa.int64())])


def test_keys_with_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.lookup_tables.hash_keys", lambda columns: np.zeros(len(columns[0]), np.uint64))
    content = read_lookup_table(ASSET, [{"host": f"h{n}", "level": n, "live": True, "x": 0.5} for n in range(9)])
    hosts = pa.array(["h3", "h8", "none", "h0", None])
    rows = content.rows_of([hosts], np.zeros(5, np.int64))
    assert [content.cell("level", row) if row >= 0 else None for row in rows.tolist()] == [3, 8, None, 0, None]


def read(rows: Any) -> LookupTable:
    return read_lookup_table(ASSET, rows)


def row(**values: Any) -> dict[str, Any]:
    return {"host": "a", "level": 1, "live": True, "x": 0.5, **values}


SAME = "of table 'Asset' have the same key, 'a', and hold at the same time"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [row(), row(host="b"), row(level=2)],
            f"table Asset: row 1 and row 3 {SAME}; columns 'valid_from' and 'valid_to' say when each row holds",
        ),
        (
            [row(valid_from=1, valid_to=5), row(valid_from=4)],
            f"table Asset: row 1 and row 2 {SAME}",
        ),
        ([row(), row(host=None)], "table Asset: row 2 of table 'Asset': 'host' has no value"),
        ([row(level="high")], "table Asset: row 1 of table 'Asset': 'level' is 'high', not integer"),
        ([row(), row(host="b", x="1,5")], "table Asset: row 2 of table 'Asset': 'x' is '1,5', not float"),
        ([row(valid_from="soon")], "table Asset: row 1 of table 'Asset': 'valid_from' is 'soon', not a time"),
        (
            [row(valid_from=5, valid_to=5)],
            "table Asset: row 1 of table 'Asset': 'valid_to' is not behind 'valid_from'",
        ),
        (
            [{"hots": "a", "level": 1, "live": True, "x": 0.5}],
            "table Asset: table 'Asset' needs a column 'host'; there are hots, level, live and x; did you mean 'hots'?",
        ),
    ],
)
def test_what_a_table_cannot_hold(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InputError) as raised:
        read(rows)
    assert str(raised.value) == message


def test_a_row_without_an_end_holds_until_the_next_of_its_key() -> None:
    content = read([row(valid_from=10, level=2), row(), row(valid_from=20, valid_to=30, level=3)])
    at = [content.row_of(["a"], moment * SECOND) for moment in (0, 9, 10, 19, 20, 29, 30)]
    assert [content.cell("level", own) if own >= 0 else None for own in at] == [1, 1, 2, 2, 3, 3, None]


def test_kinds_of_tables(tmp_path: Path) -> None:
    rows = [row(), row(host="b", level=2, extra="x", at="noon", event="?")]
    (tmp_path / "a.csv").write_text("HOST,level,live,x,at\na,1,true,0.5,noon\nb,2,false,1,?\n")
    (tmp_path / "a.jsonl").write_text('{"host": "a", "level": 1, "live": true, "x": 0.5}\n{"host": "b", "level": 2}\n')
    frame = pandas.DataFrame(rows)
    frame.to_parquet(tmp_path / "a.parquet")
    for given in (rows, frame, pa.Table.from_pylist(rows), *(tmp_path / f"a.{end}" for end in ("csv", "parquet"))):
        content = read_lookup_table(ASSET, given)
        assert [content.cell("level", content.row_of([host], 0)) for host in ("a", "b")] == [1, 2]
        assert content.row_of(["c"], 0) == -1
    with pytest.raises(InputError, match="'live'"):
        read_lookup_table(ASSET, [{"host": "a", "level": 1, "x": 1.0}])
    empty = read_lookup_table(ASSET, pandas.DataFrame(columns=["host", "level", "live", "x"]))
    assert (len(empty), empty.row_of(["a"], 0)) == (0, -1)


def test_wrong_networks_have_a_place() -> None:
    table = definitions()["N"]
    for cidr, problem in (("10.0.0.1/8", "write 10.0.0.0/8"), ("ten", "is not a network")):
        with pytest.raises(InputError, match=f"row 2 of table 'N': 'cidr'.*{problem}"):
            read_lookup_table(
                table, [{"cidr": "::/0", "level": 1, "owner": "x"}, {"cidr": cidr, "level": 1, "owner": "x"}]
            )
    two = [{"cidr": "10.0.0.1", "level": 1, "owner": "x"}, {"cidr": "10.0.0.1/32", "level": 1, "owner": "x"}]
    with pytest.raises(InputError, match="row 1 and row 2 of table 'N' have the same key"):
        read_lookup_table(table, two)


def test_other_processes_read_the_same(tmp_path: Path) -> None:
    content = read([row(valid_from=10, level=2), row(host="b")])
    del tmp_path
    text = "table Asset { key string host; integer level; boolean live; float x; } event A { string h; }"
    plan = compile_text(f"{text} query Q {{ inputs {{ A() within 9.0; }} find A as a where Asset.hasKey(a.h) }}").plan
    from runtime.lookup_tables import with_content

    placed = with_places(with_content(plan, {ASSET: content}))
    (table,) = with_read_places(placed).queries[0].tables
    assert table.content is not content
    assert [table.content.row_of([host], 11 * SECOND) for host in ("a", "b", "c")] == [
        content.row_of([host], 11 * SECOND) for host in ("a", "b", "c")
    ]


QUERY = """table Asset { key string host; integer level; }
event A { string host; }
query Q { inputs { A() within 9.0; } find A as a where Asset[a.host].level > 1 }"""


def test_a_table_that_nobody_gives_is_refused_by_name() -> None:
    for given in (None, {}, {"Aset": [{"host": "a", "level": 2}]}):
        with pytest.raises(InputError) as raised:
            ensue.replay(QUERY, [{"at": 1, "host": "a"}], tables=given)
        hint = "; did you mean 'Aset'?" if given else ""
        assert str(raised.value) == f"table 'Asset' has no content; give it, `tables={{\"Asset\": FILE}}`{hint}"
    with pytest.raises(InputError, match="tables: expected a mapping"):
        ensue.replay(QUERY, [{"at": 1, "host": "a"}], tables=[1])  # type: ignore[arg-type]


def test_a_state_goes_on_with_another_content(tmp_path: Path) -> None:
    text = QUERY.replace("find A as a where", "find A as a -> A as b where Asset.hasKey(b.host) and")
    live = ensue.open(text, tables={"Asset": [{"host": "a", "level": 2}]})
    live.send([{"at": 1, "host": "a"}, {"at": 2, "host": "b"}])
    live.save(tmp_path / "state")
    later = ensue.open(text, state=tmp_path / "state", tables={"Asset": [{"host": "b", "level": 0}]})
    found = later.send([{"at": 3, "host": "b"}, {"at": 4, "host": "a"}])
    assert [match["members"]["a"]["row"] for match in found.match_objects()] == [1], "what was looked up stays"


def test_a_new_text_that_looks_up_the_same_keeps_its_state() -> None:
    tables = {"Asset": [{"host": "a", "level": 2}, {"host": "b", "level": 3}]}
    old = QUERY.replace("level > 1 }", "level > 1 { print Asset[a.host].level.toString(); } }")
    for new, state in (
        (old.replace("print ", 'print "new " + '), "kept"),
        (old.replace("print Asset[a.host]", "print Asset.getOrDefault(a.host)"), "new"),
    ):
        text = new[new.index("query Q") :]
        rows: list[dict[str, Any]] = [{"at": 1, "event": "A", "host": "a"}]
        rows += [{"at": 2, "event": f"ReplaceQuery({_quoted(text)})"}, {"at": 3, "event": "A", "host": "b"}]
        outputs = ensue.replay(old, rows, tables=tables).output_objects()
        (replaced,) = [item for item in outputs if item["kind"] == "replaced"]
        assert f'"state": "{state}"' in replaced["event"] or state in str(replaced), replaced


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def test_many_queries_with_tables_of_their_own_give_what_each_gives_alone() -> None:
    head = "event A { string host; integer n; }"
    tables = [f"table T{number} {{ key string host; integer level; }}" for number in range(6)]
    queries = [
        f"query Q{number} {{ inputs {{ A(T{number}[host].level > 1) key n within 9.0; }} find A as a"
        f" where T{number}[a.host].level < 4 {{ print T{number}[a.host].level.toString(); }} }}"
        for number in range(6)
    ]
    contents = {
        f"T{number}": [{"host": f"h{at}", "level": (at * (number + 1)) % 5} for at in range(5)] for number in range(6)
    }
    rows = [{"at": at, "host": f"h{at % 7}", "n": at % 2} for at in range(40)]
    together = ensue.replay("\n".join([head, *tables, *queries]), rows, tables=contents).output_objects()
    apart = [
        output
        for number in range(6)
        for output in ensue.replay(
            "\n".join([head, tables[number], queries[number]]), rows, tables={f"T{number}": contents[f"T{number}"]}
        ).output_objects()
    ]
    assert len(apart) > 40

    def shown(outputs: list[Any]) -> list[str]:
        return sorted(f"{item['query']} {item['time']} {item['text']}" for item in outputs)

    assert shown(together) == shown(apart)


def test_a_version_behind_another_changes_nothing_up_to_its_place() -> None:
    tables, compared = definitions(), 0
    for seed in range(60):
        chance = random.Random(seed)
        worlds = [World(chance) for _ in range(3)]
        places = sorted(chance.sample(range(60), 2))
        for name, table in tables.items():
            if name in ("N", "M"):  # the longest network is that of one version
                continue
            contents = [
                read_lookup_table(table, pa.Table.from_pylist(_mostly(worlds, at, name), _schema(name)))
                for at in range(3)
            ]
            whole = contents[0]
            for place, content in zip(places, contents[1:], strict=True):
                whole = whole.followed_by(content, place * SECOND)
                whole = LookupTable.of_file(table, pa.py_buffer(whole.to_bytes()))
            for _ in range(40):
                values = {"h": HOSTS, "n": [1, 2, 3]}
                probe = [chance.choice(values[part]) for part in KEYS[name]]
                moment = chance.choice([*places, *(place + 1 for place in places), chance.randrange(60)])
                moment = moment * SECOND + chance.choice([0, 0, 1])
                version = sum(moment > place * SECOND for place in places)
                expected, row = contents[version].row_of(probe, moment), whole.row_of(probe, moment)
                assert (expected < 0) == (row < 0), (seed, name, probe, moment)
                for part in table.fields if row >= 0 else ():
                    compared += 1
                    assert whole.cell(part.name, row) == contents[version].cell(part.name, expected)
            again = whole.followed_by(contents[2], 100 * SECOND)
            assert len(again) == len(whole)
    assert compared > 500


def _mostly(worlds: list[World], at: int, name: str) -> list[dict[str, Any]]:
    """The rows of a version, which often has those of keys as they were in the first one."""
    kept = {tuple(row[part] for part in KEYS[name]) for row in worlds[0].tables[name]}
    kept = {key for key in kept if len(str(key)) % 2 or at == 0}
    own = [row for row in worlds[at].tables[name] if tuple(row[part] for part in KEYS[name]) not in kept]
    return [*own, *(row for row in worlds[0].tables[name] if tuple(row[part] for part in KEYS[name]) in kept)]
