"""The columns that a file of a job may lack, once its source has brought records: any."""

from __future__ import annotations

from collections.abc import Container


class AnyColumn(Container[str]):
    """All columns: the source has brought records, so the queries name its columns rightly."""

    def __contains__(self, _name: object) -> bool:
        """A file may lack each."""
        return True


ANY_COLUMN = AnyColumn()
