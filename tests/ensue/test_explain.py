"""`ensue explain`: as text, as a graph, as a drawing, as data."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from querylang.plan.model import from_dict
from tests.ensue.command import Run

TWO = """event A { integer n; }
query Rising { inputs { A() within 30.0; } find A as a -> A as b where b.n > a.n }
query Least {
    parameters { integer least; }
    inputs { A(n > least) within 30.0; }
    find A as a
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    (tmp_path / "two.query").write_text(TWO)
    (tmp_path / "one.query").write_text("inputs { A() within 30.0; }\nfind A as a -> A as b\n")
    return tmp_path


def test_every_query_is_explained(ensue: Run) -> None:
    done = ensue("explain", "two.query")
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if line.startswith("query ")] == ["query Rising", "query Least"]


def test_parameters_without_values_leave_the_matcher_open(ensue: Run) -> None:
    matchers = ensue("explain", "two.query").stdout.split("\n  matcher\n    ")[1:]
    assert [matcher.splitlines()[0] for matcher in matchers] == ["kernel", "known when the parameters have values"]


def test_values_make_instances(ensue: Run) -> None:
    done = ensue("explain", "two.query", "--parameters", "{Least: {few: {least: 3}, many: {least: 1}}}")
    assert [line for line in done.stdout.splitlines() if line.startswith("query ")] == [
        "query Rising",
        "query Least/few",
        "query Least/many",
    ]
    assert "n > 3" in done.stdout


def test_dot_prints_a_graph_for_each_query(ensue: Run) -> None:
    done = ensue("explain", "two.query", "--dot")
    assert done.returncode == 0
    assert [line for line in done.stdout.splitlines() if line.startswith("digraph")] == [
        'digraph "Rising" {',
        'digraph "Least" {',
    ]


def texts(picture: Path) -> list[str | None]:
    return [item.text for item in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]


def test_svg_draws_one_query_to_the_file(ensue: Run, folder: Path) -> None:
    done = ensue("explain", "one.query", "--svg", "out.svg")
    assert (done.returncode, done.stdout, done.stderr) == (0, "out.svg\n", "")
    assert texts(folder / "out.svg") == ["one", "b ← A", "a ← A", "0", "1", "match"]


def test_svg_draws_several_queries_beside_each_other(ensue: Run, folder: Path) -> None:
    done = ensue("explain", "two.query", "--svg", "out.svg", "--parameters", "{Least: {few: {least: 3}}}")
    assert done.stdout.splitlines() == ["out-Rising.svg", "out-Least-few.svg"]
    assert all((folder / name).exists() for name in done.stdout.splitlines())


def test_a_drawing_that_cannot_be_written_is_told(ensue: Run) -> None:
    done = ensue("explain", "one.query", "--svg", "none/out.svg")
    assert (done.returncode, done.stderr) == (1, "none/out.svg: cannot be written: No such file or directory\n")


def test_for_machines_it_is_one_object_with_the_plan(ensue: Run) -> None:
    found = json.loads(ensue("explain", "two.query", "--json").stdout)
    assert [(query["query"], query["instance"], query["matcher"]) for query in found["queries"]] == [
        ("Rising", "", "kernel"),
        ("Least", "", "known when the parameters have values"),
    ]
    assert [query.name for query in from_dict(found).queries] == ["Rising", "Least"]


def test_program_prints_what_the_kernel_interprets(ensue: Run) -> None:
    done = ensue("explain", "two.query", "--program")
    assert done.returncode == 0
    assert (
        done.stdout
        == """query Rising
  states
    state  transitions  input  linked  events needed  dead ends  looks ahead
    0      0            A      yes     2              -          -
    1      1            A      yes     1              -          program 0 after 8 events
  transitions
    transition  takes  for  comparisons  other checks  then     ties with
    0           A      b    -            -             state 1  -
    1           A      a    1            -             match    -
  conditions
    1  where b.n > a.n: a comparison, program 0
         0 PUSH_I a.n
         1 PUSH_I b.n
         2 LESS_I

query Least
  known when the parameters have values
"""
    )


def test_svg_overwrites_pictures_only(ensue: Run, folder: Path) -> None:
    before = (folder / "one.query").read_text()
    done = ensue("explain", "one.query", "--svg", "one.query")
    told = "one.query: is not an SVG picture, so it is not overwritten; write another name\n"
    assert (done.returncode, done.stderr) == (1, told)
    assert (folder / "one.query").read_text() == before


def test_tables_that_are_read_as_by_a_replay_show_the_types(ensue: Run, tmp_path: Path) -> None:
    (tmp_path / "open.query").write_text("inputs { M() key k within 9.0; } find M as a where a.v > 1.5")
    (tmp_path / "m.csv").write_bytes("when;k;v\n1;Säge;2\n".encode("latin-1"))
    told = ensue("explain", "open.query").stderr
    assert told.startswith("nothing defines M; a table shows the fields: `ensue explain open.query EVENTS`\n")
    done = ensue("explain", "open.query", "m.csv", "--csv", "delimiter=; encoding=latin-1", "--arrival", "when")
    assert (done.returncode, done.stderr) == (0, "")
    assert "    fields read: k, v\n" in done.stdout
