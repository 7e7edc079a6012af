"""What a query cannot say is refused with the line and the reason."""

from __future__ import annotations

import random
import re

import pytest

from ensue.importing.translation import translate
from querylang.errors import InputError
from querylang.load import check_text

SQL = """SELECT av FROM t MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY ts
  MEASURES A.v AS av, LAST(B.v) AS bv
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A B+ C)
  DEFINE
    A AS A.v > 10,
    B AS B.v < PREV(B.v),
    C AS C.v > PREV(C.v)
)
"""

REFUSED = [
    ("A.v AS av", "MATCH_NUMBER() AS av", "3: `MATCH_NUMBER()` is not translated"),
    ("A.v AS av", "A.v", "3: the measure `A.v` has no name"),
    ("(A B+ C)", "(A | B+ C)", "5: alternatives in the pattern are not translated"),
    ("(A B+ C)", "(PERMUTE(A, B, C))", "5: PERMUTE is not translated"),
    ("(A B+ C)", "(^ A B+ C)", "5: anchors in the pattern are not translated"),
    ("(A B+ C)", "(A {- B+ -} C)", "5: exclusions in the pattern are not translated"),
    ("(A B+ C)", "()", "5: the pattern is empty"),
    ("(A B+ C)", "(A B+ C", "5: the bracket of PATTERN is not closed"),
    ("(A B+ C)", "(A B{" + "9" * 5000 + "} C)", "5: this quantifier is not understood"),
    ("ONE ROW PER MATCH", "ALL ROWS PER MATCH", "4: ALL ROWS PER MATCH is not translated: a match is one row"),
    ("ORDER BY ts", "ORDER BY ts DESC", "2: ORDER BY … DESC is not translated: time runs forward"),
    ("C.v > PREV(C.v)", "C.v > *", "9: `*` is not translated"),
    ("C.v > PREV(C.v)", "C.v IN (1, NULL)", "9: `NULL` is not translated"),
    ("C.v > PREV(C.v)", "C.v IS NOT NULL", "9: `C.v IS NULL` is not translated"),
    ("C.v > PREV(C.v)", "C.v > PREV(C.v, 2)", "9: `PREV(C.v, 2)` looks further back than one row"),
    ("C.v > PREV(C.v)", "C.v > PREV(A.v)", "9: `PREV(A.v)` is not translated: PREV is of the row itself"),
    ("C.v > PREV(C.v)", "C.v > 1, D AS D.v > 1", "D is defined, but not in the pattern"),
    ("FROM t", "FROM s JOIN t ON 1 = 1", "1: JOIN around MATCH_RECOGNIZE is not translated"),
    (
        "FROM t",
        "FROM (SELECT * FROM t WHERE v IS NOT NULL)",
        "1: WHERE around MATCH_RECOGNIZE is not translated, other",
    ),
    ("FROM t", "FROM (SELECT k, v, ts FROM t)", "1: the SELECT that MATCH_RECOGNIZE reads must be SELECT *"),
    ("FROM t", "FROM (SELECT * FROM t LIMIT 3)", "1: LIMIT around the table of MATCH_RECOGNIZE is not translated"),
    ("FROM t", "FROM t WHERE k IS NOT NULL OR k = 1", "1: WHERE around MATCH_RECOGNIZE is not translated, other"),
    ("FROM t", "FROM t SAMPLE (10)", "1: SAMPLE around the table of MATCH_RECOGNIZE is not translated"),
    ("SELECT av", "WITH t AS (SELECT 1) SELECT av", "1: WITH around MATCH_RECOGNIZE is not translated"),
    ("C.v > PREV(C.v)\n)", "C.v > PREV(C.v)\n) OFFSET 5", "10: OFFSET around MATCH_RECOGNIZE is not translated"),
    ("C.v > PREV(C.v)\n)", "C.v > PREV(C.v)\n); SELECT 2", "10: a statement without MATCH_RECOGNIZE is not transl"),
    ("C.v > PREV(C.v)", f"C.v > {'(' * 300}1{')' * 300}", "9: this is nested too deeply; 40 brackets in each other"),
    (
        "A.v > 10,",
        f"{'NOT ' * 300} A.v > 10,",
        "7: this is nested too deeply; 40 brackets in each other are still translated",
    ),
    ("A.v AS av,", "A.v AS av, A.v AS av,", "3: the name 'av' is in MEASURES twice: give each another one"),
    ("BY k", "BY k, k", "2: the name 'k' is in PARTITION BY twice: give each another one"),
    ("A.v AS av", "A.v AS match_id", "3: the measure 'match_id' has the name of a column that every match has"),
    ("BY k", 'BY "k\x1b[31m"', "2: the name 'k\\x1b[31m' is not translated: a query has names of letters, signs and"),
    ("BY ts", 'BY "t\ns"', "3: the name 't\\ns' is not translated: a query has names of letters"),
    ("FROM t", 'FROM "t`"', "1: the name 't`' is not translated: a query has names of letters"),
    ("A.v AS av", 'A."" AS av', "3: an empty name is not translated: a query has names of letters"),
    ("A.v > 10", "A.v = 'x\x1b]0;y'", "7: the text 'x\\x1b]0;y' has a character that acts on a terminal"),
    ("A.v > 10", "A.v > 1e400", "7: the number 1e400 does not fit an integer or a float"),
    ("A.v > 10", "A.v > 99999999999999999999", "7: the number 99999999999999999999 does not fit an integer or a float"),
    ("A AS A.v > 10", "A AS A.v > 10 AND A.v || 'x' = 'y'", "7: `A.v || 'x'` is not translated"),
    (SQL, "SELECT 1", "this text has no MATCH_RECOGNIZE clause"),
]


