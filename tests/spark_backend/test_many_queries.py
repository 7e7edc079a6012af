"""Thousands of queries in a job: work grows with their number, and what queries share is made once."""

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import querylang
from job_engine.durable_files import JobFile
from job_engine.job.journal import Journal, Taking
from job_engine.job.plan_rules import refuse_name_conflicts
from job_engine.job.written_journal import (
    JOURNAL_VERSION,
    PlainJournal,
    asked_of_text,
    journal_of_plain,
    journal_to_plain,
)
from job_engine.sinks import bucket_results
from job_engine.wire import plan_text as texts
from job_engine.wire.partition_groups import partition_groups
from querylang.changes import Moment
from querylang.plan import model
from querylang.plan.model import Plan, QueryPlan
from querylang.running import Running
from runtime.columns.arrivals import Arrivals
from runtime.engine import query_state
from runtime.engine.engine import Engine
from runtime.engine.query_state import Saved
from runtime.json_reader import DamagedJson, json_of_text, packed
from runtime.policies.settings_text import with_forget_keys
from tests.support.rule_books import rule_book
from tests.support.sinks import sink_of

EVENTS = "event A { integer k; float v; } event B { integer k; float v; }"


def _query(number: int) -> str:
    return (
        f"query Q{number} {{ inputs {{ A() key k within 30.0; B() key k within 30.0; }}"
        f" find A as a -> B as b where b.v > a.v + {number}.5 }}"
    )


def _plan(count: int) -> Plan:
    return querylang.compile_text(f"{EVENTS} {' '.join(map(_query, range(count)))}").plan


class _Looked(tuple[QueryPlan, ...]):
    """Queries that count how often somebody looks through all of them."""

    __slots__ = ()
    looks = 0

    def __iter__(self) -> Iterator[QueryPlan]:
        type(self).looks += 1
        return super().__iter__()

    def __reversed__(self) -> Iterator[QueryPlan]:
        type(self).looks += 1
        return iter(tuple(super().__iter__())[::-1])


def _running(plan: Plan) -> None:
    Running.of(plan, plan)


def _conflicts(plan: Plan) -> None:
    refuse_name_conflicts(Path("job.yaml"), plan)


def _by_title(plan: Plan) -> None:
    titles = [f"Q{number}" for number in range(len(plan.queries))]
    assert [plan.query(title).title for title in titles] == titles


@pytest.mark.parametrize("work", [_running, _conflicts, _by_title])
def test_queries_are_not_looked_through_once_per_query(work: Callable[[Plan], None]) -> None:
    looks = []
    for count in (5, 20):
        plan = _plan(count)
        _Looked.looks = 0
        work(replace(plan, queries=_Looked(plan.queries)))
        looks.append(_Looked.looks)
    assert looks[0] == looks[1]


def test_a_title_that_a_plan_does_not_have_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        _plan(1).query("Q1")


def test_a_plan_is_written_as_a_whole_or_query_by_query_alike() -> None:
    plan = _plan(3)
    whole = json.dumps(model.to_dict(plan), sort_keys=True, separators=(",", ":"))
    assert texts.plan_text(plan) == texts.template_text(plan) == whole


def test_a_plan_is_read_query_by_query_as_it_was_written() -> None:
    plan = _plan(3)
    text = texts.template_text(plan)
    assert texts.load_plan(text) == plan
    assert texts.template_text(texts.load_plan(text)) == text


def test_a_plan_that_is_laid_out_in_another_way_is_read_too() -> None:
    plan = _plan(2)
    assert texts.load_plan(json.dumps(model.to_dict(plan), indent=1)) == plan


def test_a_plan_of_many_queries_is_small_and_has_the_fingerprint_that_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = querylang.compile_text(f"{EVENTS} {' '.join(ALIKE.format(n=n) for n in range(100, 300))}").plan
    whole = json.dumps(model.to_dict(plan), sort_keys=True, separators=(",", ":"))
    text = texts.plan_text(plan)
    assert len(text) < 10_000 < len(whole)
    assert texts.fingerprint(text) == texts.fingerprint(whole)
    _forget_all(monkeypatch)
    read = texts.load_plan.__wrapped__(text)
    assert read == plan == texts.load_plan(whole)
    assert texts.template_text(read) == text


