"""Blocks and actions: what is said about them, and the plan's statements."""

from __future__ import annotations

import pytest

from querylang.checker.statements import DEEPEST
from querylang.plan import model as plan
from querylang.plan.expression import (
    Binary,
    Call,
    EventOf,
    FieldOf,
    Invoke,
    Items,
    Literal,
    LocalOf,
    MemberOf,
    New,
    ParameterOf,
    Type,
)
from tests.querylang.checker.probe import check

A, B = Type.event("A"), Type.event("B")

LEGAL = [
    "",
    "float x; x := 1.0; x := x + a.x;",
    "float x := 1.0; { float x := 2.0; { float a := x; print a.toString(); } }",
    "{ float x; } { integer x; }",
    "optional<integer> q := 42; sequence<float> s := []; dictionary<string, B> d := {}; decimal e := 1d;",
    "sequence<sequence<float>> m := [[1.0], []]; m[0][0] := 2.0; m[1] := [];",
    'dictionary<string, B> d; d["x"] := B(1); d["x"].m := 2;',
    "location l; l.x1 := 3.0;",
    "if a.b { return; } else if a.x > 1.0 { print a.s; } else { }",
    "while true { if a.b { break; } continue; }",
    "for x in a.xs { print x.toString(); }",
    "integer i; for i in [1, 2] { print i.toString(); } print i.toString();",
    "for x in a.counts.keys() { for y in a.xs { break; } continue; }",
    "ifpresent unset { print unset.x.toString(); } else { print k; }",
    "ifpresent unset as u, a.o as o { print (u.x + o).toString(); }",
    'log "x"; log "x" at TRACE; print k + p.toString();',
    'send B(1) to "c"; send a to k; emit a; emit B(1) to "c"; route a.nested;',
    "ifpresent unset as u { route u; }",
    'a.xs.append(1.0); a.nothing(); a.getTime(); a.twice(1); B.parse("B(1)"); integer.parse("1");',
    "a.x := 3.0; a.nested.m := 1; a := new A;",
    '%send("eventType":"B", "channel":"\\"c\\"", "fields":{"m":"a.n + 1"});',
    '%send("eventType":"A", "fields":{});',
    '%custom("title":"x") { float a2 := a.x; }',
]  # fmt: skip


@pytest.mark.parametrize("block", LEGAL)
def test_legal_blocks(block: str) -> None:
    assert check(block).reported == ""


MISTAKES = {
    # declarations
    "float x; integer x;": "x: duplicate-name: 'x' is already a name of this block",
    "float a;": "a: duplicate-name: 'a' is already a name of this block",
    "float k;": "k: duplicate-name: 'k' is already a name of this block",
    "float p;": "p: duplicate-name: 'p' is already a name of this block",
    "print x; string x;": "x: unknown-name: 'x' is declared further down: a name must be declared before it is used",
    "string x := x;": "x: unknown-name: 'x' is declared further down: a name must be declared before it is used",
    "{ string x; } print x;": "x: unknown-name: 'x' is not a name of this pattern",
    "integer n; float x := n;": "n: type: 'x' must be float, not integer; convert the integer with `.toFloat()`",
    "flaot x;": "flaot: unknown-type: unknown type 'flaot'; did you mean 'float'?",
    "Wrong x; x := 1; print x.y;": "Wrong: unknown-type: unknown type 'Wrong'",
    "float x := a.y; print x;": "y: unknown-field: 'A' has no field 'y'\n"
    "x: type: the text of `print` must be string, not float; convert the float with `.toString()`",
    # assignments
    "x := 1;": "x: unknown-name: 'x' is not a name of this pattern",
    'k := "x";': "k: assignment: 'k' is a key: it cannot be assigned to",
    "p := 1.0;": "p: assignment: 'p' is a parameter of the query: it cannot be assigned to",
    "A.MAX := 1;": "A.MAX: assignment: a constant cannot be assigned to",
    "unset := new optional<A>;": "unset: assignment: 'unset' may be unset: it cannot be assigned to",
    "integer n; a.x := n;": "n: type: what is assigned must be float, not integer; convert the integer with `.toFloat()`",
    "a.y := 1;": "y: unknown-field: 'A' has no field 'y'",
    "a.counts[1] := 1;": "1: type: a key of this dictionary must be string, not integer; "
    "convert the integer with `.toString()`",
    # loops and conditions
    "if a.n { }": "a.n: type: a condition must be boolean, not integer",
    "while a.s { }": "a.s: type: a condition must be boolean, not string",
    "break;": "break: not-in-loop: `break` can be used only in a loop",
    "if a.b { continue; }": "continue: not-in-loop: `continue` can be used only in a loop",
    "for x in a.counts { print x; }": "a.counts: type: `for` takes a sequence, not dictionary<string,integer>; "
    "take its `.keys()` or `.values()`",
    "for x in a.n { }": "a.n: type: `for` takes a sequence, not integer",
    "string i; for i in a.xs { }": "i: type: 'i' must be float, not string",
    "for x in a.xs { print x; }": "x: type: the text of `print` must be string, not float; "
    "convert the float with `.toString()`",
    "for x in a.xs { } print x;": "x: unknown-name: 'x' is not a name of this pattern",
    # optionals
    "ifpresent a.x as y { }": "a.x: type: `ifpresent` takes optionals, not float",
    "ifpresent a.o as y, a.o as y { }": "y: duplicate-name: 'y' is already a name of this block",
    "ifpresent a.o as y { } else { print y; }": "y: unknown-name: 'y' is not a name of this pattern",
    # output
    "print 3;": "3: type: the text of `print` must be string, not integer; convert the integer with `.toString()`",
    "log a at INFO;": "a: type: the text of `log` must be string, not A; convert the A with `.toString()`",
    "log k at INFOO;": "INFOO: unknown-level: unknown log level 'INFOO'; did you mean 'INFO'?",
    "send a to 3;": "3: type: a channel must be string, not integer; convert the integer with `.toString()`",
    "send 3 to k;": "3: type: `send` takes an event, not integer",
    "send B to k;": "B: type: 'B' is an event type, not a value: `B(...)` makes an event",
    "send unset to k;": "unset: type: `send` takes an event, not optional<A>; "
    "what may be unset is taken out with `ifpresent`",
    "emit k;": "k: type: `emit` takes an event, not string",
    "route a.x;": "a.x: type: `route` takes an event, not float",
    '%send("eventType":"B", "fields":{"mm":"1"});': "mm: unknown-field: 'B' has no field 'mm'; did you mean 'm'?",
    '%send("eventType":"B", "fields":{"m":"k"});': "k: type: 'm' of 'B' must be integer, not string; "
    "convert the string with `.toInteger()`",
    '%send("eventType":"Bb", "fields":{"m":"k"});': "Bb: unknown-event: unknown event type 'Bb'; did you mean 'B'?",
    '%send("eventType":"B", "fields":{"m":"1", "m":"2"});': "m: duplicate-name: duplicate value for 'm'",
    # the rest
    "a.x;": "a.x: no-effect: this statement has no effect: call an action or assign with `:=`",
    "nope();": "nope: unknown-function: unknown action or event type 'nope'",
    "return 1;": "1: return: the block of a `find` returns nothing",
    "self.x := 1.0;": "self: not-in-queries: `self` cannot be used in a query: a query is not an event; "
    "use the pattern's names and the keys",
}


