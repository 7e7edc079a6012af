"""On which engine a test runs its jobs. One that asks for the fixture `engine` alone has the local one."""

from __future__ import annotations

import pytest

from job_engine.setting_keys import Engine

ON_BOTH = pytest.mark.parametrize("engine", list(Engine), indirect=True)
"""The test runs its jobs on each engine."""
