"""The oracle finds what the examples say."""

from __future__ import annotations

import pytest

from tests.oracle.events import SECOND
from tests.oracle.examples import ADDITIONS, TODAY
from tests.oracle.inputs import partitions
from tests.oracle.letters import matches, rows
from tests.oracle.reader import read_input


@pytest.mark.parametrize(("find", "inputs", "events", "wanted"), [*TODAY, *ADDITIONS])
def test_a_find_gives_what_its_example_says(find: str, inputs: str, events: str, wanted: str) -> None:
    assert matches(find, inputs, events) == [match for match in wanted.split("; ") if match]


def test_older_duplicates_keep_their_retain_slot() -> None:
    sensors = read_input("R retain 3 with unique s")
    (events,) = partitions([sensors], [], rows("R1(A) R2(B) R3(C) R4(B) R5(D) R6(C) R7(D)")).values()
    windows = [sensors.window(events[:count]) for count in range(1, 8)]
    shown = [" ".join(f"{event.time // SECOND}{event.row.s}" for event in window) for window in windows]
    assert shown == ["1A", "1A 2B", "1A 2B 3C", "3C 4B", "3C 4B 5D", "4B 5D 6C", "6C 7D"]


def test_a_wrong_example_is_noticed() -> None:
    assert matches("A as a+ -> B as b", "A; B", "A1 A2 B3") != ["a: A2, b: B3"]
