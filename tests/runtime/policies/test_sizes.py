"""Sizes in settings."""

from __future__ import annotations

import pytest

from runtime.policies.settings_text import parse_size


@pytest.mark.parametrize(("text", "size"), [("16 MB", 16 << 20), ("1kB", 1024), ("1 GB", 1 << 30)])
def test_a_size_is_a_number_with_a_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "16", "MB", "-1 MB", "2 GB", "0 kB", "1.5 MB", "1 XB", "9" * 400 + " MB"])
def test_anything_else_is_not(text: str) -> None:
    assert parse_size(text) is None
