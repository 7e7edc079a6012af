"""Parameters: the shapes in which values are given, the instances that they make, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import ensue as package
from tests.ensue.command import Run

QUERIES = """event A { integer n; }
query Least {
    parameters { integer least; float period := 100.0; }
    inputs { A(n >= least) within period; }
    find A as a -> A as b { print a.n.toString() + b.n.toString(); }
}
"""
OTHER = QUERIES + "query Most { parameters { integer most := 2; } inputs { A(n <= most) within 9.0; } find A as a }\n"
EVENTS = [{"at": n, "n": n} for n in (1, 2, 3)]


def found(parameters: Any, queries: str = QUERIES) -> list[tuple[str, str]]:
    """Query and instance of each match."""
    matches = package.replay(queries, EVENTS, parameters=parameters).matches
    return list(zip(matches["query"], matches["instance"], strict=True))


@pytest.mark.parametrize(
    ("parameters", "matches"),
    [
        ({"least": 1}, [("Least", "")] * 2),
        ({"least": 2}, [("Least", "")]),
        ({"least": 1, "period": 1}, []),
        ({"Least": {"least": 1}}, [("Least", "")] * 2),
        ({"Least": {"eu": {"least": 1}, "us": {"least": 2}}}, [("Least", "eu"), ("Least", "eu"), ("Least", "us")]),
        ("{Least: {eu: {least: 2}}}", [("Least", "eu")]),
        ("least: 2", [("Least", "")]),
    ],
)
def test_values_make_instances(parameters: Any, matches: list[tuple[str, str]]) -> None:
    assert found(parameters) == matches


def test_what_is_put_out_tells_its_instance() -> None:
    result = package.replay(QUERIES, EVENTS, parameters={"Least": {"eu": {"least": 1}, "us": {"least": 2}}})
    shown = [("eu", "12"), ("eu", "23"), ("us", "23")]
    assert [(output["instance"], output["text"]) for output in result.output_objects()] == shown
    assert [(output["instance"], output["text"]) for step in result.steps for output in step["outputs"]] == shown


def test_a_query_whose_parameters_have_defaults_runs_as_it_is() -> None:
    assert found({"Least": {"least": 3}}, OTHER) == [("Most", ""), ("Most", "")]


def test_values_take_the_place_of_defaults() -> None:
    assert found({"Most": {"one": {"most": 1}}}, OTHER) == [("Most", "one")]


def test_a_file_of_values(tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text("Least:\n  eu: {least: 2}\n")
    assert found(tmp_path / "values.yaml") == [("Least", "eu")]
    assert found(str(tmp_path / "values.yaml")) == [("Least", "eu")]


def test_a_value_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAST", "2")
    assert found("{least: '${LEAST}'}") == [("Least", "")]


def test_a_query_without_values_is_told_and_the_others_run() -> None:
    result = package.replay(OTHER, EVENTS)
    assert [query.name for query in result.idle] == ["Least"]
    assert result.summary() == "3 rows, 2 matches, no instance of Least"


@pytest.mark.parametrize(
    ("parameters", "queries", "told"),
    [
        (None, QUERIES, "parameters: query 'Least' has no instance; 'least' needs a value"),
        ({"period": 9.0}, QUERIES, "parameters: query 'Least': parameter 'least' has no value; it is integer"),
        ({"leest": 9}, QUERIES, "parameters: query 'Least': unknown parameter 'leest'; did you mean 'least'?"),
        ({"least": "x"}, QUERIES, "parameters: query 'Least': parameter 'least' must be integer, not the string 'x'"),
        ({"least": 1.5}, QUERIES, "parameters: query 'Least': parameter 'least' must be integer, not the float 1.5"),
        ({"least": 9}, OTHER, "parameters: name the query: 'Least' and 'Most' take parameters"),
        ({"Lest": {"least": 9}}, QUERIES, "parameters: unknown query 'Lest'; did you mean 'Least'?"),
        (
            {"Least": {"eu": {"least": 1}, "least": 9}},
            QUERIES,
            "parameters: 'least' must be an instance with values, as those beside it are",
        ),
        (
            {"Least": 9, "Most": {"most": 1}},
            OTHER,
            "parameters: 'Least' is a query: its parameters are a mapping of names to values",
        ),
        (
            {"Least": {"../eu": {"least": 1}}},
            QUERIES,
            "parameters: '../eu' is not a name of an instance; use letters, digits, _, - and dots",
        ),
        ({"n": 1}, "inputs { A() within 9.0; } find A as a", "parameters: these queries have no parameters"),
        ("[1, 2]", QUERIES, "parameters:1: 'parameters' must be a mapping of names to values, not a list"),
        ("{least: 1", QUERIES, "parameters:1: is not YAML: did not find expected ',' or '}'"),
        ("&a {least: *a}", QUERIES, "parameters:1: *a contains itself"),
        ("{least: !!timestamp x}", QUERIES, "parameters:1: 'least' must be a number, a text, true or false, not 'x'"),
        ("none.yaml", QUERIES, "none.yaml: no such file"),
    ],
)
def test_what_is_wrong_is_one_clear_line(parameters: Any, queries: str, told: str) -> None:
    with pytest.raises(package.InputError) as raised:
        found(parameters, queries)
    assert str(raised.value) == told


def test_all_mistakes_of_a_file_are_told_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text("Least:\n  eu: {least: 1, period: 0}\n  us:\n    leest: 1\nMost:\n  most: 1\n")
    with pytest.raises(package.InputError) as raised:
        found(path)
    assert [line.removeprefix(f"{path}:")[:2] for line in str(raised.value).splitlines()] == ["2:", "3:", "5:"]


def test_the_command_line_takes_them(ensue: Run, tmp_path: Path) -> None:
    (tmp_path / "q.query").write_text(OTHER)
    (tmp_path / "e.csv").write_text("at,n\n1,1\n2,2\n3,3\n")
    done = ensue("replay", "q.query", "e.csv", "--format", "outputs", "--parameters", "{Least: {least: 1}}")
    assert (done.returncode, len(done.stdout.splitlines()), done.stderr) == (0, 2, "")


def test_the_command_line_tells_of_queries_without_an_instance(ensue: Run, tmp_path: Path) -> None:
    (tmp_path / "q.query").write_text(OTHER)
    (tmp_path / "e.csv").write_text("at,n\n1,1\n")
    done = ensue("replay", "q.query", "e.csv", "--format", "outputs")
    assert (done.returncode, done.stderr) == (0, "query 'Least' has no instance; 'least' needs a value\n")


LISTS = """
event A { integer n; string s; }
query Lists {
    parameters { sequence<integer> numbers; sequence<string> names := ["a", "b"]; }
    inputs { A(s in names) within 9.0; }
    find A as a where a.n in numbers
}
"""
NAMED = [{"at": float(n), "event": "A", "n": n, "s": s} for n, s in enumerate("abcab", 1)]


def rows_with(parameters: Any) -> list[int]:
    return package.replay(LISTS, NAMED, parameters=parameters).matches["a.n"].tolist()


def test_lists_of_values() -> None:
    assert rows_with({"numbers": [1, 3, 5]}) == [1, 5]
    assert rows_with("{numbers: [1, 3, 5], names: [c]}") == [3]
    assert rows_with({"numbers": ()}) == []
    assert rows_with({"Lists": {"eu": {"numbers": [1]}, "us": {"numbers": [2, 4], "names": ["a"]}}}) == [1, 4]


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"numbers": 1}, "'numbers' must be sequence<integer>, not the integer 1"),
        ({"numbers": [1, "x"]}, "'numbers' must be sequence<integer>: its value 2 is the string 'x'"),
        ({"numbers": [1, 2**70]}, f"'numbers' must be sequence<integer>: {2**70} does not fit 64 bits"),
        ({"numbers": [[1]]}, "'numbers' must be sequence<integer>: its value 1 is a list"),
        ({"numbers": [None]}, "'numbers' must be sequence<integer>: its value 1 is nothing"),
    ],
)
def test_what_is_wrong_in_a_list_is_one_clear_line(parameters: Any, told: str) -> None:
    with pytest.raises(package.InputError, match=rf"{re.escape(f'parameter {told}')}$"):
        rows_with(parameters)


def test_a_list_takes_no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAME", "a")
    with pytest.raises(package.InputError, match="a variable stands for one value, not for one in a list"):
        rows_with("{numbers: [1], names: ['${NAME}']}")