@pytest.mark.parametrize(("block", "message"), MISTAKES.items())
def test_what_is_said_about_a_block(block: str, message: str) -> None:
    assert check(block).reported == message


BROKEN = [
    "float x = 3.0; x := 1.0; print x.y;",
    "integer n := 3 +; while n < 3 { n := n + 1; }",
    "flaot x :=; print x;",
]


@pytest.mark.parametrize("block", BROKEN)
def test_nothing_follows_from_a_declaration_that_could_not_be_parsed(block: str) -> None:
    assert [line.split(": ")[1] for line in check(block).reported.splitlines()] == ["syntax"]


def test_nothing_follows_from_an_action_that_could_not_be_parsed() -> None:
    found = check("f(a);", "action f(A e returns float { return e.x; }").reported
    assert [line.split(": ")[1] for line in found.splitlines()] == ["syntax"]


LEGAL_ACTIONS = [
    "action f(A e) returns float { return e.x; }",
    "action f(integer n) returns integer { if n <= 1 { return 1; } return n * f(n - 1); }",
    "action f() returns float { while true { } }",
    "action f() returns string { if p > 1.0 { return k; } else { return g(); } } action g() returns string { return k; }",
    "action f(float x) { x := 1.0; { float x; } }",
    "action f(string k) { print k; }",
    "action f(A e) { e.x := 1.0; return; }",
]


@pytest.mark.parametrize("actions", LEGAL_ACTIONS)
def test_legal_actions(actions: str) -> None:
    assert check("", actions).reported == ""


ACTION_MISTAKES = {
    "action f() returns float { }": "f: return: 'f' does not return float on every path",
    "action f() returns float { if p > 1.0 { return p; } }": "f: return: 'f' does not return float on every path",
    "action f() returns float { while true { break; } }": "f: return: 'f' does not return float on every path",
    "action f() returns float { return; }": "return: return: 'f' returns float: `return` needs a value",
    "action f() returns float { return k; }": "k: type: what 'f' returns must be float, not string; "
    "convert the string with `.toFloat()`",
    "action f() { return 1; }": "1: return: 'f' returns nothing",
    "action f(float x, float x) { }": "x: duplicate-name: duplicate parameter 'x'",
    "action f(float x) { float x; }": "x: duplicate-name: 'x' is already a name of this block",
    "action f() { } action f() returns float { }": "f: duplicate-name: duplicate action 'f'",
    "action f(Wrong x) returns Zzz { return x; }": "Wrong: unknown-type: unknown type 'Wrong'\n"
    "Zzz: unknown-type: unknown type 'Zzz'",
    "action f() { print a.s; }": "a: unknown-name: 'a' is not a name of this pattern; did you mean 'A'?",
    "action f() { } action g() { print f(); }": "f: type: 'f' returns nothing, so it has no value",
    "action f() { print f; }": "f: type: 'f' is an action: it is called with `f(...)`",
}


