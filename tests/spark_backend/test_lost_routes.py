"""Events that a query routes and no query takes."""

from __future__ import annotations

from pathlib import Path

import querylang
from ensue.commands.findings import check_files
from spark_backend.job.checks.writing_statements import lost_routes

TEXT = """event A { integer n; } event B { integer n; } event C { integer n; }
query Q { inputs { A() within 9.0; } find A as a { if a.n > 1 then { route B(1); route C(2); route C(3); } route A(1); } }
query R { inputs { B() within 9.0; } find B as b }"""


def test_each_type_is_reported_once() -> None:
    found = list(lost_routes(querylang.compile_text(TEXT).plan))
    assert found == ["query Q: routes 'C', which no query here takes"]


def test_a_file_that_is_a_program_by_itself_is_asked_too(tmp_path: Path) -> None:
    file = tmp_path / "q.query"
    file.write_text(TEXT, "utf-8")
    assert [str(item) for item in check_files([file]).warnings] == [
        f"{file}: query Q: routes 'C', which no query here takes"
    ]
