"""Jobs refuse queries that look something up in tables beside the stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from job_engine.job.plan_rules import refuse_name_conflicts
from querylang.errors import FileErrors
from querylang.load import compile_text

QUERY = """table Asset { key string host; integer level; }
event A { string host; }
query Q { inputs { A() within 9.0; } find A as a where Asset[a.host].level > 1 }"""


def test_the_table_and_the_way_out_are_named() -> None:
    with pytest.raises(FileErrors) as raised:
        refuse_name_conflicts(Path("job.yaml"), compile_text(QUERY).plan)
    assert "query 'Q' looks something up in table 'Asset', which jobs cannot do yet" in str(raised.value)
    assert "`ensue replay`" in str(raised.value)
