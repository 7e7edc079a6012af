"""What newcomers write from SQL, Python and other tools, and how it is written here.

Tables only. The parser asks for words that no rule accepts, the checker for names that nothing has.
"""

from __future__ import annotations

from collections.abc import Collection

from querylang.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """Words in a place, and what the message says of them.

    - `words`: in small letters, or signs.
    - `places`: kinds of tokens, of which one would be accepted in that place; `A+B`: both.
    - `hint`: how it is written here.
    """

    words: str
    places: str
    hint: str

    def is_at(self, accepted: Collection[str]) -> bool:
        """Whether this is one of its places."""
        return any(all(kind in accepted for kind in place.split("+")) for place in self.places.split())


_CONDITION = "EQ WHERE"
_CLAUSE = "WHERE"
_INPUT = "WITH"
_ORDER = (
    "an input is written `A() key k within 1 hour with unique k new by k within 1 day time from t wait 1 minute;`,"
    " in this order"
)
_STEP = "in a pattern `->` stands between steps, as in `A as a -> B as b`"
_STEP_NAME = "each step of a pattern has a name behind its type: `A as a`"
_SELECT_NAME = "each `select` has a name: `select a.v as v`"
_NULL = "ask with `a.v is null` or `a.v is not null`; a comparison with a null never holds"
_LIST = 'one of several values is `a.s in ["x", "y"]`, none of them `a.s not in ["x", "y"]`'
_NOT_HERE = "a query is about one match; sort, count or cut the matches afterwards"
_CASES = "write the cases as conditions joined by `and` and `or`"
_SQL = "`ensue import` translates MATCH_RECOGNIZE of SQL"
_BODY = "a query is `inputs { A() key k within 1 hour; } find A as a -> A as b`"
_SECONDS = (
    "units follow a number without brackets, in `within` and `wait`; in conditions times are seconds: "
    "`b.getTime() - a.getTime() < 300.0`"
)

ROWS: tuple[Row, ...] = (
    # a whole text, and the sections of a query
    Row("select with match_recognize", "QUERY", f"this is not a query of Ensue; {_SQL}"),
    Row("sequence sample any process network file from", "QUERY", _BODY),
    Row("pattern define measures match_recognize", "FIND RBRACE", _SQL),
    Row("select from sequence sample any join", "FIND", _BODY),
    # inputs
    Row("by partition group on", _INPUT, "the key of an input is written `A() key k`"),
    Row("where", _INPUT, "the filter of an input is in its brackets: `A(v > 1.0) key k`"),
    Row("last top rows", _INPUT, "the last events are kept by `retain 5`"),
    Row("events rows records", _INPUT, "`retain 5` is a number without a word behind it"),
    Row(",", f"{_INPUT} WAIT+SEMICOLON", "each input ends with `;`"),
    Row("between", "COMMA+RPAREN", "a range of values is `v in [1.0 : 5.0]`"),
    Row("key within retain", f"{_INPUT} SEMICOLON+OR", _ORDER),
    # patterns
    Row("where within without having { } ; ,", "AS+AND", _SELECT_NAME),
    Row("-> => = where within and or {", "AS+LPAREN", _STEP_NAME),
    Row("key", "DOT+LPAREN", "an input has brackets behind its type: `A() key k`"),
    Row("not", "WAIT", "what must not happen is a `without B as b` behind the pattern"),
    Row("followed then followedby next", _CLAUSE, _STEP),
    Row(",", "ARROW", _STEP),
    Row("[", "ARROW", "conditions are in a `where` behind the pattern, or in the input: `A(v > 1.0) key k`"),
    Row("-", "ARROW", "comments begin with `//`, and `->` stands between steps"),
    # clauses
    Row("between", _CLAUSE, "a range of values is two comparisons: `a.v >= 1.0 and a.v <= 5.0`"),
    Row("group partition by", _CLAUSE, "matches are found per key: `inputs { A() key k within 1 hour; }`"),
    Row("order limit sort top", _CLAUSE, _NOT_HERE),
    Row("until", _CLAUSE, "what must not happen is `without B as x`, perhaps with its own `where` and `between (a b)`"),
    Row("print send log emit route", "ARROW WHERE", 'statements are in a block: `{ print "x"; }`'),
    # conditions
    Row("is isnull isnotnull notnull", _CONDITION, _NULL),
    Row("in not", _CONDITION, _LIST),
    Row(
        "like ilike rlike regexp matches contains startswith endswith has has_any",
        _CONDITION,
        'text is compared by methods: `a.s.like("x*")`, `a.s.contains("x")`, `a.s.startsWith("x")`, `a.s.matches("x.*")`',
    ),
    Row("mod div", _CONDITION, "the operators of numbers are `+ - * / %`"),
    Row("days hours minutes minute seconds second sec min hour day ms s h m", "EQ AND", _SECONDS),
    Row("when", _CONDITION, f"there is no `case`; {_CASES}"),
    Row("?", "EQ", f"there is no `? :`; {_CASES}"),
    Row("=", "ASSIGN", "values are assigned by `:=`"),
    Row(":=", "EQ", "values are compared by `=`"),
)

