"""Mistakes of queries: `errors/*.cases` hold texts with the mistakes expected of each line written below it.

`// case: name` begins a text; `//~ column: code: message` is not part of it: it expects a mistake in the line above.
"""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from querylang import QueryError, QueryErrors, Source, compile_text
from querylang.errors import EnsueError, InputError, Mistake, nearest

FOLDER = Path(__file__).parent / "errors"


@dataclass(frozen=True)
class Case:
    name: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines if not line.startswith("//~"))


def read_cases() -> list[Case]:
    cases = []
    for path in sorted(FOLDER.glob("*.cases")):
        parts = re.split(r"^// case: (.*)\n", path.read_text(), flags=re.MULTILINE)
        assert parts[0] == "", f"{path} has text before its first case"
        for name, body in zip(parts[1::2], parts[2::2], strict=True):
            cases.append(Case(f"{path.stem}: {name}", tuple(body.rstrip("\n").split("\n"))))
    return cases


def mistakes_of(text: str) -> tuple[QueryError, ...]:
    try:
        return compile_text(text, "case.query").warnings
    except QueryErrors as found:
        return found.errors


def annotated(case: Case) -> list[str]:
    """The case as it should be written: its text with the mistakes that are found."""
    found: dict[int, list[str]] = {}
    for error in mistakes_of(case.text):
        found.setdefault(error.span.line, []).append(f"//~ {error.span.column}: {error.code}: {error.message}")
    lines = []
    for number, line in enumerate(case.text.splitlines(), start=1):
        lines += [line, *found.pop(number, [])]
    assert not found, f"mistakes beyond the text: {found}"
    return lines


CASES = read_cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_mistakes_are_those_written_beside_the_lines(case: Case) -> None:
    assert annotated(case) == list(case.lines)


def test_a_wrong_expectation_fails() -> None:
    case = Case("wrong", ("inputs { A(); }", "//~ 11: no-window: this input needs `within` or `retain`", "find A as a"))
    assert annotated(case) != list(case.lines)


@pytest.mark.parametrize(
    "case", [case for case in CASES if any(line.startswith("//~") for line in case.lines)], ids=lambda case: case.name
)
def test_an_altered_expectation_fails(case: Case) -> None:
    altered = tuple(f"{line}!" if line.startswith("//~") else line for line in case.lines)
    assert annotated(case) != list(altered)


def test_a_missing_expectation_fails() -> None:
    case = Case("missing", ("inputs { A(); }", "find A as a"))
    assert annotated(case) != list(case.lines)


def nested(depth: int) -> str:
    """A pattern of that many levels."""
    pattern = "A as a"
    for level in range(depth):
        pattern = f"({pattern}) {'->' if level % 2 else 'and'} A as a{level}"
    return f"inputs {{ A() within 3; }} find {pattern}"


ELSEWHERE = {
    Mistake.OPEN_COMMENT: "/* x",
    Mistake.NO_QUERY: "",
    Mistake.TOO_DEEP: f"inputs {{ A() within 3; }} find A as a where {'not ' * 300} true",
    Mistake.TOO_MANY_HEARTBEATS: "inputs { "
    + " ".join(f"A{number}() within 3 wait 1 or H;" for number in range(61))
    + " } find A0 as a",
    Mistake.PATTERN_TOO_DEEP: nested(150),
    Mistake.TYPE_TOO_DEEP: f"inputs {{ A() within 3; }} find A as a {{ {'sequence<' * 30}float{'>' * 30} s; }}",
    Mistake.STATEMENTS_TOO_DEEP: f"inputs {{ A() within 3; }} find A as a {'{' * 60}{'}' * 60}",
    Mistake.EVENT_TOO_DEEP: "".join(f"event E{number} {{ E{number + 1} e; }} " for number in range(25))
    + "event E25 { integer x; } inputs { E0() within 3; } find E0 as a",
    Mistake.FIELDS_TOO_LARGE: "".join(
        f"event E{number} {{ E{number + 1} e; E{number + 1} f; }} " for number in range(9)
    )
    + "event E9 { integer x; } inputs { E0() within 3; } find E0 as a",
    Mistake.EVENT_TOO_LARGE: f"event A {{ {' '.join(f'integer f{number};' for number in range(1000))} }}"
    " inputs { A() within 3; } find A as a { A b := new A; }",
    Mistake.PATTERN_TOO_LONG: "inputs { A() within 3; } find "
    + " -> ".join(f"A as a{number}" for number in range(1001)),
}
"""Mistakes that a case with comments in it cannot show, or could only show at length."""


