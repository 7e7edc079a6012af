"""Load what listers and workers need of every kind, before their processes are forked."""

from __future__ import annotations

from job_engine.sources.kinds import FORMATS, planning_of, reading_of

LOADED = [(planning_of(name), reading_of(name)) for name in FORMATS]
