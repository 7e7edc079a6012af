"""One broker for this folder's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kafka.broker import Broker, running_broker


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as found:
        yield found