def _said(text: str) -> str:
    with pytest.raises(InputError) as raised:
        translate(text, "p.sql", "Q")
    return str(raised.value)


def test_what_the_refusals_change_is_translated() -> None:
    assert "find t as a => t as b+ consecutive => t as c" in translate(SQL, "p.sql", "Q").replace("\n", " ")


@pytest.mark.parametrize(
    ("part", "other", "wanted"),
    [
        ("FROM t", 'FROM "find"', "inputs { #find() key k"),
        ("FROM t", 'FROM "my t"', "find `my t` as a => `my t` as b+ consecutive => `my t` as c"),
        ("BY k", 'BY "where", "my k"', "t() key #where?, `my k`? within"),
        ("BY ts", 'BY "my time"', "ensue replay FILE.query TABLE --arrival 'my time'"),
        ("AS av", 'AS "select"', "select a.v as #select"),
        ("AS av", 'AS "my v"', "select a.v as `my v`"),
        ("A.v > 10", 'A."my v" > 10 AND A."in" > 1', "where a.`my v` > 10 and a.in > 1"),
        ("A.v > 10", " OR ".join(["A.v > 10"] * 1000), " or ".join(["a.v > 10"] * 3)),
    ],
)
def test_names_that_are_keywords_or_have_blanks_are_quoted_and_long_conditions_kept(
    part: str, other: str, wanted: str
) -> None:
    query = translate(SQL.replace(part, other), "p.sql", "Q")
    assert wanted in " ".join(query.split())
    check_text(query)


def test_variables_that_are_keywords_get_other_names_than_other_variables() -> None:
    text = re.sub(r"\bA\b", "query", re.sub(r"\bB\b", "query_row", SQL))
    query = translate(text, "p.sql", "Q")
    assert "find t as query_row_row => t as query_row+ consecutive => t as c" in " ".join(query.split())
    check_text(query)


def test_a_value_in_a_list_is_one_of_its_values() -> None:
    listed = translate(SQL.replace("A.v > 10", "A.v IN (1, 2)"), "p.sql", "Q")
    assert "where a.v = 1 or a.v = 2\n" in listed


def test_the_short_form_of_a_skip_is_that_of_the_last_row() -> None:
    longer = SQL.replace("SKIP PAST LAST ROW", "SKIP TO LAST C")
    assert translate(longer.replace("LAST C", "C"), "p.sql", "Q") == translate(longer, "p.sql", "Q")
    assert "after match skip to last c" in translate(longer, "p.sql", "Q")


def test_a_missing_skip_is_that_of_the_standard_and_said() -> None:
    shorter = translate(SQL.replace("AFTER MATCH SKIP PAST LAST ROW", ""), "p.sql", "Q")
    lines = [line for line in shorter.splitlines() if not line.startswith("//")]
    assert lines == translate(SQL, "p.sql", "Q").splitlines()[1:]
    assert "Flink's default is SKIP TO NEXT ROW" in shorter


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("B.v < PREV(B.v)", "B.v < LAG(B.v)"),
        ("B.v < PREV(B.v)", "(LAST(B.v, 1) IS NULL AND B.v < A.v) OR B.v < LAST(B.v, 1)"),
        ("B.v < PREV(B.v)", "B.v < LAST(B.v, 1) OR B.v < LAST(A.v) AND LAST(B.v, 1) IS NULL"),
    ],
)
def test_the_row_before_has_one_form_however_it_is_written(part: str, other: str) -> None:
    assert translate(SQL.replace(part, other), "p.sql", "Q") == translate(SQL, "p.sql", "Q")


def test_the_last_row_of_the_variable_before_a_single_row_is_the_row_before() -> None:
    """So `B` and `C` exclude each other."""
    flink = SQL.replace("C.v > PREV(C.v)", "C.v > LAST(B.v)")
    assert "where c.v > last(b).v" in translate(flink, "p.sql", "Q")


