"""What may be written: for each production of the grammar texts, and the tree of each in short.

In short: a node is its kind with what it says in brackets, `-` is what is not there, names and types stand for
themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass

import pytest

from querylang.source import Source
from querylang.syntax import ast
from querylang.syntax.parser import parse

FILES = {
    "package a.b.c; event A { }": "File(Package(a.b.c) [] [EventDefinition('a.b.c' A [] [])])",
    "using a.B; event A { }": "File(- [Using(a.B False)] [EventDefinition(- A [] [])])",
    "using com.apama.queries.*; event A { }": "File(- [Using(com.apama.queries True)] [EventDefinition(- A [] [])])",
    "event A { } event B { }": "File(- [] [EventDefinition(- A [] []) EventDefinition(- B [] [])])",
    "package p; event A { } query Q { inputs { A() within 3; } find A as a } inputs { A() within 3; } find A as a": "File(Package(p) [] [EventDefinition('p' A [] []) Query(Q - - Inputs([InputDefinition(A [] [] 3 - [] -)]) Find(False PatternTerm(A a) [] -) []) Query(- - - Inputs([InputDefinition(A [] [] 3 - [] -)]) Find(False PatternTerm(A a) [] -) [])])",
}

EVENTS = {
    "": "",
    "float x;": "FieldDefinition(float x)",
    "sequence<string> x; dictionary<string, sequence<B>> y; optional<a.B> z;": "FieldDefinition(sequence<string> x) FieldDefinition(dictionary<string,sequence<B>> y) FieldDefinition(optional<a.B> z)",
    "boolean b; integer i; decimal d; location l;": "FieldDefinition(boolean b) FieldDefinition(integer i) FieldDefinition(decimal d) FieldDefinition(location l)",
    "constant float MOST := 1.5;": "ConstantDefinition(float MOST 1.5)",
    "constant integer LEAST := -3;": "ConstantDefinition(integer LEAST Unary('-' 3))",
    'constant string S := "x"; constant boolean B := true; constant decimal D := 1.5d;': "ConstantDefinition(string S 'x') ConstantDefinition(boolean B True) ConstantDefinition(decimal D Decimal('1.5'))",
    "action f() { }": "ActionDefinition(f [] - Block([]))",
    "action f(float x, a.B y) returns sequence<float> { return [x]; }": "ActionDefinition(f [Parameter(float x) Parameter(a.B y)] sequence<float> Block([Return(SequenceLiteral([x]))]))",
    "integer time; integer #where;": "FieldDefinition(integer time) FieldDefinition(integer where)",
}

ANNOTATIONS = {
    '@TimeFrom("getTime")': "Annotation(TimeFrom ['getTime'])",
    "@OutOfOrder": "Annotation(OutOfOrder -)",
    "@OutOfOrder()": "Annotation(OutOfOrder [])",
    '@com.apama.queries.DefaultWait("1 min", 3, true)': "Annotation(com.apama.queries.DefaultWait ['1 min' 3 True])",
    '@A @B("x")': "Annotation(A -) Annotation(B ['x'])",
}

QUERIES = {
    "": "- -",
    "metadata { }": "Metadata([]) -",
    'metadata { "author": "risk", "since": "2026" }': "Metadata([['author' 'risk'] ['since' '2026']]) -",
    'metadata { "a": "b" "c": "d", }': "Metadata([['a' 'b'] ['c' 'd']]) -",
    "parameters { }": "- Parameters([])",
    'parameters { integer a; decimal b := 1.5d; float c := -1.5; string d := "x"; boolean e := true; }': "- Parameters([ParameterDefinition(integer a -) ParameterDefinition(decimal b Decimal('1.5')) ParameterDefinition(float c Unary('-' 1.5)) ParameterDefinition(string d 'x') ParameterDefinition(boolean e True)])",
}

INPUTS = {
    "A() within 3;": "InputDefinition(A [] [] 3 - [] -)",
    "A() retain 3;": "InputDefinition(A [] [] - 3 [] -)",
    "A() within period retain 2 + n;": "InputDefinition(A [] [] period Binary('+' 2 n) [] -)",
    "A() key k within 3;": "InputDefinition(A [] [Key(k - -)] 3 - [] -)",
    "A() key k, l as m within 3;": "InputDefinition(A [] [Key(k - -) Key(l - m)] 3 - [] -)",
    "A() key f() as k, g(1, x) as l within 3;": "InputDefinition(A [] [Key(f [] k) Key(g [1 x] l)] 3 - [] -)",
    "A() key k?, l? as m, f()? as n within 3;": (
        "InputDefinition(A [] [Key(k - - True) Key(l - m True) Key(f [] n True)] 3 - [] -)"
    ),
    "A() key a.b.c as d, a.b? as e within 3;": (
        "InputDefinition(A [] [Key(a - d [b c]) Key(a - e [b] True)] 3 - [] -)"
    ),
    "A() within 3 with unique u;": "InputDefinition(A [] [] 3 - [Key(u - -)] -)",
    "A() within 3 with unique u, f(1);": "InputDefinition(A [] [] 3 - [Key(u - -) Key(f [1] -)] -)",
    "A() within 3 with unique u new by v, f(1) within 7 days wait 5;": "InputDefinition(A [] [] 3 - [Key(u - -)] Clocking(- 5 -) NewBy([Key(v - -) Key(f [1] -)] TimeLiteral([[7 days]])))",
    "A() within 3 wait 20 seconds;": "InputDefinition(A [] [] 3 - [] Clocking(- TimeLiteral([[20 seconds]]) -))",
    "A() within 3 wait 5.0 or H;": "InputDefinition(A [] [] 3 - [] Clocking(- 5.0 H))",
    "A() within 3 time from ts wait 5 or a.H;": "InputDefinition(A [] [] 3 - [] Clocking(ts 5 a.H))",
    "A() within 3 time from getTime() wait 1 min;": "InputDefinition(A [] [] 3 - [] Clocking(getTime TimeLiteral([[1 min]]) -))",
    ".A() within 3;": "InputDefinition(.A [] [] 3 - [] -)",
    "a.b.C() within 3; D() retain 1;": "InputDefinition(a.b.C [] [] 3 - [] -) InputDefinition(D [] [] - 1 [] -)",
}

FILTERS = {
    "": "",
    "*": "Filter(- Anything())",
    "3": "Filter(- Condition(3))",
    "v in [1, 2]": "Filter(v Compared('in' SequenceLiteral([1 2])))",
    "v not in w": "Filter(v Compared('not in' w))",
    "v in [1 : 2]": "Filter(v Range(1 2 True True))",
    "v is null": "Filter(- Condition(Unary('is null' v)))",
    "v != 1": "Filter(- Condition(Binary('!=' v 1)))",
    "v = 1 or w": "Filter(- Condition(Binary('or' Binary('=' v 1) w)))",
    "= 3": "Filter(- Compared('=' 3))",
    "> 3": "Filter(- Compared('>' 3))",
    "[1 : 5)": "Filter(- Range(1 5 True False))",
    "(1 : 5]": "Filter(- Range(1 5 False True))",
    "(1 + 1)": "Filter(- Condition(Binary('+' 1 1)))",
    "*, 3, < 4, x = 5": "Filter(- Anything()) Filter(- Condition(3)) Filter(- Compared('<' 4)) Filter(x Compared('=' 5))",
    "x = *": "Filter(x Anything())",
    "x >= a + 1": "Filter(x Compared('>=' Binary('+' a 1)))",
    "x in [1 : n]": "Filter(x Range(1 n True True))",
    "x in (1.0 : infinity)": "Filter(x Range(1.0 infinity False False))",
    's = "a", b = true': "Filter(s Compared('=' 'a')) Filter(b Compared('=' True))",
}

DURATIONS = {
    "30": "30",
    "30.5": "30.5",
    "10 minutes": "TimeLiteral([[10 minutes]])",
    "1 day 2 hours 3 min 4 sec 5 msec": "TimeLiteral([[1 day] [2 hours] [3 min] [4 sec] [5 msec]])",
    "1.5 hours": "TimeLiteral([[1.5 hours]])",
    "2 * 60": "Binary('*' 2 60)",
    "period": "period",
    "(7 / 2)": "Binary('/' 7 2)",
}

PATTERNS = {
    "A as a": "False PatternTerm(A a)",
    "A:a": "False PatternTerm(A a)",
    "A() as a": "False PatternTerm(A a)",
    "a.b.A as a": "False PatternTerm(a.b.A a)",
    "A as a -> B as b -> C as c": "False PatternJoin('->' [PatternTerm(A a) PatternTerm(B b) PatternTerm(C c)])",
    "A as a or B as b and C as c": "False PatternJoin('or' [PatternTerm(A a) PatternJoin('and' [PatternTerm(B b) PatternTerm(C c)])])",
    "A as a -> B as b or C as c": "False PatternJoin('->' [PatternTerm(A a) PatternJoin('or' [PatternTerm(B b) PatternTerm(C c)])])",
    "(A as a -> B as b) and C as c": "False PatternJoin('and' [PatternJoin('->' [PatternTerm(A a) PatternTerm(B b)]) PatternTerm(C c)])",
    "((A as a))": "False PatternTerm(A a)",
    "wait(3) as w -> A as a": "False PatternJoin('->' [PatternWait(3 w) PatternTerm(A a)])",
    "wait(1 min) -> A as a": "False PatternJoin('->' [PatternWait(TimeLiteral([[1 min]]) -) PatternTerm(A a)])",
    "A as a -> wait(3.0): w": "False PatternJoin('->' [PatternTerm(A a) PatternWait(3.0 w)])",
    "wait(1) as v -> (A as a and B as b) -> wait(1) as w": "False PatternJoin('->' [PatternWait(1 v) PatternJoin('and' [PatternTerm(A a) PatternTerm(B b)]) PatternWait(1 w)])",
    "(wait(1) as v -> A as a) -> wait(2)": "False PatternJoin('->' [PatternWait(1 v) PatternTerm(A a) PatternWait(2 -)])",
    "{ (A as a and B as b) -> wait(1) as w }": "False PatternJoin('->' [PatternJoin('and' [PatternTerm(A a) PatternTerm(B b)]) PatternWait(1 w)])",
    "every A as a": "True PatternTerm(A a)",
    "A as a;": "False PatternTerm(A a)",
    "A as a -> B as b => C as c": "False PatternJoin('->' [PatternTerm(A a) PatternTerm(B b) PatternTerm(C c)] [False True])",
    "A as a => B as b or C as c": "False PatternJoin('->' [PatternTerm(A a) PatternJoin('or' [PatternTerm(B b) PatternTerm(C c)])] [True])",
    "(A as a => B as b) -> C as c": "False PatternJoin('->' [PatternTerm(A a) PatternTerm(B b) PatternTerm(C c)] [True False])",
    "A as a => (B as b -> C as c)": "False PatternJoin('->' [PatternTerm(A a) PatternJoin('->' [PatternTerm(B b) PatternTerm(C c)])] [True])",
    "A as a -> (B as b => C as c)": "False PatternJoin('->' [PatternTerm(A a) PatternJoin('->' [PatternTerm(B b) PatternTerm(C c)] [True])])",
    "A as a+": "False PatternRepeat(PatternTerm(A a) 1 - '+' False)",
    "A() as a {2,} consecutive": "False PatternRepeat(PatternTerm(A a) 2 - '' True)",
    "A as a {2} -> B as b ?": "False PatternJoin('->' [PatternRepeat(PatternTerm(A a) 2 2 '' False) PatternRepeat(PatternTerm(B b) 0 1 '?' False)])",
    "(A as a -> B as b) {2,0x3} ;": "False PatternRepeat(PatternJoin('->' [PatternTerm(A a) PatternTerm(B b)]) 2 3 '' False)",
    "A as consecutive * consecutive": "False PatternRepeat(PatternTerm(A consecutive) 0 - '*' True)",
}

CLAUSES = {
    "where a.x = 3": "[Where(Binary('=' Member(a x) 3))] -",
    "where a.b where c": "[Where(Member(a b)) Where(c)] -",
    "within 10 minutes": "[Within(TimeLiteral([[10 minutes]]) -)] -",
    "within 3 between (a b)": "[Within(3 Between([a b]))] -",
    "within 3 between (prev(a) a)": "[Within(3 Between([Previous(prev a) a]))] -",
    "without B as b": "[Without(B b - -)] -",
    "without B:b where b.x": "[Without(B b Where(Member(b x)) -)] -",
    "without B as b between (a c)": "[Without(B b - Between([a c]))] -",
    "without B as b where b.x = 3 between (a b c)": "[Without(B b Where(Binary('=' Member(b x) 3)) Between([a b c]))] -",
    "without B as b where c where d": "[Without(B b Where(c) -) Where(d)] -",
    "without B as b without C as c": "[Without(B b - -) Without(C c - -)] -",
    "where x within 3 where y": "[Where(x) Within(3 -) Where(y)] -",
    "select avg(a.x) as m": "[Select(Call(- avg [Member(a x)]) m)] -",
    "select a.x : m having m > 3": "[Select(Member(a x) m) Having(Binary('>' m 3))] -",
    "{ }": "[] Block([])",
    "where x { }": "[Where(x)] Block([])",
    "where x;": "[Where(x)] -",
}

STATEMENTS = {
    "print a;": "Print(a)",
    "log a;": "Log(a -)",
    "log a at WARN;": "Log(a WARN)",
    'send a to "c";': "Send(a 'c')",
    "emit a;": "Emit(a -)",
    'emit a to "c";': "Emit(a 'c')",
    "route a;": "Route(a)",
    "float x;": "Declaration(float x -)",
    "float x := 1.5;": "Declaration(float x 1.5)",
    "sequence<float> x := [1.0];": "Declaration(sequence<float> x SequenceLiteral([1.0]))",
    "A x;": "Declaration(A x -)",
    "a.b.A x := a.b.A(1);": "Declaration(a.b.A x Call(Member(a b) A [1]))",
    "x := 3;": "Assignment(x 3)",
    "a.x := 3;": "Assignment(Member(a x) 3)",
    "a[0] := 3;": "Assignment(Index(a 0) 3)",
    "a.b[0].c := 3;": "Assignment(Member(Index(Member(a b) 0) c) 3)",
    "f();": "Evaluation(Call(- f []))",
    "a.f(1, 2);": "Evaluation(Call(a f [1 2]))",
    "if a { }": "If(a Block([]) -)",
    "if a then { print b; }": "If(a Block([Print(b)]) -)",
    "if a { } else { }": "If(a Block([]) Block([]))",
    "if a { } else if b { } else { }": "If(a Block([]) Block([If(b Block([]) Block([]))]))",
    "ifpresent a { }": "IfPresent([[a a]] Block([]) -)",
    "ifpresent a as b, c.d as e { } else { }": "IfPresent([[a b] [Member(c d) e]] Block([]) Block([]))",
    "while a { }": "While(a Block([]))",
    "for x in [1] { }": "For(x SequenceLiteral([1]) Block([]))",
    "break;": "Break()",
    "continue;": "Continue()",
    "return;": "Return(-)",
    "return 3;": "Return(3)",
    "{ print a; }": "Block([Print(a)])",
    "{ }": "Block([])",
    '%send("eventType":"p.A", "title":"t", "channel":"\\"c\\"", "fields":{"x":"a.x + 1", "y":"\\"q\\""});': "VendorSend(p.A 'c' [[x Binary('+' Member(a x) 1)] [y 'q']] [['title' 't']])",
    '%send("eventType":"A");': "VendorSend(A - [])",
    '%custom("title":"t", "description":"d") { print a; }': "VendorCustom([['title' 't'] ['description' 'd']] Block([Print(a)]))",
    "%custom() { }": "VendorCustom([] Block([]))",
}

EXPRESSIONS = {
    "3": "3",
    "1.5": "1.5",
    "1e3": "1000.0",
    ".5": "0.5",
    "1.5d": "Decimal('1.5')",
    "3d": "Decimal('3')",
    ".5d": "Decimal('0.5')",
    "1.": "1.0",
    "1.E-2": "0.01",
    "0xFf": "255",
    "+1.5": "1.5",
    '"two\nlines" + a': "Binary('+' 'two\\nlines' a)",
    '"a\\n\\"b\\\\"': "'a\\n\"b\\\\'",
    "true": "True",
    "a": "a",
    "time": "time",
    "#where": "where",
    "a.x": "Member(a x)",
    "a.where": "Member(a where)",
    "a.#where": "Member(a where)",
    "a.x.y": "Member(Member(a x) y)",
    "f()": "Call(- f [])",
    "f(1, a)": "Call(- f [1 a])",
    "a.f(1)": "Call(a f [1])",
    "a.b.C(1)": "Call(Member(a b) C [1])",
    ".C(1)": "Call(- .C [1])",
    "float.INFINITY": "TypeConstant(float INFINITY)",
    "integer.parse(s)": "TypeCall(integer parse [s])",
    "location(1.0, 2.0, 3.0, 4.0)": "TypeCall(location - [1.0 2.0 3.0 4.0])",
    "sequence<float>()": "TypeCall(sequence<float> - [])",
    "new sequence<float>": "New(sequence<float>)",
    "new a.B": "New(a.B)",
    "a[0]": "Index(a 0)",
    "a[0][1].x": "Member(Index(Index(a 0) 1) x)",
    "[]": "SequenceLiteral([])",
    "[1, 2]": "SequenceLiteral([1 2])",
    "{}": "DictionaryLiteral([])",
    '{"a": 1, "b": 2}': "DictionaryLiteral([['a' 1] ['b' 2]])",
    "-a": "Unary('-' a)",
    "- -a": "Unary('-' Unary('-' a))",
    "not a": "Unary('not' a)",
    "not not a": "Unary('not' Unary('not' a))",
    "a + b * c": "Binary('+' a Binary('*' b c))",
    "(a + b) * c": "Binary('*' Binary('+' a b) c)",
    "a - b - c": "Binary('-' Binary('-' a b) c)",
    "a / b % c": "Binary('%' Binary('/' a b) c)",
    "a + b = c * d": "Binary('=' Binary('+' a b) Binary('*' c d))",
    "a < b and c >= d": "Binary('and' Binary('<' a b) Binary('>=' c d))",
    "a or b xor c and not d": "Binary('or' a Binary('xor' b Binary('and' c Unary('not' d))))",
    "a = b or c != d": "Binary('or' Binary('=' a b) Binary('!=' c d))",
    "not a = b": "Unary('not' Binary('=' a b))",
    "-a.b": "Unary('-' Member(a b))",
    "(a = b) = c": "Binary('=' Binary('=' a b) c)",
    "a > -3": "Binary('>' a Unary('-' 3))",
    "3.toFloat()": "Call(3 toFloat [])",
    "(a)": "a",
    "infinity": "infinity",
}


def inputs(file: ast.File) -> tuple[ast.InputDefinition, ...]:
    section = file.queries[0].inputs
    assert isinstance(section, ast.Inputs)
    return tuple(item for item in section.items if isinstance(item, ast.InputDefinition))


def find(file: ast.File) -> ast.Find:
    section = file.queries[0].find
    assert isinstance(section, ast.Find)
    return section


def block(file: ast.File) -> ast.Block:
    found = find(file).block
    assert found is not None
    return found


def where(file: ast.File) -> ast.Where:
    clause = find(file).clauses[0]
    assert isinstance(clause, ast.Where)
    return clause


def short(node: object) -> str:
    match node:
        case None:
            return "-"
        case ast.Name(text=text) | ast.NameUse(name=ast.Name(text=text)):
            return text
        case ast.TypeName(word=word, of=of):
            return f"{word}<{','.join(map(short, of))}>" if of else word
        case ast.Constant(value=value):
            return repr(value)
        case tuple():
            return f"[{' '.join(map(short, node))}]"
        case str():
            return repr(node)
        case _ if is_dataclass(node):
            given = [item for item in fields(node) if item.compare and getattr(node, item.name) != item.default]
            inner = " ".join(short(getattr(node, item.name)) for item in given)
            return f"{type(node).__name__}({inner})"
        case _:
            return str(node)


def tree(text: str, around: str, part: Callable[[ast.File], object]) -> str:
    before, _, after = around.partition("@")
    file, mistakes = parse(Source("case.query", before + text + after))
    assert not mistakes, str(mistakes[0])
    found = part(file)
    assert isinstance(found, tuple)
    return " ".join(map(short, found))


BODY = "inputs { A() within 3; } find "
TABLES: dict[str, tuple[dict[str, str], str, Callable[[ast.File], object]]] = {
    "file": (FILES, "@", lambda file: (file,)),
    "event type": (EVENTS, "event A { @ }", lambda file: file.events[0].members),
    "annotation": (ANNOTATIONS, "@ event A { }", lambda file: file.events[0].annotations),
    "query": (
        QUERIES,
        "query Q { @ " + BODY + "A as a }",
        lambda file: (file.queries[0].metadata, file.queries[0].parameters),
    ),
    "input": (INPUTS, "inputs { @ } find A as a", inputs),
    "filter": (FILTERS, "inputs { A(@) within 3; } find A as a", lambda file: inputs(file)[0].filters),
    "duration": (DURATIONS, "inputs { A() within @; } find A as a", lambda file: (inputs(file)[0].within,)),
    "pattern": (PATTERNS, BODY + "@", lambda file: (find(file).is_every, find(file).pattern)),
    "clause": (CLAUSES, BODY + "A as a @", lambda file: (find(file).clauses, find(file).block)),
    "statement": (STATEMENTS, BODY + "A as a { @ }", lambda file: block(file).statements),
    "expression": (EXPRESSIONS, BODY + "A as a where @", lambda file: (where(file).condition,)),
}
"""Production to its texts, what stands around them, and the part of the tree that they are."""

CASES = [
    (production, text, expected) for production, (texts, _, _) in TABLES.items() for text, expected in texts.items()
]


@pytest.mark.parametrize(("production", "text", "expected"), CASES, ids=lambda item: str(item)[:60])
def test_productions(production: str, text: str, expected: str) -> None:
    _texts, around, part = TABLES[production]
    assert tree(text, around, part) == expected


def test_an_altered_expectation_fails() -> None:
    _texts, around, part = TABLES["expression"]
    assert tree("a + b * c", around, part) != "Binary('*' Binary('+' a b) c)"
