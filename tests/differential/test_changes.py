"""Random schedules of changes over random streams, against each query run by itself."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

import ensue

EVENT = "event A { string k; float v; integer n; }\n"


@dataclass(frozen=True)
class Text:
    """A text of a query; `reach`: seconds, as a handover waits for it; None = without limit."""

    name: str
    body: str
    reach: float | None

    @property
    def text(self) -> str:
        return f"{EVENT}query {self.name} {{ {self.body} }}"


def texts(name: str) -> list[Text]:
    """Texts that differ in windows, waits and conditions."""
    pair = "find A:a -> A:b where b.v > a.v { print b.n.toString(); }"
    return [
        Text(name, f"inputs {{ A() key k within 6.0; }} {pair}", 6.0),
        Text(name, f"inputs {{ A() key k within 6.0; }} {pair.replace('print b', 'print a')}", 6.0),
        Text(name, f"inputs {{ A() key k within 3.0; }} {pair}", 3.0),
        Text(name, "inputs { A() key k within 5.0; } find A:a -> wait(2.0):w {}", 7.0),
        Text(name, "inputs { A() key k within 9.0; } find A:a -> A:b where a.v = b.v {}", 9.0),
        Text(name, f"inputs {{ A() key k retain 3; }} {pair}", None),
        Text(name, "inputs { A() key k within 4.0 wait 2.0; } find A:a -> A:b where b.v > a.v {}", 4.0),
        Text(name, "inputs { A() key k within 3.0; } find A as a -> wait(2.0) as w {1,3} {}", 9.0),
        Text(name, "inputs { A() key k within 5.0; } find A as a {1,2} => A as b where b.v > a.v {}", 5.0),
        Text(name, "inputs { A() key k within 6.0; } find A as a -> wait(1.0) -> A as b where b.v > a.v {}", 6.0),
        Text(
            name,
            f"inputs {{ A() key k within 6.0; }} {pair} ".replace("{ print", "at most 1 per 4.0 by a.v { print"),
            6.0,
        ),
        Text(name, "inputs { A() key k within 3.0 new by v within 4.0; } find A as a -> A as b {}", 7.0),
        Text(name, "inputs { A() key k within 4.0; } find all A as a -> A as b where b.v = a.v + 1.0 {}", 4.0),
    ]


@dataclass
class Life:
    """A text at work: from a row, until before another; `starts`, `ends`: times of its matches."""

    text: Text
    first: int
    last: int | None = None
    starts: float = -1e18
    ends: float = 1e18


def rows_of(random: Random, count: int) -> list[dict[str, Any]]:
    rows, at = [], 0.0
    for number in range(count):
        at += random.choice([0, 0.25, 0.5, 1, 2.5])
        ts = max(0.0, at - random.choice([0, 0, 0.5, 3]))
        rows.append(
            {"at": at, "event": "A", "ts": ts, "k": random.choice("xy"), "v": random.randrange(4) * 1.0, "n": number}
        )
    return rows


def found_by(text: Text, rows: list[dict[str, Any]], until: float | None) -> list[tuple[Any, ...]]:
    """The matches of a text alone over rows."""
    if not rows:
        return []
    return facts(ensue.replay(text.text, rows, until=until).match_objects())


def facts(matches: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What is compared of matches: not their ids, because rows have other numbers."""
    members = [tuple(sorted((name, _numbers(item)) for name, item in match["members"].items())) for match in matches]
    return [(match["query"], match["time"], match["emitted"], own) for match, own in zip(matches, members, strict=True)]


def _numbers(member: Any) -> list[int]:
    """Those of an event, or of the events of a run."""
    return [event["fields"]["n"] for event in (member if isinstance(member, list) else [member])]


def seconds(text: str) -> float:
    """A time of the first hour of 1970, in seconds."""
    hours, minutes, rest = text.rstrip("Z").partition("T")[2].split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(rest)


