"""End a bounded run whose source Spark cannot tell that it is one: before PySpark 4.2."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread

from pyspark.sql.streaming.query import StreamingQuery


def stop_at_end(query: StreamingQuery) -> None:
    """Stop a query once its source has nothing new; the source must have fixed its end."""
    Thread(target=_stop, args=[query], daemon=True).start()


def _stop(query: StreamingQuery) -> None:
    with suppress(Exception):  # whoever waits for the query gets what ended it
        query.processAllAvailable()
        query.stop()
