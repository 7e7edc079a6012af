"""What makes commands start fast: imports that they do without."""

from __future__ import annotations

import sys
from typing import Any


class _NoPandas:
    """Finds no module, and says so of pandas."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        if name == "pandas":
            raise ImportError(name)


def load_arrow_alone() -> None:
    """Load pyarrow without pandas, which takes longer than all that a small table needs.

    Arrow looks for pandas at its first array, because a pandas column may be given to it. It looks
    again when it is asked for a DataFrame. Commands give it none, so it need not know pandas yet.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    refusal: Any = _NoPandas()
    sys.meta_path.insert(0, refusal)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(refusal)