@pytest.mark.parametrize("seed", range(12))
def test_each_text_finds_what_it_finds_by_itself(seed: int) -> None:
    random = Random(seed)
    rows = rows_of(random, 60)
    first = random.choice(texts("P"))
    lives: dict[str, list[Life]] = {"P": [Life(first, 0)]}
    over: list[Life] = []
    table: list[dict[str, Any]] = []
    expected: Counter[str] = Counter()
    for number, row in enumerate(rows):
        if random.random() < 0.15:
            text = change(random, lives, over, number, rows, expected)
            at = rows[number - 1]["at"] if number else 0.0
            table.append({"at": at, "event": text} | dict.fromkeys(("ts", "k", "v", "n")))
        table.append(row)
    result = ensue.replay(first.text, table)
    wanted: list[tuple[Any, ...]] = []
    for life in [*over, *(life for own in lives.values() for life in own)]:
        own = rows[life.first : life.last]
        ends_at = None if life.last is None else rows[life.last - 1]["at"] if life.last else 0.0
        wanted += [match for match in found_by(life.text, own, ends_at) if life.starts <= seconds(match[1]) < life.ends]
    assert sorted(facts(result.match_objects())) == sorted(wanted)
    kinds = Counter(row["kind"] for row in result.output_objects() if row["kind"] != "print")
    assert +Counter({kind: count for kind, count in kinds.items() if kind != "handed_over"}) == +expected
    from_steps = [match for step in result.steps for match in step["matches"]]
    assert facts(from_steps) == facts(result.match_objects())


PAIR = (
    f"{EVENT}query S {{ parameters {{ float least := 2.0; float length := 6.0; }}"
    " inputs { A() key k within length; } find A:a -> A:b where b.v >= a.v + least }"
)


@pytest.mark.parametrize("seed", range(10))
def test_values_of_instances_hold_from_the_next_event_on(seed: int) -> None:
    random = Random(seed)
    table, expected = [], []
    instances: dict[str, dict[str, float]] = {"": {"least": 2.0, "length": 6.0}}
    windows: dict[str, list[dict[str, Any]]] = {"": []}
    for row in rows_of(random, 50):
        if random.random() < 0.25:
            table.append(
                dict.fromkeys(row) | {"at": row["at"], "event": set_or_remove(random, row, instances, windows)}
            )
            continue
        table.append(row)
        for name, values in instances.items():
            windows[name] = [old for old in windows[name] if row["at"] - old["at"] < values["length"]]
            fitting = [old for old in windows[name] if old["k"] == row["k"] and row["v"] >= old["v"] + values["least"]]
            expected += [(name, fitting[-1]["n"], row["n"])] if fitting else []
            windows[name].append(row)
    matches = ensue.replay(PAIR, table).match_objects()
    own = [(match["instance"], *(match["members"][name]["fields"]["n"] for name in "ab")) for match in matches]
    assert sorted(own) == sorted(expected)


def set_or_remove(
    random: Random,
    row: dict[str, Any],
    instances: dict[str, dict[str, float]],
    windows: dict[str, list[dict[str, Any]]],
) -> str:
    """A random change of an instance at a row's arrival, done in `instances` and `windows`."""
    name = random.choice(["", "eu", "us"])
    for own, values in instances.items():
        windows[own] = [old for old in windows[own] if row["at"] - old["at"] < values["length"]]
    if random.random() < 0.3:
        instances.pop(name, None)
        windows.pop(name, None)
        return f'RemoveInstance("S", "{name}")'
    values = {"least": random.choice([0.0, 1.0, 3.0]), "length": random.choice([1.0, 4.0, 12.0])}
    given = {key: value for key, value in values.items() if random.random() < 0.7}
    instances[name] = instances.get(name, {"least": 2.0, "length": 6.0}) | given
    windows.setdefault(name, [])
    windows[name] = [old for old in windows[name] if row["at"] - old["at"] < instances[name]["length"]]
    return f'SetParameters("S", "{name}", {json.dumps(given)})'


def change(
    random: Random,
    lives: dict[str, list[Life]],
    over: list[Life],
    number: int,
    rows: list[dict[str, Any]],
    expected: Counter[str],
) -> str:
    """A random change before a row, done in `lives` as it should be."""
    name, what = random.choice("PQ"), random.choice(["deploy", "replace", "replace", "undeploy", "now"])
    text = random.choice(texts(name))
    current = lives.get(name)
    if what == "deploy":
        expected["error" if current else "deployed"] += 1
        if not current:
            lives[name] = [Life(text, number)]
        return json.dumps({"DeployQuery": [text.text]})
    if what == "undeploy":
        expected["undeployed" if current else "error"] += 1
        over += [replace_end(life, number) for life in lives.pop(name, [])]
        return f'UndeployQuery("{name}")'
    event = json.dumps({"ReplaceQuery": [text.text, what == "now"]})
    if not current or current[-1].text == text:
        expected["unchanged" if current else "error"] += 1
        return event
    expected["replaced"] += 1
    if {text, current[-1].text} == set(texts(name)[:2]):  # only the block differs
        current[-1].text = text
        return event
    reached = max([row["at"] for row in rows[:number]] + [row["ts"] for row in rows[:number]] + [0.0])
    if what == "now" or text.reach is None:
        over += [replace_end(life, number) for life in current]
        lives[name] = [Life(text, number)]
        return event
    handover = reached + text.reach
    for life in current:
        life.ends = min(life.ends, handover)
    lives[name] = [*current, Life(text, number, starts=handover)]
    return event