@pytest.mark.parametrize(("actions", "message"), ACTION_MISTAKES.items())
def test_what_is_said_about_actions(actions: str, message: str) -> None:
    assert check("", actions).reported == message


def test_variables_have_slots_in_order_of_declaration() -> None:
    checked = check("float x; { integer y := 1; } string z := k;").block
    targets = [statement.target for statement in checked.statements if isinstance(statement, plan.Assign)]
    assert targets == [LocalOf(Type.FLOAT, 0), LocalOf(Type.INTEGER, 1), LocalOf(Type.STRING, 2)]
    assert checked.slots == 3


def test_a_declaration_without_a_value_assigns_the_default() -> None:
    assert check("sequence<float> x;").block.statements == (
        plan.Assign(LocalOf(Type.sequence(Type.FLOAT), 0), Items(Type.sequence(Type.FLOAT), ())),
    )


def test_an_event_that_the_block_changes_is_a_copy() -> None:
    copy = LocalOf(A, 0)
    assert check("a.x := p; print a.s;").block.statements == (
        plan.Assign(copy, Call(A, "clone", EventOf(A, 0))),
        plan.Assign(MemberOf(Type.FLOAT, copy, "x"), ParameterOf(Type.FLOAT, "p")),
        plan.Print(MemberOf(Type.STRING, copy, "s")),
    )


@pytest.mark.parametrize(
    "block",
    [
        "a.xs.append(1.0);",
        "A b := a; b.x := 1.0;",
        "B b := a.nested; b.m := 1;",
        "for b in a.bs { b.m := 1; }",
        "f(a);",
    ],
)
def test_what_may_change_an_event_makes_it_a_copy(block: str) -> None:
    first = check(block, "action f(A e) { e.x := 1.0; }").block.statements[0]
    assert first == plan.Assign(LocalOf(A, 0), Call(A, "clone", EventOf(A, 0)))


@pytest.mark.parametrize("block", ["print a.s;", "float x := a.x; x := x + a.x;", "for x in a.xs { print a.s; }"])
def test_an_event_that_is_only_read_stays_where_it_is(block: str) -> None:
    assert "clone" not in repr(check(block).block)


def test_an_unpacked_optional_has_a_slot_of_its_own() -> None:
    unset = EventOf(Type.optional(A), 1)
    then = (plan.Print(MemberOf(Type.STRING, LocalOf(A, 0), "s")),)
    assert check("ifpresent unset { print unset.s; }").block.statements == (plan.IfPresent((unset,), (0,), then, ()),)


def test_a_loop_uses_the_variable_that_is_there() -> None:
    _declared, loop = check("integer i; for i in [1] { }").block.statements
    assert isinstance(loop, plan.For)
    assert loop.slot == 0


def test_log_without_a_level_is_info() -> None:
    assert check('log "x";').block.statements == (plan.Log(Literal(Type.STRING, "x"), "INFO"),)


def test_fields_that_the_editor_leaves_out_are_empty() -> None:
    (sent,) = check('%send("eventType":"B", "channel":"k", "fields":{});').block.statements
    assert isinstance(sent, plan.Send)
    assert sent.event == New(B, (Literal(Type.INTEGER, 0),))


def test_parameters_of_an_action_are_its_first_slots() -> None:
    (action,) = check("", "action f(integer x, integer y) returns integer { integer z := y; return x + z; }").actions
    assert (action.parameters, action.slots) == ((Type.INTEGER, Type.INTEGER), 3)
    x, z = LocalOf(Type.INTEGER, 0), LocalOf(Type.INTEGER, 2)
    assert action.body[-1] == plan.Return(Binary(Type.INTEGER, "+", x, z))


def test_an_action_of_the_query_is_called_without_a_receiver() -> None:
    checked = check("print f(a.s);", "action f(string s) returns string { return s; }").block
    assert checked.statements == (plan.Print(Invoke(Type.STRING, "f", None, (FieldOf(Type.STRING, 0, "s"),))),)


@pytest.mark.parametrize(
    ("head", "tail"), [("if true { ", "}"), ("if true { } else ", ""), ("{ ", "}"), ("while true { ", "}")]
)
def test_statements_that_are_too_deep_are_one_mistake(head: str, tail: str) -> None:
    found = check(f"{head * DEEPEST * 2} {{ }} {tail * DEEPEST * 2}").reported
    assert found.endswith(
        f": limit: these statements are nested more than {DEEPEST} levels deep; each `else if` is a level too"
    )
    assert found.count("limit") == 1