@pytest.mark.parametrize("mistake", ELSEWHERE, ids=lambda mistake: mistake.name)
def test_mistakes_without_a_case(mistake: Mistake) -> None:
    assert [error.code for error in mistakes_of(ELSEWHERE[mistake])] == [mistake.code]


OF_OTHER_TESTS = {
    Mistake.UNSEEN_EVENT,  # needs data: test_compiler
    Mistake.SCHEMA_DIFFERS,  # needs data: test_compiler
    Mistake.AMBIGUOUS_EVENT,  # needs several files: test_load
    Mistake.LAYOUT_TOO_DEEP,  # raised by the formatter: test_limits
    Mistake.TOO_MANY_TYPES,  # thirty thousand are too many for a case: test_limits
    Mistake.TOO_MANY_MISTAKES,  # a thousand are too many for a case: test_limits
}


def test_every_mistake_of_the_catalogue_is_shown_by_a_case() -> None:
    messages = [error.message for case in CASES for error in mistakes_of(case.text)]
    messages += [error.message for text in ELSEWHERE.values() for error in mistakes_of(text)]
    for mistake in set(Mistake) - OF_OTHER_TESTS:
        pattern = re.sub(r"\\{.*?\\}", ".*", re.escape(mistake.words))
        assert any(re.match(pattern, message) for message in messages), f"no case shows {mistake.name}"


def test_every_code_of_the_catalogue_is_shown_by_a_case() -> None:
    shown = {error.code for case in CASES for error in mistakes_of(case.text)}
    elsewhere = {mistake.code for mistake in {*ELSEWHERE, *OF_OTHER_TESTS}}
    assert {mistake.code for mistake in Mistake} == shown | elsewhere


def test_the_cases_are_many_and_of_different_names() -> None:
    names = [case.name for case in CASES]
    assert len(names) >= 150
    assert len(set(names)) == len(names)


def test_no_mistake_speaks_of_what_comes_later() -> None:
    later = re.compile(r"not[- ](?:yet[- ])?(?:supported|implemented)|unsupported|\byet\b")
    assert [mistake.name for mistake in Mistake if later.search(f"{mistake.code} {mistake.words}")] == []


def test_ten_mistakes_of_one_text_are_ten_in_text_order() -> None:
    (case,) = (case for case in CASES if case.name == "syntax: ten mistakes in one text")
    found = mistakes_of(case.text)
    assert len(found) >= 10
    assert [(error.span.line, error.span.column) for error in found] == sorted(
        (error.span.line, error.span.column) for error in found
    )


def test_mistakes_come_in_text_order() -> None:
    for case in CASES:
        starts = [error.span.start for error in mistakes_of(case.text)]
        assert starts == sorted(starts), case.name


def test_a_mistake_prints_its_place_and_a_caret_span() -> None:
    text = """query Cards {
  inputs { Withdrawal() key card within 1 hour; }
  find Withdrawal as w1 -> Withdrawal as w2
  where w3.country != w1.country
}
event Withdrawal { string card; string country; }
"""
    with pytest.raises(QueryErrors) as caught:
        compile_text(text, "queries/cards.query")
    assert (
        str(caught.value)
        == """\
queries/cards.query:4:9: unknown-name: 'w3' is not a name of this pattern; did you mean 'w2'?
  4 |   where w3.country != w1.country
    |         ^^"""
    )