def replace_end(life: Life, number: int) -> Life:
    return replace(life, last=number)


LATE = """@OutOfOrder()
event A { string k; float v; integer n; float ts; }
event Beat { string k; float ts; }
"""


def late_text(length: float, wait: float, beat: str) -> str:
    time_from = " time from ts" if beat else ""
    return (
        f"query P {{ inputs {{ A() key k within {length}{time_from} wait {wait}{beat}; }}"
        " find A:a -> A:b where b.v > a.v }"
    )


@pytest.mark.parametrize("beat", ["", " or Beat"])
@pytest.mark.parametrize("seed", range(6))
def test_the_old_text_ends_that_takes_events_out_of_order(seed: int, beat: str) -> None:
    random = Random(seed)
    rows: list[dict[str, Any]] = []
    at = 0.0
    for number in range(150):
        at += random.choice([0, 0.25, 0.5, 1, 2.5])
        own = {"at": at, "k": random.choice("xy"), "ts": max(0.0, at - random.choice([0, 0.5, 3, 7, 12]))}
        if beat and random.random() < 0.2:
            rows.append(own | {"event": "Beat", "v": None, "n": None})
        else:
            rows.append(own | {"event": "A", "v": random.randrange(4) * 1.0, "n": number})
    old, new = late_text(6.0, 8.0, beat), late_text(9.0, random.choice([3.0, 8.0]), beat)
    place = random.randrange(40, 60)
    moment = rows[place - 1]["at"]
    change = {"at": moment, "event": json.dumps({"ReplaceQuery": [LATE + new]})} | dict.fromkeys(("k", "ts", "v", "n"))
    result = ensue.replay(LATE + old, [*rows[:place], change, *rows[place:]])
    kinds = [row["kind"] for row in result.output_objects()]
    assert kinds == ["replaced", "handed_over"]
    handover = moment + 9.0
    before = facts(ensue.replay(LATE + old, rows).match_objects())
    after = facts(ensue.replay(LATE + new, rows[place:]).match_objects())
    wanted = [match for match in before if seconds(match[1]) < handover]
    wanted += [match for match in after if seconds(match[1]) >= handover]
    assert sorted(facts(result.match_objects())) == sorted(wanted)
    assert len(wanted) > 10


@pytest.mark.parametrize("seed", range(6))
def test_an_old_text_keeps_what_an_ordering_brings_late(seed: int) -> None:
    random = Random(seed)
    rows: list[dict[str, Any]] = []
    at = 0.0
    for number in range(150):
        at += random.choice([0, 0.25, 0.5, 1])
        ts = max(0.0, at - random.choice([0, 0.5, 3, 7]))
        rows.append(
            {"at": at, "event": "A", "ts": ts, "k": random.choice("xy"), "v": random.randrange(4) * 1.0, "n": number}
        )
    ordering = "stream_analytics late=10s out_of_order=8s"
    old, new = texts("P")[0].text, texts("P")[4].text
    place = random.randrange(40, 60)
    moment = rows[place - 1]["at"]
    change = {"at": moment, "event": json.dumps({"ReplaceQuery": [new]})} | dict.fromkeys(("ts", "k", "v", "n"))
    result = ensue.replay(old, [*rows[:place], change, *rows[place:]], ordering=ordering)
    (said,) = (row["text"] for row in result.output_objects() if row["kind"] == "replaced")
    assert "the old text has given its last match, so it runs on" in said
    handover = moment + 9.0
    before = facts(ensue.replay(old, rows, ordering=ordering).match_objects())
    found = facts(result.match_objects())
    assert [match for match in found if seconds(match[1]) < handover] == [
        match for match in before if seconds(match[1]) < handover
    ]
    assert any(seconds(match[1]) >= handover for match in found)
