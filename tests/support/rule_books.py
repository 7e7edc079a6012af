"""Random books of queries that differ in constants and names, of a few forms."""

from __future__ import annotations

import random

from querylang.source import Source

EVENTS = "event E { string k; integer code; float v; string s; } event F { string k; integer code; float v; }\n"

_FORMS = [
    "inputs {{ E(code = {i} or code = {i}) key k within 60.0; }} find E as a -> E as b where a.code = {i} and b.v > a.v + {f}",
    "inputs {{ E() key k within {f}; }} find E as a -> E as b where a.code = {i} and b.code = {i} and a.v * {f} < b.v",
    "inputs {{ E(code in [{i}, {i}, {i}]) key k retain {i}; }} find E as a where a.v > {f} and a.v < {f}",
    "inputs {{ E(s.like({s}) and code > {i} and code < {i}) key k retain 3; }} find E as a",
    "inputs {{ E(code in [{i} : {i}]) key k retain 3; }} find E as a where a.s != {s} {{ print {s}; }}",
    "inputs {{ E(v > -{f}, s = {s}) key k within 60.0; }} find every E as a select sum(a.v + {f}) as t having t > {f}",
    "inputs {{ E() key k within 60.0; }} find every E as a select max(a.v + {f}) as t select max(a.v + {f}) as u having count() > {i}",
    "inputs {{ E() key k within 60.0; F() key k within 60.0; }} find E as a -> F as b without F as c where c.code = {i} within {f}",
    "inputs {{ F() key k within 60.0; }} find F as a{{{i},}} -> F as b where sum(a.v) > {f} and b.code > {i}",
    "parameters {{ integer p := {i}; float q; }} inputs {{ E(code > p + {i}) key k within 60.0; }} find E as a where a.v > q - {f}",
    "inputs {{ E() key k within 60.0; }} find E as a where {i} < a.code and a.code + {i} = {i} {{ // of {s}\n log {s} at INFO; send F(a.k, {i}, {f}) to {s}; }}",
    "metadata {{ {s}: {s} }} inputs {{ E(v > {i}) key k within 60.0; }} find E as a where a.v <= {i} and a.s.startsWith({s})",
    "inputs {{ E() key k within 60.0; }} find E as a {{ route F(a.k, {i}, {f}); }}",
    "inputs {{ E() key k within 60.0; }} find wait({f}) -> E as a -> wait({f}) where a.s in [{s}, {s}] at most {i} per {f}",
    "inputs {{ E() key k within 60.0; }} find E as a where a.s.split({s}).size() > {i} and a.v = {i}.toFloat()",
    "inputs {{ E() key k within 60.0; }} find E as a -> E as b where b.code > {i} and (a.code + b.code) % {i} = {i}",
]
_WRONG = [
    "inputs {{ E() key k within 60.0; }} find E as a where a.cod = {i}",
    "inputs {{ E(code = {s}) key k within 60.0; }} find E as a",
    "inputs {{ E() key k within 60.0; }} find E as a where a.code = = {i}",
    "inputs {{ E() key k within 0.0; }} find E as a where a.v > {f}",
    "inputs {{ E(code > {i}00000000000000000000) key k within 60.0; }} find E as a",
]


def _constant(chance: random.Random, kind: str) -> str:
    match kind:
        case "i":
            return str(chance.choice([0, 1, 2, 3, 5, 7, 100]))
        case "f":
            return chance.choice(
                ["0.5", "1.0", "2.5", "60.0", "1e3", "0.0"] if chance.random() < 0.1 else ["0.5", "1.0", "2.5"]
            )
    return chance.choice(['"a"', '"b*"', '"x y"', '"}"', '"q\\"s"', '""', '"// no"'])


def _query(chance: random.Random, form: str, name: str) -> str:
    parts = form.replace("{{", "\0").replace("}}", "\1")
    while (at := parts.find("{")) >= 0:
        parts = parts[:at] + _constant(chance, parts[at + 1]) + parts[at + 3 :]
    return f"query {name} {{ {parts} }}\n".replace("\0", "{").replace("\1", "}")


def rule_book(chance: random.Random, *, has_mistakes: bool) -> list[Source]:
    forms = chance.sample(_FORMS, 3) + (chance.sample(_WRONG, 1) if has_mistakes else [])
    queries = [_query(chance, chance.choice(forms), f"Q{number}") for number in range(40)]
    if has_mistakes and chance.random() < 0.3:
        queries[chance.randrange(40)] = _query(chance, forms[0], "Q7")
    if chance.random() < 0.5:
        return [Source("book.query", EVENTS + "".join(queries))]
    files = [
        Source(f"{number}.query", chance.choice(["", "package p;\n"]) + text) for number, text in enumerate(queries)
    ]
    return [Source("events.query", EVENTS + _query(chance, forms[0], "Z")), *files]
