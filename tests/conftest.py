"""Options of the whole suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("random streams")
    group.addoption("--streams", type=int, default=150, help="how many random streams the differential test runs")
    group.addoption("--streams-seed", type=int, default=0, help="draw other streams than those of every day")
