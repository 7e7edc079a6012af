"""The settings that docs/time.md and the pages for other systems name can be given as they are written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runtime.policies.plan_policies import parse_ordering

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("time", "from-apama", "from-flink", "from-stream-analytics")
TEXT = "".join((DOCS / f"{page}.md").read_text() for page in PAGES)
WRITTEN = sorted(set(re.findall(r"`((?:apama|stream_analytics|streaminsight) [^`]*=[^`]*)`", TEXT)))
PARTS = sorted(set(re.findall(r"\| `(every=[^`]*)`", TEXT)) | set(re.findall(r", `(every=[^`]*)` \|", TEXT)))


@pytest.mark.parametrize("setting", [*WRITTEN, *(f"streaminsight {part}" for part in PARTS)])
def test_a_setting_of_the_document_is_one(setting: str) -> None:
    parse_ordering(re.sub(r"=(d\b|\.\.\.)", "=5s", setting))


def test_the_document_has_settings() -> None:
    assert len(WRITTEN) > 5
    assert len(PARTS) > 3
