"""A small version of `make torture`: that it works, and that what it does in minutes is right."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from job_engine.setting_keys import Engine
from tests.torture import attacks
from tests.torture.__main__ import torture
from tests.torture.answers import Answers
from tests.torture.hostile import attempt


def test_a_job_that_is_killed_at_random_moments_gives_what_a_replay_gives(tmp_path: Path) -> None:
    figures = torture(tmp_path / "job [x] a*b", kills=3, seed=4, rows=1500, engine=Engine.LOCAL, change_rate=0.05)
    assert not figures.problems, "\n".join(figures.problems)
    assert figures.kills == 3
    assert figures.matches > 100
    assert figures.scans


@pytest.mark.parametrize("kind", sorted(attacks.ATTACKS))
def test_broken_inputs_meet_errors_of_our_own_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    attack = attacks.ATTACKS[kind]()
    attack.run(attack.samples[0])
    found = {
        number: wrong for number in range(max(10, 150 // attack.together)) if (wrong := attempt(attack, number)[1])
    }
    assert not found


def test_the_comparison_tells_what_is_missing_and_what_is_too_many() -> None:
    none: Counter[tuple[object, ...]] = Counter()
    found = Answers(Counter({("a",): 2}), none, none, none).differences(
        Answers(Counter({("a",): 1, ("b",): 1}), none, none, none)
    )
    assert [line.partition(":")[0] for line in found] == ["matches", "matches"]
    assert "1 too many of 2" in found[0]
    assert "1 missing of 2" in found[1]
