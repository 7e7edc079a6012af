"""Questions of users to a replay: why a match came, or did not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ensue.rendering.report import Explained, Folded
from querylang.errors import EnsueError, InputError, did_you_mean, listed
from querylang.source import Source, Span
from querylang.syntax import ast
from querylang.syntax.parser import parse
from runtime.columns.keys import GivenKey
from runtime.replay import FileRecords, Records, Script
from runtime.results.for_users import plain_value, routes_of, row_number
from runtime.scoring import LabelledTables, Score, scores_of
from runtime.why import Asking, Change, Ending, Funnel, Table, Why, funnel_of, short_time

if TYPE_CHECKING:
    import pyarrow as pa

    from ensue.queries import Compiled
    from querylang.plan.model import Plan, QueryPlan
    from runtime.results.schemas import Results


MOST_CAUSES = 5
"""Of a match, other matches that have routed events of it and are explained, too."""


class AskedReplay(Protocol):
    """What is asked of `ensue.answer.Replay`."""

    @property
    def plan(self) -> Plan:
        """The queries."""
        ...

    @property
    def records(self) -> Records | FileRecords:
        """What was replayed."""
        ...

    @property
    def results(self) -> Results:
        """What was found."""
        ...

    @property
    def until(self) -> int | None:
        """As of `ensue.answer.Replay`."""
        ...

    @property
    def flush(self) -> bool:
        """As of `ensue.answer.Replay`."""
        ...

    @property
    def script(self) -> Script | None:
        """As of `ensue.answer.Replay`."""
        ...

    @property
    def compiled(self) -> Compiled | None:
        """As of `ensue.answer.Replay`."""
        ...


def why(
    replay: AskedReplay,
    match: str | None = None,
    *,
    key: Any = None,
    at: str | float | datetime | None = None,
    row: int | None = None,
    source: str | None = None,
    query: str | None = None,
) -> Why:
    """The answer; parameters as of `Replay.why`. Raises InputError."""
    _refuse_changes(replay, "why")
    if sum(item is not None for item in (match, key, row)) > 1:
        raise InputError("ask by one of `match`, `key` and `row`")
    if (source is not None and row is None) or (at is not None and (match is not None or row is not None)):
        raise InputError("`source` goes with `row`, and `at` with `key`")
    queries = _chosen(replay, query)
    asking = Asking(table_of(replay))
    if match is not None:
        return _by_match(replay, asking, match)
    if row is not None:
        return asking.row(row, source, queries, replay.records.sources)
    if key is not None or at is not None:
        return _by_key(replay, asking, key, at, queries)
    missing = [item for item in queries if not len(replay.results.matches.get(item.title, ()))]
    return asking.nearest(missing or queries)


MOST_FOLDED, MOST_IN_ALL, MOST_RECORDS = 20, 100, 200_000
"""Matches of a query, and discarded records, that are explained; matches of all queries together;
of a larger table none are."""


def explained(replay: AskedReplay) -> Explained:
    """Why each of the first matches came, and each of the first records was discarded."""
    if len(replay.records) > MOST_RECORDS:
        text = f"of tables with more than {MOST_RECORDS:,} rows `ensue why --match ID` and `--row N` explain one by one"
        return Explained({}, (), text)
    try:
        _refuse_changes(replay, "why")
    except InputError as error:
        return Explained({}, (), str(error))
    asking = Asking(table_of(replay))
    matches: dict[str, list[Folded]] = {}
    left = MOST_IN_ALL
    for query in replay.plan.queries:
        matches[query.title] = list(_explained_matches(replay, asking, query, min(left, MOST_FOLDED)))
        left -= len(matches[query.title])
    return Explained(matches, list(_explained_discards(replay, asking)))


def _explained_matches(replay: AskedReplay, asking: Asking, query: QueryPlan, most: int) -> Iterator[Folded]:
    table = replay.results.matches.get(query.title)
    for row in [] if table is None else table.slice(0, most).to_pylist(maps_as_pydicts="lossy"):
        key = ", ".join(f"{name} {plain_value(value)}" for name, value in row["key"].items())
        title = " · ".join(part for part in (short_time(plain_value(row["time"])), key, row["match_id"]) if part)
        yield Folded(title, _said(partial(_why_match, replay, asking, row, query)))


def _explained_discards(replay: AskedReplay, asking: Asking) -> Iterator[Folded]:
    row_of, discarded = replay.records.row_of(), replay.results.discarded
    places = ("query", "reason", "source", "partition", "offset")
    for row in [] if discarded is None else discarded.select(places).slice(0, MOST_FOLDED).to_pylist():
        number = row_number(row_of, row["source"], row["partition"], row["offset"])
        queries = [query for query in replay.plan.queries if row["query"] in (None, query.title)]
        title = " · ".join(part for part in (f"row {number}", row["reason"], row["query"] or "") if part)
        if number is not None:
            asked = partial(asking.row, number, row["source"], queries[:1], replay.records.sources)
            yield Folded(title, _said(asked))


def _said(why: Callable[[], Why]) -> str:
    try:
        return str(why())
    except InputError as error:
        return str(error)


def funnels(replay: AskedReplay, query: str | None = None) -> list[Funnel]:
    """How far first steps came: of one query, or of each; those not counted are in a remark.

    Raises InputError if none can be.
    """
    _refuse_changes(replay, "funnel")
    table, found, refused = table_of(replay), list[Funnel](), list[InputError]()
    for item in _chosen(replay, query):
        try:
            found.append(funnel_of(table, item))
        except InputError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    last = found[-1]
    return [*found[:-1], replace(last, remarks=(*last.remarks, *map(str, refused)))]


def scores(replay: AskedReplay, labels: Any, within: str | timedelta | None, query: str | None) -> list[Score]:
    """How matches fit labels: of one query, or of each; as of `Replay.backtest`."""
    _refuse_changes(replay, "backtest")
    records = replay.records

    def last_row() -> int:
        return int(records.rows.max(initial=0))

    tables = LabelledTables(records.sources, records.row_of(), len(records), last_row)
    return scores_of(_chosen(replay, query), replay.results, labels, within, tables)


def _refuse_changes(replay: AskedReplay, command: str) -> None:
    if replay.script is not None:
        raise InputError(
            f"`{command}` answers where no control event changes the queries; these tables have some that do"
        )


def table_of(replay: AskedReplay) -> Table:
    """The records of a replay."""
    whole = replay.records if isinstance(replay.records, Records) else replay.records.whole()
    records = whole.until(replay.until)
    last = records.last_arrival if len(records) else None
    ending = Ending(replay.until, replay.flush, last)
    rewritten = None if replay.compiled is None else partial(rewritten_as, replay.compiled)
    return Table(replay.plan, records.arrivals.table, ending, whole.row_of(), records.rows, rewritten)


# The least change as text: a number or a length in the text of the query is replaced, and the text
# compiled. It is the right place if the plan is the one that was tried.


def rewritten_as(compiled: Compiled, change: Change, before: QueryPlan, after: QueryPlan) -> Change:
    """The change with the text of the file and the line to paste; as it is if no place gives it."""
    for number, source in enumerate(compiled.queries.texts):
        tree, _ = parse(source)
        for query in tree.items:
            if not isinstance(query, ast.Query) or query.name is None or query.name.text != before.name:
                continue
            for place in _places(query):
                for written in _written(change.after):
                    text = source.text[: place.start] + written + source.text[place.end :]
                    texts = [*compiled.queries.texts]
                    texts[number] = Source(source.path, text)
                    if _is_plan(compiled, texts, after):
                        line = Source(source.path, text).span(place.start, place.start).line
                        return replace(change, text=text.split("\n")[line - 1].strip(), query=text)
    return change


def _places(node: object) -> Iterator[Span]:
    """The constants and lengths in a part of a text."""
    if isinstance(node, ast.TimeLiteral | ast.Constant):
        yield node.span
        return
    if isinstance(node, ast.Unary) and isinstance(node.operand, ast.Constant):
        yield node.span
    if isinstance(node, tuple):
        for part in node:
            yield from _places(part)
    elif is_dataclass(node) and not isinstance(node, Span):
        for item in fields(node):
            yield from _places(getattr(node, item.name))


_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?')


def _written(clause: str) -> Iterator[str]:
    """What a clause may have in the place of a constant: its lengths and its constants."""
    length = re.search(r"(?:within |wait |wait\()(\d[\d.]* \w+(?: \d[\d.]* \w+)*)", clause)
    if length is not None:
        yield length[1]
    yield from dict.fromkeys(_NUMBER.findall(clause))


def _is_plan(compiled: Compiled, texts: Sequence[Source], wanted: QueryPlan) -> bool:
    """Whether the texts mean the wanted query."""
    try:
        plan = compiled.again(texts)
    except EnsueError:
        return False
    found = next((query for query in plan.queries if query.title == wanted.title), None)
    has_policies = any(item.policy is not None for item in wanted.inputs)
    return found is not None and _meaning(found, has_policies) == _meaning(wanted, has_policies)


def _meaning(query: QueryPlan, has_policies: bool) -> tuple[object, ...]:
    """What a change changes; policies and what is forgotten are settings of the run.

    has_policies: some replace waits
    """
    windows = [(item.within, item.retain, None if has_policies else item.wait) for item in query.inputs]
    return windows, query.conditions, query.trailing, query.automaton


def _chosen(replay: AskedReplay, query: str | None) -> Sequence[QueryPlan]:
    queries = replay.plan.queries
    if query is None:
        return queries
    names = list(dict.fromkeys(item.name for item in queries))
    if not isinstance(query, str):
        raise InputError(f"query: {query!r} is not the name of a query; there are {listed(names)}")
    found = [item for item in queries if query in (item.name, item.public_title)]
    if not found:
        raise InputError(f"there is no query '{query}'{did_you_mean(query, names)}; there are {listed(names)}")
    return found


def _by_match(replay: AskedReplay, asking: Asking, match: str) -> Why:
    for query in replay.plan.queries:
        table = replay.results.matches.get(query.title)
        if table is None:
            continue
        ids = table.column("match_id").to_pylist()
        if match in ids:
            (row,) = table.slice(ids.index(match), 1).to_pylist(maps_as_pydicts="lossy")
            return _why_match(replay, asking, row, query)
    raise InputError(f"there is no match {match!r}: `--format matches` prints them with their `match_id`")


def _why_match(replay: AskedReplay, asking: Asking, row: dict[str, Any], query: QueryPlan) -> Why:
    return with_causes(asking.match(row, query), replay.results.outputs, partial(_by_match, replay, asking))


def with_causes(why: Why, outputs: pa.Table, of_match: Callable[[str], Why]) -> Why:
    """The same with the matches that have routed its events, and what has routed theirs.

    outputs: what all matches have written
    of_match: explains a match, by its identity
    """
    routes = routes_of(outputs)
    answers, remarks = [], list(why.remarks)
    for answer in why.answers:
        ids = dict.fromkeys(routes[event.place]["match_id"] for event in answer.events if event.place in routes)
        causes = [of_match(match) for match in list(ids)[:MOST_CAUSES]]
        if len(ids) > MOST_CAUSES:
            remarks.append(f"{MOST_CAUSES} of {len(ids)} matches are explained that have routed events of one match")
        remarks += [remark for cause in causes for remark in cause.remarks]
        found = tuple(answer for cause in causes for answer in cause.answers)
        answers.append(replace(answer, causes=found))
    return Why(why.question, tuple(answers), tuple(dict.fromkeys(remarks)))


def _by_key(
    replay: AskedReplay, asking: Asking, key: Any, at: str | float | datetime | None, queries: Sequence[QueryPlan]
) -> Why:
    given: GivenKey | None = None
    shown = ""
    if key is not None:
        texts = [key] if isinstance(key, str) else key
        shown = " ".join(map(str, texts)) if isinstance(texts, Sequence) else str(key)
        if isinstance(texts, Sequence):
            given = GivenKey.of_texts([str(text) for text in texts], replay.plan)
        else:
            given = GivenKey(dict(key) if isinstance(key, Mapping) else {"": key})
        queries = [query for query in queries if given.values_for(replay.plan, query) is not None]
        if not queries:
            raise InputError(f"no query has the key {shown}")
    moment = None if at is None else asking.moment(str(at))
    return asking.key(
        given,
        moment,
        queries,
        " ".join(part for part in ("key" if shown else "", shown, f"at {at}" if at else "") if part),
    )
