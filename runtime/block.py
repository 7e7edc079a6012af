"""The block of a query: what each match prints and sends.

Takes matches as a table; gives rows of `OUTPUT_SCHEMA`, one a statement, in order. A statement that fails becomes a row of kind
`error` that says why, the rest of that match's block is not run, and the query goes on.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from querylang.plan import Plan, Print, QueryPlan, Send
from runtime.interpreter import EvaluationError, Values, evaluate, event_text
from runtime.results import OUTPUT_SCHEMA

Row = dict[str, Any]


def run_block(plan: Plan, query: QueryPlan, matches: pa.Table) -> pa.Table:
    """The outputs of a query's matches (`match_schema`)."""
    if not query.block:
        return OUTPUT_SCHEMA.empty_table()
    common = matches.select(["query", "time", "emitted", "match_id", "_step", "_rank"]).to_pylist()
    keys = matches.column("key").to_pylist()
    members = [_fields(matches, term.name) for term in query.terms]
    rows: list[Row] = []
    for number, shared in enumerate(common):
        shared["key"] = json.dumps(keys[number])
        bound = [fields[number] for fields in members]
        rows.extend({**shared, **row} for row in _run(plan, query, bound))
    return pa.Table.from_pylist(rows, schema=OUTPUT_SCHEMA)


def _fields(matches: pa.Table, name: str) -> list[Values]:
    member = matches.column("members").combine_chunks().field(name)
    values: list[Values] = member.field("fields").to_pylist()
    return values


def _run(plan: Plan, query: QueryPlan, bound: list[Values]) -> list[Row]:
    types = [plan.event(query.inputs[term.input].event) for term in query.terms]
    rows: list[Row] = []
    for statement in query.block:
        try:
            match statement:
                case Print(text=text):
                    rows.append({"kind": "print", "text": evaluate(text, bound, types)})
                case Send(event=name, arguments=arguments, channel=channel):
                    sent = [evaluate(argument, bound, types) for argument in arguments]
                    fields = dict(zip((field.name for field in plan.event(name).fields), sent, strict=True))
                    rows.append(
                        {
                            "kind": "send",
                            "channel": evaluate(channel, bound, types),
                            "text": event_text(plan.event(name), fields),
                            "event": json.dumps({"type": name, "fields": fields}),
                        }
                    )
        except EvaluationError as error:
            rows.append({"kind": "error", "text": str(error)})
            break
    return rows
