"""Files and folders as one set of queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from querylang import InputError, QueryErrors, Type, check_paths, compile_paths
from querylang.load import read_sources
from querylang.plan.expression import FieldOf
from tests.support.pace import measured

QUERY = "inputs { A() key id within 3; } find A as a"


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def messages(caught: pytest.ExceptionInfo[QueryErrors], folder: Path) -> list[str]:
    return [str(error).splitlines()[0].replace(f"{folder}/", "") for error in caught.value.errors]


def test_a_folder_holds_queries_of_both_extensions(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"b.query": QUERY, "a.qry": QUERY, "deep/c.query": QUERY, "x.txt": "?", "a.mon": "event A { integer id; }"},
    )
    write(tmp_path, {"deep/c.mon": "event A { integer id; }"})
    assert [query.name for query in compile_paths([tmp_path]).plan.queries] == ["a", "b", "c"]


def test_a_file_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, {"a.query": "event A { integer id; }" + QUERY})
    assert len(compile_paths([tmp_path, tmp_path / "a.query"]).plan.queries) == 1


def test_missing_and_unreadable_paths_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.query: no such file or folder$"):
        check_paths([tmp_path / "missing.query"])
    with pytest.raises(InputError, match=r"no query files in this folder$"):
        check_paths([tmp_path])
    (tmp_path / "latin.query").write_bytes(b"// \xe9")
    with pytest.raises(InputError, match=r"not UTF-8 text \(byte 4\)$"):
        check_paths([tmp_path])


def test_a_text_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a.query").write_bytes(b"\xef\xbb\xbfinputs { A() within 3; } find A as a\r\n")
    assert compile_paths([tmp_path]).plan.queries[0].name == "a"


def test_mistakes_of_all_files_come_in_order_of_files_and_text(tmp_path: Path) -> None:
    write(tmp_path, {"a.query": "inputs { A(); } find B as b", "b.query": "inputs { A() within ; }"})
    with pytest.raises(QueryErrors) as caught:
        compile_paths([tmp_path / "b.query", tmp_path / "a.query"])
    assert messages(caught, tmp_path) == [
        "b.query:1:21: syntax: unexpected `;`; expected an expression",
        "a.query:1:10: no-window: this input needs `within` or `retain`",
        "a.query:1:22: not-an-input: 'B' is not an input of this query",
    ]


def test_query_names_are_unique_in_a_set(tmp_path: Path) -> None:
    write(tmp_path, {"a.query": f"query b {{ {QUERY} }} event A {{ integer id; }}", "b.query": QUERY})
    with pytest.raises(QueryErrors) as caught:
        compile_paths([tmp_path])
    assert messages(caught, tmp_path) == [
        "b.query:1:1: duplicate-query: duplicate query 'b', already defined at a.query:1",
    ]


def test_the_same_definition_twice_is_one_type(tmp_path: Path) -> None:
    write(tmp_path, {"a.query": "event A { integer id; }" + QUERY, "b.query": "event A { integer id; }" + QUERY})
    assert [event.name for event in compile_paths([tmp_path]).plan.events] == ["A"]


def test_two_definitions_of_one_name_are_a_mistake(tmp_path: Path) -> None:
    write(tmp_path, {"a.query": "event A { integer id; }" + QUERY, "b.query": "event A { string id; }" + QUERY})
    with pytest.raises(QueryErrors) as caught:
        compile_paths([tmp_path])
    assert messages(caught, tmp_path) == [
        "b.query:1:7: duplicate-event: 'A' is defined with other fields or annotations at a.query:1",
    ]


def test_definitions_make_unknown_types_of_their_folder_a_mistake(tmp_path: Path) -> None:
    write(tmp_path, {"with/a.query": "inputs { B() within 3; } find B as b", "with/a.mon": "event A { integer id; }"})
    write(tmp_path, {"without/b.query": "inputs { B() within 3; } find B as b"})
    with pytest.raises(QueryErrors) as caught:
        compile_paths([tmp_path])
    assert messages(caught, tmp_path) == [
        "with/a.query:1:10: unknown-event: unknown event type 'B'; define it: where some event types are defined, all have to be"
    ]


MONITOR = """
package com.example;
import "plugin" as p;
/** comment */
event Other { sequence<float> s; action<float> callback; }
@TimeFrom("getTime")
event A {
    constant float LEAST := 1.0;
    integer id;
    float ts;
    action getTime() returns float { return ts; }
    action total(integer n) returns float { if n > 3 { return 1.0; } return ts * n.toFloat(); }
}
monitor Main {
    event Inner { integer x; }
    action onload() { on all A(id > 3) as a { log a.toString() at INFO; } $ ? | }
}
event B { integer x; }
"""


def test_monitors_are_read_for_their_event_definitions_only(tmp_path: Path) -> None:
    write(tmp_path, {"a.query": "inputs { com.example.A() key id within 3 wait 1; } find A as a", "a.mon": MONITOR})
    plan = compile_paths([tmp_path]).plan
    assert [event.name for event in plan.events] == ["Other", "A", "B"]
    assert [field.name for field in plan.event("A").fields] == ["id", "ts"]
    assert plan.queries[0].inputs[0].time_from == FieldOf(Type.FLOAT, 0, "ts")


def test_two_packages_may_have_one_name(tmp_path: Path) -> None:
    write(
        tmp_path, {"one.mon": "package one; event A { integer id; }", "two.mon": "package two; event A { float id; }"}
    )
    write(tmp_path, {"a.query": "using two.A; inputs { A() within 3; } find A as a where a.id > 1.0"})
    write(tmp_path, {"b.query": "inputs { one.A() within 3; two.A() within 3; } find one.A as a -> two.A as b"})
    plan = compile_paths([tmp_path / "a.query", tmp_path / "b.query"]).plan
    assert [event.name for event in plan.events] == ["one.A", "two.A"]
    assert [[item.event for item in query.inputs] for query in plan.queries] == [["two.A"], ["one.A", "two.A"]]


def test_a_name_of_two_packages_needs_its_package(tmp_path: Path) -> None:
    write(
        tmp_path, {"one.mon": "package one; event A { integer id; }", "two.mon": "package two; event A { float id; }"}
    )
    write(tmp_path, {"a.query": "inputs { A() within 3; } find A as a"})
    with pytest.raises(QueryErrors) as caught:
        compile_paths([tmp_path / "a.query"])
    assert messages(caught, tmp_path) == [
        "a.query:1:10: ambiguous-event: 'A' may be 'one.A' or 'two.A': write the package too",
    ]


def test_warnings_come_in_text_order_with_their_places(tmp_path: Path) -> None:
    write(
        tmp_path, {"a.query": "query A { parameters { float p; } inputs { A() within 3; B() within 3; } find A as a }"}
    )
    warnings = compile_paths([tmp_path]).warnings
    assert [(error.code, error.span.column) for error in warnings] == [("unused-parameter", 30), ("unused-input", 58)]


def test_a_set_of_a_thousand_queries_is_checked_in_little_time(tmp_path: Path) -> None:
    body = """parameters { float least; } inputs { A(v > least) key id within 10 minutes; B() key id retain 3; }
        find A as a -> B as b where a.v < b.v and a.id = b.id within 5 minutes without A as c where c.v > a.v
        { print a.toString() + b.v.toString(); }"""
    events = "event A { integer id; float v; } event B { integer id; float v; } "
    write(tmp_path, {"a.query": events + "".join(f"query Q{number} {{ {body} }}\n" for number in range(1000))})
    with measured() as used:
        assert len(compile_paths([tmp_path]).plan.queries) == 1000
    assert used.seconds < 10.0


def test_mistakes_of_a_definition_beside_are_told_when_a_query_uses_it(tmp_path: Path) -> None:
    monitor = "event Bad { strng id; } event Worse { integer ; } event Fine { integer x; }"
    write(tmp_path, {"a.query": "inputs { Fine() within 3; } find Fine as a", "a.mon": monitor})
    assert compile_paths([tmp_path]).plan.queries
    write(tmp_path, {"a.query": "inputs { Bad() within 3; Worse() within 3; } find Bad as a"})
    with pytest.raises(QueryErrors) as caught:
        compile_paths([tmp_path])
    assert messages(caught, tmp_path) == [
        "a.mon:1:13: unknown-type: unknown type 'strng'; did you mean 'string'?",
        "a.mon:1:47: syntax: unexpected `;`; expected a name",
    ]


def test_definitions_alone_are_checked_too(tmp_path: Path) -> None:
    write(tmp_path, {"a.mon": "event Bad { strng id; }"})
    with pytest.raises(QueryErrors, match="unknown-type"):
        check_paths([tmp_path / "a.mon"])


def test_the_mark_of_an_encoding_is_no_part_of_a_text(tmp_path: Path) -> None:
    path = tmp_path / "marked.query"
    path.write_bytes(b"\xef\xbb\xbfinputs { A() within 3; } find A as a")
    ((source,), _) = read_sources([path])
    assert source.text.startswith("inputs")


def test_a_name_that_no_file_system_holds_is_no_file() -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        check_paths([Path("x" * 300 + ".query")])


def test_definitions_are_looked_for_once_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "types.mon").write_text("event A { integer x; }\n")
    for number in range(5):
        (tmp_path / f"q{number}.query").write_text("inputs { A() within 1; } find A as a\n")
    looked: list[Path] = []
    glob = Path.glob

    def counted(folder: Path, pattern: str) -> Iterator[Path]:
        looked.append(folder)
        return glob(folder, pattern)

    monkeypatch.setattr(Path, "glob", counted)
    queries, definitions = read_sources(sorted(tmp_path.glob("*.query")))
    assert len(queries) == 5
    assert [item.path for item in definitions] == [str(tmp_path / "types.mon")]
    assert looked == [tmp_path, tmp_path]  # once by this test itself