@pytest.mark.parametrize(
    ("plain", "told"),
    [
        ({"forms": [], "queries": [[0, "Q"]]}, "expected what its form has marks for"),
        ({"forms": [[3, "\0n"]], "queries": [[0, 1]]}, "expected what its form has marks for"),
        ({"forms": [[3, "{\0f}"]], "queries": [[0, "1e9e9"]]}, "expected what its form has marks for"),
        ({"forms": [[3, "{}"]], "queries": [[]]}, "expected what its form has marks for"),
        ({"forms": [[3, "{}"]], "queries": [[0]]}, "an object does not say what it 'is'"),
        ({"forms": [[3, "[" * 2000]], "queries": [[0]]}, "nested"),
        ({"forms": [[3, "{}"]]}, "'queries' is missing"),
    ],
)
def test_a_packed_plan_that_cannot_be_is_refused(plain: Any, told: str) -> None:
    text = texts.plan_text(_plan(70))
    begin = text.index('"packed":"') + len('"packed":"')
    with pytest.raises(DamagedJson, match=re.escape(told)):
        texts.load_alone(text[:begin] + packed(json.dumps(plain)) + text[text.index('"', begin) :])


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_a_packed_plan_that_is_cut_off_is_refused(place: float) -> None:
    text = texts.template_text(_plan(70))
    with pytest.raises(DamagedJson, match="its plan is damaged"):
        texts.load_plan(text[: int(place * len(text))])


def test_a_journal_of_many_queries_is_small_and_read_again() -> None:
    plan = querylang.compile_text(f"{EVENTS} {' '.join(ALIKE.format(n=n) for n in range(100, 300))}").plan
    journal = Journal.begin(Running.of(plan, plan), plan)
    plain = journal_to_plain(journal)
    assert plain["version"] == JOURNAL_VERSION
    read = json_of_text(json.dumps(plain), PlainJournal, versions=[JOURNAL_VERSION])
    assert journal_of_plain(read) == journal
    assert journal_to_plain(Journal.begin(Running.of(_plan(2), _plan(2)), _plan(2)))["version"] == 1


