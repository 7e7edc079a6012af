"""`ensue check --json`: the places of mistakes, for people and for editors."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import querylang
from ensue.commands import findings
from ensue.commands.findings import check_files, editor_range
from querylang.checker.checked import Checked
from querylang.errors import QueryError
from querylang.load import Given
from querylang.source import Source
from runtime.compiling import files

DEPLOYMENT = """name: x
queries: [q.query]
sources: {all: {format: csv, path: in}}
sinks: {matches: {format: json, path: out}}
checkpoint: state
"""
PARAMETERS = "query Rising {{ parameters {{ {} }} inputs {{ A() within least; }} find A as a }}"


def found(folder: Path, text: str, name: str = "q.query") -> dict[str, Any]:
    (folder / "in").mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return check_files([folder / name]).to_plain()


def test_a_mistake_has_a_range_from_zero_beside_the_place_from_one(tmp_path: Path) -> None:
    (error,) = found(tmp_path, "inputs { A() within 30.0; }\nfind A as a1 where a2.x = 1\n")["errors"]
    assert error == {
        "path": str(tmp_path / "q.query"),
        "line": 2,
        "column": 20,
        "code": "unknown-name",
        "message": "'a2' is not a name of this pattern; did you mean 'a1'?",
        "severity": "error",
        "range": {"start": {"line": 1, "character": 19}, "end": {"line": 1, "character": 21}},
    }


@pytest.mark.parametrize(
    ("text", "start", "end", "range_"),
    [
        ("ab", 0, 2, ((0, 0), (0, 2))),
        ("a\nbc", 2, 4, ((1, 0), (1, 2))),
        ("a\r\nbc", 3, 5, ((1, 0), (1, 2))),
        ("a\nbc\nd", 0, 6, ((0, 0), (2, 1))),
        ("é = x", 4, 5, ((0, 4), (0, 5))),
        ("😀 = x", 4, 5, ((0, 5), (0, 6))),
        ("😀", 0, 1, ((0, 0), (0, 2))),
        ("", 0, 0, ((0, 0), (0, 0))),
    ],
)
def test_columns_of_editors_are_utf_16(text: str, start: int, end: int, range_: tuple[Any, Any]) -> None:
    found = editor_range(Source("x", text).span(start, end))
    assert tuple((place["line"], place["character"]) for place in (found["start"], found["end"])) == range_


def test_a_warning_says_so(tmp_path: Path) -> None:
    text = "event A { integer n; }\nevent B { }\ninputs { A() within 9.0; B() within 9.0; }\nfind A as a\n"
    report = found(tmp_path, text)
    assert [(item["severity"], item["code"]) for item in report["warnings"]] == [("warning", "unused-input")]
    assert (report["files"], report["errors"]) == (1, [])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (error,) = check_files([tmp_path / "none.query"]).to_plain()["errors"]
    assert (error["path"], error["line"], error["range"]) == (str(tmp_path / "none.query"), None, None)


def test_each_mistake_of_a_deployment_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "q.query").write_text("inputs { A() within 9.0; }\nfind A as a\n")
    text = DEPLOYMENT.replace("format: csv", "format: cvs").replace("name: x", "nam: x")
    report = found(tmp_path, text, "run.yaml")
    assert [(item["line"], item["message"]) for item in report["errors"]] == [
        (1, "'name' is missing"),
        (1, "unknown key 'nam' in 'the deployment'; did you mean 'name'?"),
        (3, "'format' must be parquet, csv, json, arrow, kafka or delta, not 'cvs'; did you mean 'csv'?"),
    ]
    assert report["errors"][2]["range"] == {"start": {"line": 2, "character": 0}, "end": {"line": 3, "character": 0}}


@pytest.mark.parametrize("folder", [None, Path()], ids=["absolute", "relative"])
def test_a_mistake_that_two_files_bring_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path | None
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path if folder is None else folder
    (tmp_path / "in").mkdir()
    (tmp_path / "q.query").write_text("inputs { A() within 9.0; }\nfind B as b\n")
    (tmp_path / "run.yaml").write_text(DEPLOYMENT)
    report = check_files([folder / "q.query", folder / "run.yaml"])
    assert len(report.errors) == 1


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ("{Rising: {eu: {least: 9.0}}}", []),
        ("{Rising: {least: 9.0}}", []),
        ("{least: 9}", []),
        (
            "{Rising: {eu: {leest: 9.0}}}",
            [(6, "query 'Rising', instance 'eu': unknown parameter 'leest'; did you mean 'least'?")],
        ),
        (
            "\n  Rising:\n    eu: {least: 9.0}\n    us: {least: -1}",
            [(9, "query 'Rising', instance 'us': `within` of 'A' must be greater than 0, but is -1.0 seconds")],
        ),
        ("{Risin: {least: 9.0}}", [(6, "unknown query 'Risin'; did you mean 'Rising'?")]),
        ("{Rising: {eu: {least: 9.0}, us: 3}}", [(6, "'us' must be an instance with values, as those beside it are")]),
    ],
)
def test_values_of_parameters_are_checked_with_their_place(
    tmp_path: Path, parameters: str, told: list[tuple[int, str]]
) -> None:
    (tmp_path / "q.query").write_text(PARAMETERS.format("float least;"))
    report = found(tmp_path, f"{DEPLOYMENT}parameters: {parameters}\n", "run.yaml")
    assert [(item["line"], item["message"]) for item in report["errors"]] == told


def test_a_deployment_in_which_nothing_would_run_is_a_mistake(tmp_path: Path) -> None:
    (tmp_path / "q.query").write_text(PARAMETERS.format("float least;"))
    (error,) = found(tmp_path, DEPLOYMENT, "run.yaml")["errors"]
    assert error["message"] == "query 'Rising' has no instance; 'least' needs a value"


PRINTS = """event A { integer n; }
query Q { inputs { A() within 9.0; } find A as a { if a.n > 1 { print "x"; } while a.n > 2 { send a to "c"; break; } } }
query Silent { inputs { A() within 9.0; } find A as a }
"""


@pytest.mark.parametrize("has_sink", [False, True])
def test_outputs_that_nothing_keeps_are_told(tmp_path: Path, has_sink: bool) -> None:
    (tmp_path / "q.query").write_text(PRINTS)
    sinks = "sinks: {output: {format: json, path: output}, " if has_sink else "sinks: {"
    report = found(tmp_path, DEPLOYMENT.replace("sinks: {", sinks), "run.yaml")
    told = "query Q: without a sink `output` nothing keeps what it writes with `print`, `send`"
    assert [item["message"] for item in report["warnings"]] == ([] if has_sink else [told])


def test_outputs_of_types_that_nothing_defines_are_told_too(tmp_path: Path) -> None:
    text = "query Q { inputs { A() within 9.0; } find A as a { print a.n.toString(); send B(a.n) to a.to; } }"
    (tmp_path / "q.query").write_text(text)
    report = found(tmp_path, DEPLOYMENT, "run.yaml")
    told = "query Q: without a sink `output` nothing keeps what it writes with `print`, `send`"
    assert [item["message"] for item in report["warnings"]] == [told]


def test_each_file_of_a_folder_is_a_program_unless_a_deployment_joins_them(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.query").write_text("query Q { inputs { A() within 9.0; } find A as a }\n")
    alone = check_files([tmp_path])
    assert (alone.files, alone.errors) == (2, ())
    (tmp_path / "in").mkdir()
    (tmp_path / "run.yaml").write_text(DEPLOYMENT.replace("q.query", "a.query, b.query"))
    joined = check_files([tmp_path])
    assert (joined.files, [error.code for error in joined.errors if isinstance(error, QueryError)]) == (
        3,
        ["duplicate-query"],
    )


def test_other_yaml_of_a_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.query").write_text("inputs { A() within 9.0; } find A as a\n")
    (tmp_path / "a.case.yaml").write_text("name: x\nquery: a.query\n")
    assert (check_files([tmp_path]).files, check_files([tmp_path]).errors) == (1, ())


QUERY = "query Q{} {{ inputs {{ A(v > {}) key k within 9.0; }} find A as a where a.w = 1 }}\n"
OF_A_BOOK = {
    **{f"{number}.query": QUERY.format(number, number) for number in range(8)},
    "twice.query": QUERY.format(0, 1),
    "wrong.query": QUERY.format(9, 1).replace("a.w", "b.w"),
    "broken.query": "query Broken { inputs {",
    "events.query": "event A { string k; }\n" + QUERY.format(10, 1),
    "routes.query": "query R { inputs { A() within 9.0; } find A as a { route Lost(1); } }",
    "names.query": "query N { inputs { A() within 9.0; } find A as a -> b.A as b }",
    "kept.query": "query K { inputs { A() key k retain 1; B() key k retain 1; } find A as a -> B as b }",
    "deep/0.query": QUERY.format(0, 1),
}


@pytest.mark.parametrize(
    "definition",
    [
        "",
        "event A { string k; integer v; integer w; } event Lost { integer n; }",
        "event A { string k; } event Lost { integer n; }",
    ],
)
@pytest.mark.parametrize("left_out", ["", "names.query", "broken.query"])
def test_a_book_of_files_has_the_findings_of_each_file_by_itself(
    definition: str, left_out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    for name, text in OF_A_BOOK.items():
        if name != left_out:
            (tmp_path / name).write_text(text)
    if definition:
        (tmp_path / "a.mon").write_text(definition)
    together = check_files([tmp_path]).to_plain()
    monkeypatch.setattr(findings, "_found_at_once", lambda *_: {})
    assert together == check_files([tmp_path]).to_plain()
    assert len(together["errors"]) > 1
    assert together["warnings"]


def test_files_without_mistakes_are_checked_as_one_and_their_folder_is_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in range(8):
        (tmp_path / f"{name}.query").write_text(QUERY.format(name, name))
    checked, listed = list[int](), list[Path]()
    check, glob = querylang.check_paths, Path.glob

    def counting(paths: Iterable[Given]) -> Checked:
        given = list(paths)
        checked.append(len(given))
        return check(given)

    def listing(folder: Path, pattern: str) -> Iterator[Path]:
        listed.append(folder)
        return iter(list(glob(folder, pattern)))

    monkeypatch.setattr(querylang, "check_paths", counting)
    monkeypatch.setattr(Path, "glob", listing)
    check_files([tmp_path])
    assert (checked, listed) == ([8], [tmp_path])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache folder, in which findings of any book are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(findings, "MANY", 1)
    return tmp_path / "cache" / "ensue"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    (tmp_path / "book" / "deep").mkdir(parents=True)
    for name, text in OF_A_BOOK.items():
        (tmp_path / "book" / name).write_text(text)
    (tmp_path / "book" / "takes.query").write_text("query T { inputs { Lost() within 9.0; } find Lost as l }")
    (tmp_path / "book" / "unused.query").write_text(
        "query U { inputs { A() within 9.0; B() within 9.0; } find A as a }"
    )
    return tmp_path / "book"


def changed(chance: random.Random, book: Path) -> None:
    """Edit, rename, move or remove a file of a book, or change its definitions."""
    path = chance.choice(sorted(book.rglob("*.query")))
    match chance.choice(["edit", "break", "rename", "move", "remove", "copy", *["define"] * 4]):
        case "edit":
            path.write_text(chance.choice(list(OF_A_BOOK.values())))
        case "break":
            path.write_text(path.read_text().replace("find A", chance.choice(["find every", "fnd A", "find B"])))
        case "rename":
            path.rename(path.with_name(f"n{chance.randint(0, 9)}.query"))
        case "move":
            path.rename(chance.choice([book, book / "deep"]) / path.name)
        case "remove":
            path.unlink()
        case "copy":
            path.with_name(f"c{chance.randint(0, 9)}.query").write_text(path.read_text())
        case _:
            for old in book.rglob("*.mon"):
                old.unlink()
            fields = chance.choice(
                [
                    "string k; integer v; integer w;",
                    "string k; integer v; integer w;",
                    "string k;",
                    "string k; integer v; integer w; float x;",
                ]
            )
            text = f"event A {{ {fields} }} {chance.choice(['', 'event Lost { integer n; }'])}"
            (chance.choice([book, book / "deep"]) / "a.mon").write_text(chance.choice([text, ""]))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.usefixtures("cache")
def test_a_book_that_was_checked_before_has_the_findings_of_a_new_one(
    seed: int, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    for _ in range(20):
        (book / "0.query").write_text(QUERY.format(0, 0))
        paths = [book, *(sorted(book.rglob("*.mon")) if seed % 2 else ())]  # of another folder, too
        again = check_files(paths).to_plain()
        with monkeypatch.context() as patch:
            patch.setattr(findings, "MANY", 1_000)
            patch.setattr(findings, "_found_at_once", lambda *_: {})
            assert again == check_files(paths).to_plain()
        changed(chance, book)


def checked_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gets the names of the texts that are checked."""
    names, check = list[str](), querylang.check_paths

    def checking(paths: Iterable[Given]) -> Checked:
        given = list(paths)
        names.extend(Path(str(item.path if isinstance(item, Source) else item)).name for item in given)
        return check(given)

    monkeypatch.setattr(querylang, "check_paths", checking)
    return names