OF_NULLS = [
    ("COUNT(B.v)", "count(b)"),
    ("COUNT(B.*)", "count(b)"),
    ("COUNT(B.w)", "3: `COUNT(B.w)` leaves out nulls, where a query counts events; count rows by COUNT(B.*)"),
    ("COUNT(A.w)", "3: `COUNT(A.w)` leaves out nulls"),
    ("COUNT(A.v)", "1"),
    ("COUNT(B.ts)", "count(b)"),
    ("COUNT(B.k)", "3: `COUNT(B.k)` leaves out nulls"),
    ("COUNT(*)", "1 + count(b) + 1"),
    ("SUM(B.v)", "sum(b.v)"),
    ("SUM(B.w)", "3: `SUM(B.w)` is null where all are null, where a sum is 0 here; let the condition of B compare w"),
    ("SUM(A.w)", "a.w"),
    ("AVG(B.w)", "avg(b.w)"),
    ("MIN(B.w)", "min(b.w)"),
]


@pytest.mark.parametrize(("measure", "wanted"), OF_NULLS, ids=[measure for measure, _ in OF_NULLS])
def test_a_measure_over_nulls_means_what_sql_means_or_is_refused(measure: str, wanted: str) -> None:
    text = SQL.replace("LAST(B.v) AS bv", f"{measure} AS bv")
    if wanted[0] == "3":
        assert wanted in _said(text)
    else:
        assert f"select {wanted} as bv" in translate(text, "p.sql", "Q")


def test_a_column_that_may_be_null_does_not_say_which_row_is_the_first() -> None:
    idiom = "(LAST(B.{}, 1) IS NULL AND B.v < A.v) OR B.v < LAST(B.v, 1)"
    assert "where b.v < prev(b).v" in translate(SQL.replace("B.v < PREV(B.v)", idiom.format("v")), "p.sql", "Q")
    assert "8: `LAST(B.w, 1)" in _said(SQL.replace("B.v < PREV(B.v)", idiom.format("w")))


def test_rows_without_a_key_are_a_partition_unless_the_text_leaves_them_out() -> None:
    text = SQL.replace("BY k ORDER", "BY k, j\n ORDER")
    assert " key k?, j? " in translate(text, "p.sql", "Q")
    assert " key k, j? " in translate(text.replace("FROM t", "FROM t WHERE k IS NOT NULL"), "p.sql", "Q")


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("PARTITION BY k ", ""),
        ("FROM t ", "FROM t WHERE k IS NOT NULL "),
        ("FROM t ", "FROM (SELECT * FROM t WHERE NOT (K IS NULL)) AS u "),
        ("FROM t ", "FROM (SELECT * FROM a.t AS x WHERE x.k IS NOT NULL) "),
        (")\n)\n", ")\n) AS m WHERE m.k IS NOT NULL\n"),
    ],
)
def test_a_text_that_leaves_out_null_keys_has_them_nowhere(part: str, other: str) -> None:
    assert part in SQL
    found = translate(SQL.replace(part, other), "p.sql", "Q")
    assert "?" not in found
    assert translate(SQL, "p.sql", "Q").replace(" key k?", "") == found.replace(" key k", "")


@pytest.mark.parametrize("other", ["B.v < LAST(B.v, 1)", "(LAST(B.v, 1) IS NULL AND B.v < 7) OR B.v < LAST(B.v, 1)"])
def test_what_is_not_the_row_before_is_refused(other: str) -> None:
    assert "8: `LAST(B.v, 1)" in _said(SQL.replace("B.v < PREV(B.v)", other))


@pytest.mark.parametrize(
    ("pattern", "skip", "reason"),
    [
        ("(A B+ C)", "LAST B", ""),
        ("(A B+ C)", "FIRST B", "where a fixed number of rows follows"),
        ("(A B+ C)", "LAST A", "where a fixed number of rows follows"),
        ("(A B C)", "LAST A", "where rows of a match come before it"),
        ("(A B? C)", "LAST B", "B may have no row"),
        ("(A B+ C)", "LAST D", "D is not a variable of the pattern"),
    ],
)
def test_a_skip_is_translated_where_no_later_match_can_end_before(pattern: str, skip: str, reason: str) -> None:
    text = SQL.replace("(A B+ C)", pattern).replace("SKIP PAST LAST ROW", f"SKIP TO {skip}")
    if reason:
        assert f"4: AFTER MATCH SKIP TO {skip[-1]}" in _said(text) or "4: D is not" in _said(text)
        assert reason in _said(text)
    else:
        assert "after match skip to last b" in translate(text, "p.sql", "Q")


@pytest.mark.parametrize(("part", "other", "reason"), REFUSED, ids=lambda text: text[:20])
def test_the_line_and_the_reason_are_named(part: str, other: str, reason: str) -> None:
    assert part in SQL
    assert reason in _said(SQL.replace(part, other))


def test_broken_texts_are_refused_and_raise_nothing_else() -> None:
    dice, words = random.Random(0), re.findall(r"\w+|\s+|.", SQL)
    refused = 0
    for _ in range(300):
        text = list(words)
        for _ in range(dice.choice((1, 2, 4))):
            text[dice.randrange(len(text))] = dice.choice((*words, "'", "PREV(A.v)", "{2,", "*", "()", "CASE"))
        try:
            translate("".join(text), "p.sql", "Q")
        except InputError:
            refused += 1
    assert refused > 100