def test_a_report_holds_all_mistakes() -> None:
    text = "event A { integer x; }\ninputs {\n\tA()\tkey y within 3 minuts; }\r\nfind A as a where a.x > 1d and not 3\n"
    with pytest.raises(QueryErrors) as caught:
        compile_text(text)
    assert (
        str(caught.value)
        == """\
query:3:10: unknown-field: 'A' has no field 'y'
  3 | \tA()\tkey y within 3 minuts; }
    | \t   \t    ^
query:3:21: unknown-unit: unknown unit of time 'minuts'; did you mean 'minutes'?
  3 | \tA()\tkey y within 3 minuts; }
    | \t   \t               ^^^^^^
query:4:19: type: `>` does not take integer and decimal; convert the integer with `.toDecimal()`
  4 | find A as a where a.x > 1d and not 3
    |                   ^^^^^^^^
query:4:32: type: a condition must be boolean, not integer
  4 | find A as a where a.x > 1d and not 3
    |                                ^^^^^"""
    )


def test_line_numbers_of_two_digits_shift_the_bar() -> None:
    with pytest.raises(QueryErrors) as caught:
        compile_text("\n" * 9 + "inputs { A() within 3; } find B as b", "q.query")
    assert (
        str(caught.value)
        == """\
q.query:10:31: not-an-input: 'B' is not an input of this query
  10 | inputs { A() within 3; } find B as b
     |                               ^"""
    )


def test_a_mistake_over_several_lines_is_marked_in_its_first() -> None:
    with pytest.raises(QueryErrors) as caught:
        compile_text("inputs { A() within 3; } find A as a where 1\n  + 1.5d = 3.0")
    assert str(caught.value).splitlines()[1:] == [
        "  1 | inputs { A() within 3; } find A as a where 1",
        "    |                                            ^",
    ]


def test_a_long_line_is_cut_around_the_place() -> None:
    text = "inputs { A() within 3; } find A as a where " + "true and " * 100 + "b.x = 3"
    with pytest.raises(QueryErrors) as caught:
        compile_text(text)
    line, carets = str(caught.value).splitlines()[1:]
    assert len(line) < 180
    assert line[carets.index("^") :].startswith("b.x = 3")


def test_characters_that_no_terminal_shows_are_replaced() -> None:
    with pytest.raises(QueryErrors) as caught:
        compile_text("\x00\x1b \ud800")
    assert str(caught.value).encode()
    assert "\x1b" not in str(caught.value)


def test_errors_survive_pickling() -> None:
    with pytest.raises(QueryErrors) as caught:
        compile_text("inputs { A(); } find B as b")
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, QueryErrors)
    assert str(again) == str(caught.value)
    assert [(error.code, error.span.line, error.message) for error in again.errors] == [
        (error.code, error.span.line, error.message) for error in caught.value.errors
    ]


def test_input_errors_survive_pickling() -> None:
    assert str(pickle.loads(pickle.dumps(InputError("x.csv: no such file")))) == "x.csv: no such file"


def test_all_errors_have_one_base() -> None:
    assert issubclass(QueryErrors, EnsueError)
    assert issubclass(QueryError, EnsueError)
    assert issubclass(InputError, EnsueError)


def test_lines_and_columns_count_from_one() -> None:
    source = Source("x", "ab\ncd")
    assert [(source.span(at, at + 1).line, source.span(at, at + 1).column) for at in (0, 1, 2, 3, 5)] == [
        (1, 1),
        (1, 2),
        (1, 3),
        (2, 1),
        (2, 3),
    ]


def test_half_a_character_in_a_string_is_a_mistake() -> None:
    text = 'inputs { A() within 30.0; }\nfind A as a { print "x\ud83d"; }'
    with pytest.raises(QueryErrors) as raised:
        compile_text(text)
    assert [(mistake.code, mistake.span.start) for mistake in raised.value.errors] == [
        ("character", text.index("\ud83d"))
    ]


@pytest.mark.parametrize(
    ("name", "known", "wanted"),
    [
        ("country", ["amount"], None),
        ("name", ["time"], None),
        ("w3", ["w1", "w2"], "w2"),
        ("ab", ["ba"], "ba"),
        ("amnt", ["amount", "country"], "amount"),
        ("duratoin_", ["duration", "ration"], "duration"),
        ("card", ["card_id"], "card_id"),
        ("toUpperCase", ["toUpper", "toLower"], "toUpper"),
        ("AMOUNT", ["amount"], "amount"),
    ],
)
def test_a_name_is_suggested_if_few_of_its_letters_differ(name: str, known: list[str], wanted: str | None) -> None:
    assert nearest(name, known) == wanted
