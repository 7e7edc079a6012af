"""What is said about a token that no rule can take.

Takes the token and the kinds that would have been good; gives the mistake with its words. Long lists of kinds are
folded to what a reader calls them: a name, an expression.
"""

from __future__ import annotations

from collections.abc import Iterable

from querylang.errors import Mistake, QueryError, nearest
from querylang.source import Source, Span
from querylang.tokens import KEYWORDS, SOFT_KEYWORDS, SPELLING, Token

REFUSED = {
    "ON": "listeners belong to monitors; a pattern does their work",
    "SPAWN": "a query has an instance for every key already",
    "DIE": "a query ends when it is undeployed",
    "MONITOR": "monitors are another kind of file",
}

_EXPRESSION = frozenset({"LPAREN", "STRING_LITERAL", "FLOAT_LITERAL", "MINUS"})
_TYPE = frozenset({"SEQUENCE", "OPTIONAL", "DICTIONARY", "LOCATION"})
_COMPARISON = frozenset({"EQ", "NE", "LT", "LE", "GT", "GE"})
_ARITHMETIC = frozenset({"PLUS", "MINUS", "STAR", "SLASH", "PERCENT"})
_MOST_NAMED = 6


def unexpected(source: Source, token: Token | None, expected: Iterable[str], last: Span | None) -> QueryError:
    """The mistake: this token (None: the end of the text) where only `expected` kinds could stand."""
    kinds = [kind for kind in expected if kind not in {"error", "$end"}]
    if token is None:
        place = source.span(last.end - 1, last.end) if last is not None else source.span(0, 0)
        return QueryError.of(Mistake.UNEXPECTED, place, found="end of the text", expected=_listed(kinds))
    if token.type in REFUSED:
        return QueryError.of(Mistake.NOT_IN_QUERIES, token.span, what=f"`{token.content}`", reason=REFUSED[token.type])
    keyword = nearest(token.content, [SPELLING[kind] for kind in kinds if kind in KEYWORDS.values()])
    if token.type == "NAME" and keyword is not None:
        hint = f"did you mean `{keyword}`?"
        found = f"'{token.content}'"
        return QueryError.of(Mistake.UNEXPECTED, token.span, found=found, expected=_listed(kinds)).with_hint(hint)
    if token.type in KEYWORDS.values() and "NAME" in kinds:
        return QueryError.of(Mistake.KEYWORD_AS_NAME, token.span, word=token.content)
    return QueryError.of(Mistake.UNEXPECTED, token.span, found=_found(token), expected=_listed(kinds))


def _found(token: Token) -> str:
    match token.type:
        case "NAME":
            return f"'{token.content}'"
        case "STRING_LITERAL":
            return "a string"
        case "INTEGER_LITERAL" | "FLOAT_LITERAL" | "DECIMAL_LITERAL":
            return "a number"
        case kind:
            return f"`{SPELLING[kind]}`"


def _listed(kinds: list[str]) -> str:
    """`;`, a name or an expression: at most a handful."""
    left = set(kinds)
    words: list[str] = []
    if left >= _EXPRESSION:
        words.append("an expression")
        left -= {*KEYWORDS.values(), "NAME", "INTEGER_LITERAL", "DECIMAL_LITERAL", *_EXPRESSION, "LBRACKET"}
    elif left >= _TYPE:
        words.append("a type")
        left -= {*_TYPE, "BOOLEAN", "INTEGER", "FLOAT", "DECIMAL", "STRING", "NAME"}
    elif "NAME" in left:
        words.append("a name")
        left -= {"NAME", *SOFT_KEYWORDS}
    if left >= _COMPARISON:
        left -= _COMPARISON
        words.append("a comparison")
    if left >= _ARITHMETIC:
        left -= _ARITHMETIC
        words.append("an operator")
    words += [f"`{SPELLING[kind]}`" for kind in SPELLING if kind in left]
    words += ["a string"] if "STRING_LITERAL" in left else []
    words += ["a number"] if "INTEGER_LITERAL" in left else []
    if not words:
        return "nothing more"
    if len(words) > _MOST_NAMED:
        return "one of " + ", ".join(words[:_MOST_NAMED]) + " ..."
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
