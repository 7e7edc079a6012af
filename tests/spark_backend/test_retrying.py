"""What does not answer is asked again for as long as it was said, with two lines about it."""

from __future__ import annotations

import pytest

from job_engine.errors import FIRST_PAUSE, LONGEST_PAUSE, Outage, OutageTooLong


class Time:
    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def test_an_outage_is_told_at_its_beginning_and_at_its_end() -> None:
    time, said = Time(), list[str]()
    outage = Outage(600.0, said.append, lambda: time.now, time.sleep)
    outage.over("It")
    for _ in range(20):
        outage.wait("It is away")
    outage.over("It")
    assert said == ["It is away; it is asked again for 10 minutes", f"It answers again, after {time.now:.0f} s"]
    assert time.pauses[0] == FIRST_PAUSE
    assert max(time.pauses) == LONGEST_PAUSE


def wait_for_ever(outage: Outage) -> None:
    while True:
        outage.wait("It is away")


def test_it_ends_when_the_time_is_over_and_at_once_where_nothing_is_asked_again() -> None:
    time, said = Time(), list[str]()
    outage = Outage(600.0, said.append, lambda: time.now, time.sleep)
    with pytest.raises(OutageTooLong, match=r"^It is away for 10 minutes$"):
        wait_for_ever(outage)
    assert 600 <= time.now <= 605
    with pytest.raises(OutageTooLong, match=r"^It is away$"):
        Outage(0.0, said.append, lambda: time.now, time.sleep).wait("It is away")