def test_a_large_file_of_a_checkpoint_is_packed_and_a_small_one_is_not(tmp_path: Path) -> None:
    file = JobFile(tmp_path / "counts.json", list[tuple[str, int]], packs=1)
    small, large = [["Q1", 1]], [[f"Q{number}", 17] for number in range(10_000)]
    for plain in (small, large):
        file.write(plain)
        assert file.read() == [tuple(row) for row in plain]
    written = file.place.read_text(encoding="utf-8")
    assert len(written) < len(json.dumps(large)) // 3
    file.place.write_text(written[: len(written) // 2], encoding="utf-8")
    with pytest.raises(DamagedJson, match=r"counts\.json: is damaged: what is packed in it is cut off"):
        file.read()


@pytest.mark.parametrize("cut", [1, 20, 300, -1, -20])
def test_a_damaged_plan_is_refused(cut: int) -> None:
    with pytest.raises(DamagedJson, match="its plan is damaged"):
        texts.load_plan(texts.template_text(_plan(2))[:cut])


def test_a_query_is_read_once_whatever_plans_it_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = [_query(number).replace("30.0", f"{number}.0") for number in range(40, 44)]
    whole, changed = (querylang.compile_text(f"{EVENTS} {' '.join(own)}").plan for own in (queries[:3], queries[1:]))
    read: list[str] = []
    from_dict = model.from_dict

    def counting(data: Any) -> Plan:
        read.extend(query["name"] for query in data["plan"]["queries"])
        return from_dict(data)

    monkeypatch.setattr(model, "from_dict", counting)
    first, second = (texts.load_plan(texts.template_text(plan)) for plan in (whole, changed))
    assert read == ["Q40", "Q41", "Q42", "Q43"]
    assert first.queries[1] is second.queries[0]
    assert first.events is second.events


def test_a_change_writes_only_the_queries_that_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _plan(3)
    journal = Journal.begin(Running.of(plan, plan), plan)
    journal_to_plain(journal)
    written: list[str] = []
    to_dict = model.to_dict

    def counting(plan: Plan) -> Any:
        written.extend(query.name for query in plan.queries)
        return to_dict(plan)

    monkeypatch.setattr(model, "to_dict", counting)
    text = f"DeployQuery({json.dumps(_query(9))})"
    changed = journal.changed(
        asked_of_text(text), Taking(1, Moment(0, 0), 0, lambda plan: with_forget_keys(plan, None))
    )
    journal_to_plain(changed)
    assert [query.name for query in changed.running.plan().queries] == ["Q0", "Q1", "Q2", "Q9"]
    assert written == ["Q9"]


def test_files_are_checked_without_the_schemas_of_their_queries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("nobody needs it")

    monkeypatch.setattr(bucket_results, "spread_schema", refuse)
    bucket_results.refuse_unwritable("matches", sink_of("parquet", tmp_path), _plan(2))


ALIKE = """query Q{n} {{
    inputs {{ A(k = {n} or k in [{n}, 7], v > -{n}.5) key k within 30.0; }}
    find A as a -> A as b where b.v > a.v + {n}.25 {{ print "{n} \\" {n}"; print a.v.toString() + "{n}"; }}
}}"""


def _forget_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_WRITTEN", "_PARTS_READ", "_FORMS", "_MADE", "_TEXTS"):
        monkeypatch.setattr(texts, name, {})


@pytest.mark.parametrize("seed", [0, 3, 8, 42, 48])  # books without mistakes
def test_a_book_is_read_from_its_text_as_it_was_written(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = querylang.compile_paths(rule_book(random.Random(seed), has_mistakes=False)).plan.without_annotations()
    text = texts.template_text(plan)
    _forget_all(monkeypatch)
    read = texts.load_alone(text)
    assert read.queries == plan.queries
    assert texts.template_text(Plan(plan.events, read.queries, plan.stopped)) == text


def test_queries_that_differ_in_constants_are_read_from_their_texts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = querylang.compile_text(f"{EVENTS} {' '.join(ALIKE.format(n=n) for n in range(10, 40))}").plan
    text, read = texts.template_text(plan), list[Any]()
    _forget_all(monkeypatch)
    decoded = texts.plans.from_dict

    def counting(plain: Any) -> Plan:
        read.extend(plain["plan"]["queries"])
        return decoded(plain)

    monkeypatch.setattr(texts.plans, "from_dict", counting)
    assert texts.load_alone(text).queries == plan.queries
    assert len(read) == 2


def test_matchers_are_made_once_per_query_and_not_per_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, made = _plan(3), list[str]()
    choose = query_state.choose_matcher

    def counting(plan: Plan, query: QueryPlan, wanted: str) -> Any:
        made.append(query.title)
        return choose(plan, query, wanted)

    monkeypatch.setattr(query_state, "choose_matcher", counting)
    engine = Engine(plan)
    Engine.restore(plan, engine.snapshot())
    engine.followed_by(replace(plan, queries=plan.queries[1:]), {})
    assert made == ["Q0", "Q1", "Q2"]
    Engine(plan, "reference")
    assert made == ["Q0", "Q1", "Q2"] * 2


def test_records_are_selected_once_for_queries_of_equal_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    filtered = "query F { inputs { A(v > 1.0) key k within 30.0; } find A as a -> A as b }"
    text = f"{EVENTS} {_query(0)} {_query(1)} {filtered}"
    plan = querylang.compile_text(text).plan
    (group,) = [group for group in partition_groups(plan) if len(group.plan.queries) > 1]
    assert len(set(group.selectors)) == len({query.inputs for query in group.plan.queries})
    uses = group.uses(Arrivals.empty(plan))
    assert list(uses) == [query.title for query in group.plan.queries]
    assert uses["Q0"] is uses["Q1"]


def test_a_state_that_queries_share_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, looked = _plan(4), list[Saved]()
    state = Engine(plan).snapshot()
    is_private = Saved.is_private.fget
    assert is_private is not None

    def counting(saved: Saved) -> Any:
        looked.append(saved)
        return is_private(saved)

    monkeypatch.setattr(Saved, "is_private", property(counting))
    Engine.restore(plan, state)
    assert len(looked) == 1