NAMES: dict[str, str] = {
    **dict.fromkeys(("null", "none", "nil", "undefined"), _NULL),
    "true": "write `true`",
    "false": "write `false`",
    "nan": "write `a.v.isNaN()`",
    **dict.fromkeys(("infinity", "inf"), "write `a.v.isInfinite()`"),
    **dict.fromkeys(("now", "current_timestamp", "current_time"), "the time of an event is `a.getTime()`, in seconds"),
}
"""Names in conditions, in small letters."""

FUNCTIONS: dict[str, str] = {
    **dict.fromkeys(("len", "length", "size", "strlen", "char_length"), "write `a.s.length()`"),
    **dict.fromkeys(("lower", "lcase", "tolower"), "write `a.s.toLower()`"),
    **dict.fromkeys(("upper", "ucase", "toupper"), "write `a.s.toUpper()`"),
    **dict.fromkeys(("trim", "strip"), "write `a.s.ltrim().rtrim()`"),
    **dict.fromkeys(("substring", "substr", "mid"), "write `a.s.substring(0, 3)`"),
    **dict.fromkeys(("concat", "concat_ws"), "texts are joined by `+`"),
    **dict.fromkeys(
        ("coalesce", "ifnull", "nvl", "isnull", "isnotnull"), _NULL + "; `.getOr(0)` puts a value in its place"
    ),
    **dict.fromkeys(("if", "case"), _CASES),
    **dict.fromkeys(
        ("now", "ago", "current_timestamp", "getdate"), "the time of an event is `a.getTime()`, in seconds"
    ),
    **dict.fromkeys(("abs", "sqrt", "floor", "ceil", "round", "exp", "log", "ln"), "write `(a.v).{name}()`"),
    "ceiling": "write `(a.v).ceil()`",
    **dict.fromkeys(("pow", "power"), "write `a.v.pow(2.0)`"),
    **dict.fromkeys(
        ("cast", "convert", "int", "str", "bool", "tostring"), "write `.toInteger()`, `.toFloat()` or `.toString()`"
    ),
    **dict.fromkeys(
        ("timestamp", "datediff", "timestampdiff", "date_diff"), "write `b.getTime() - a.getTime()`, in seconds"
    ),
    **dict.fromkeys(("contains", "startswith", "endswith", "match"), 'write `a.s.contains("x")` or `.matches("x.*")`'),
    **dict.fromkeys(("like", "wildcard"), 'write `a.s.like("x*")`, or `.likeIgnoreCase("x*")`'),
    **dict.fromkeys(("cidrmatch", "ipv4_is_in_range"), 'write `a.s.inNetwork("10.0.0.0/8")`'),
    **dict.fromkeys(("lag", "previous"), "write `prev(a).v` of a repeated name"),
}
"""Functions in small letters; methods are written behind their value."""

METHODS: dict[str, str] = {
    **dict.fromkeys(("regex", "regexp", "rlike"), 'write `.matches("x.*")`, or `.contains("x")`'),
    "ilike": 'write `.likeIgnoreCase("x*")`',
    **dict.fromkeys(("strip", "trim"), "write `.ltrim().rtrim()`"),
    **dict.fromkeys(("isnull", "isna", "notnull", "isnone"), _NULL),
    **dict.fromkeys(("equals", "eq"), "values are compared by `=`"),
    **dict.fromkeys(("isin", "in"), 'write `a.s in ["x", "y"]`'),
}
"""Methods in small letters."""

TYPES: dict[str, str] = {
    **dict.fromkeys(("double", "real", "number", "numeric", "float64", "float32", "f64"), "write `float`"),
    **dict.fromkeys(("long", "int", "bigint", "short", "int64", "int32", "uint64", "u64"), "write `integer`"),
    **dict.fromkeys(("str", "text", "varchar", "keyword", "ip", "char", "object"), "write `string`"),
    "bool": "write `boolean`",
    **dict.fromkeys(("var", "let", "val", "auto", "const"), "write the type of the value: `float x := 1.0;`"),
    **dict.fromkeys(
        ("timestamp", "datetime", "date", "timestamp_ntz", "datetime64"),
        "a time of its own is the column `ts` of the data, or a `float` of seconds",
    ),
    **dict.fromkeys(("list", "array"), "write `sequence<string>`"),
    **dict.fromkeys(("map", "dict"), "write `dictionary<string, string>`"),
}
"""Types in small letters."""

UNIT_NAMES: dict[str, str] = {
    "ms": "msec",
    "millis": "milliseconds",
    "s": "seconds",
    "m": "minutes",
    "h": "hours",
    "hr": "hours",
    "hrs": "hours",
    "d": "days",
    "w": "7 days",
    "week": "7 days",
    "weeks": "7 days",
}
"""Units of time, in small letters, and ours."""


def hint_at(word: str, accepted: Collection[str]) -> str | None:
    """How this word or sign is written here; None: nothing is known of it.

    `accepted`: the kinds of tokens that would be accepted in its place.
    """
    wanted = word.casefold()
    return next((row.hint for row in ROWS if wanted in row.words.split() and row.is_at(accepted)), None)


def hint_of(table: dict[str, str], name: str) -> str | None:
    """What a table says of a name."""
    hint = table.get(name.casefold())
    return None if hint is None else hint.replace("{name}", name.casefold())