def clean(book: Path) -> None:
    """Leave those files only in which nothing is found."""
    for name in ("wrong", "broken", "routes", "names", "kept", "unused", "deep/0"):
        (book / f"{name}.query").unlink()
    (book / "events.query").write_text("event A { string k; integer v; integer w; }\n" + QUERY.format(10, 1))


def test_only_a_changed_file_of_a_book_is_checked_again(
    book: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean(book)
    check_files([book])
    names = checked_texts(monkeypatch)
    assert check_files([book]).files == len(list(book.glob("*.query")))
    assert names == []
    (book / "3.query").write_text(QUERY.format(3, 4))
    (book / "4.query").rename(book / "other.query")
    (book / "5.query").unlink()
    check_files([book])
    assert sorted(names) == ["3.query", "other.query"]
    assert len(json.loads(next(cache.iterdir()).read_text())["clean"]) == len(list(book.glob("*.query")))


def test_changed_definitions_and_another_release_check_a_book_again(
    book: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean(book)
    check_files([book])
    names = checked_texts(monkeypatch)
    (book / "a.mon").write_text("event A { string k; integer v; integer w; }")
    check_files([book])
    assert "3.query" in names
    names.clear()
    monkeypatch.setattr(files, "code_digest", lambda *_: "other")
    check_files([book])
    assert "3.query" in names
    assert [path.name[:8] for path in cache.iterdir()] == ["checked_"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"clean": {"a": 1}}', b"\xff", b'{"clean": {}, "more": 1}'])
def test_damaged_findings_are_made_anew(book: Path, cache: Path, content: bytes) -> None:
    before = check_files([book]).to_plain()
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(content)
    assert check_files([book]).to_plain() == before
    assert kept.read_bytes() == whole


def test_a_cache_that_others_may_write_is_left_alone(book: Path, cache: Path) -> None:
    before = check_files([book]).to_plain()
    cache.chmod(0o777)
    for kept in cache.iterdir():
        kept.write_text("{}")
    assert check_files([book]).to_plain() == before
    assert [kept.read_text() for kept in cache.iterdir()] == ["{}"]


def test_findings_of_few_books_are_kept(tmp_path: Path, cache: Path) -> None:
    for number in range(findings._MOST_KEPT + 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "a.query").write_text(QUERY.format(1, 1))
        check_files([folder])
    assert len(list(cache.iterdir())) == findings._MOST_KEPT
