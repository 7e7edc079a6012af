# ruff: noqa: D102, D403 (docstrings are rules)
"""Rules of a file, of a query and its sections, and of `inputs`; the parser checks their order."""

from __future__ import annotations

from querylang.dataclass import dataclass, replace
from querylang.errors import Mistake
from querylang.source import Span
from querylang.syntax import ast
from querylang.syntax.folded_tokens import REASONS
from querylang.syntax.grammar.expressions import Parts, QueryParts, Rules, Section, grown, of_kind
from querylang.syntax.lexer import SOFT_KEYWORDS, Token

# Rules of a whole file: `package`, `using`, event types and queries in any number; names.


class FileRules(Rules):
    """A file, and the names that stand everywhere in it."""

    def p_text(self, p: Parts) -> None:
        """text : items"""

    def p_text_expression(self, p: Parts) -> None:
        """text : ONLY_EXPRESSION expression"""
        self.value = p[2]

    def p_items(self, p: Parts) -> None:
        """items : items item
        |"""
        if len(p) == 3 and p[2] is not None:
            self.items.append(p[2])

    def p_item(self, p: Parts) -> None:
        """item : event_definition
        | table_definition
        | query
        | section"""
        p[0] = p[1]

    def p_item_package(self, p: Parts) -> None:
        """item : PACKAGE qualified_name SEMICOLON"""
        if self.package is not None or self.usings or self.items:
            self.report(Mistake.PACKAGE_PLACE, p[1].span)
        self.package = self.package or ast.Package(p[1].span.until(p[3].span), p[2])

    def p_item_using(self, p: Parts) -> None:
        """item : USING qualified_name SEMICOLON
        | USING qualified_name DOT STAR SEMICOLON"""
        if self.items:
            self.report(Mistake.USING_PLACE, p[1].span)
        self.usings.append(ast.Using(p[1].span.until(p[len(p) - 1].span), p[2], is_all=len(p) == 6))

    def p_item_refused(self, p: Parts) -> None:
        """item : REFUSED"""
        self.report(Mistake.NOT_IN_QUERIES, p[1].span, what=f"`{p[1].content}`", reason=REASONS[p[1].content])

    # Names

    def p_name(self, p: Parts) -> None:
        p[0] = ast.Name(p[1].content, p[1].span)

    p_name.__doc__ = "name : NAME\n" + "\n".join(f"| {kind}" for kind in SOFT_KEYWORDS)

    def p_qualified_name(self, p: Parts) -> None:
        """qualified_name : NAME
        | qualified_name DOT NAME"""
        if len(p) == 2:
            p[0] = ast.Name(p[1].content, p[1].span)
        else:
            p[0] = ast.Name(f"{p[1].text}.{p[3].content}", p[1].span.until(p[3].span))

    def p_event_type(self, p: Parts) -> None:
        """event_type : qualified_name
        | DOT qualified_name"""
        p[0] = p[1] if len(p) == 2 else ast.Name(f".{p[2].text}", p[1].span.until(p[2].span))


class QueryRules(Rules):
    """`query Name { sections }`, or sections alone."""

    def p_query(self, p: Parts) -> None:
        """query : QUERY name LBRACE query_sections RBRACE"""
        p[0] = QueryParts(p[1].span.until(p[5].span), p[2], of_kind(p[4], Section))

    def p_query_sections(self, p: Parts) -> None:
        """query_sections : query_sections query_section
        |"""
        p[0] = grown(p)

    def p_same_query_section(self, p: Parts) -> None:
        """query_section : section"""

    def p_section(self, p: Parts) -> None:
        """section : metadata
        | parameters
        | inputs
        | find
        | action"""
        keyword = _KEYWORDS[type(p[1])]
        p[0] = Section(keyword, self.source.span(p[1].span.start, p[1].span.start + len(keyword)), p[1])

    def p_metadata(self, p: Parts) -> None:
        """metadata : METADATA LBRACE metadata_items RBRACE"""
        p[0] = ast.Metadata(p[1].span.until(p[4].span), of_kind(p[3], tuple))

    def p_metadata_items(self, p: Parts) -> None:
        """metadata_items : metadata_items metadata_item
        |"""
        p[0] = grown(p)

    def p_metadata_items_comma(self, p: Parts) -> None:
        """metadata_items : metadata_items metadata_item COMMA"""
        p[0] = grown(p[:3])

    def p_metadata_item(self, p: Parts) -> None:
        """metadata_item : STRING_LITERAL COLON STRING_LITERAL"""
        p[0] = (p[1].content, p[3].content)

    def p_parameters(self, p: Parts) -> None:
        """parameters : PARAMETERS LBRACE parameter_list RBRACE"""
        p[0] = ast.Parameters(p[1].span.until(p[4].span), tuple(p[3]))

    def p_parameter_list(self, p: Parts) -> None:
        """parameter_list : parameter_list parameter
        |"""
        p[0] = grown(p)

    def p_parameter(self, p: Parts) -> None:
        """parameter : type name SEMICOLON
        | type name ASSIGN given_value SEMICOLON"""
        value = p[4] if len(p) == 6 else None
        p[0] = ast.ParameterDefinition(p[1].span.until(p[2].span), p[1], p[2], value)

    def p_same_given_value(self, p: Parts) -> None:
        """given_value : signed_literal"""

    def p_given_value_list(self, p: Parts) -> None:
        """given_value : LBRACKET RBRACKET
        | LBRACKET given_values RBRACKET"""
        p[0] = ast.SequenceLiteral(p[1].span.until(p[len(p) - 1].span), tuple(p[2]) if len(p) == 4 else ())

    def p_given_values(self, p: Parts) -> None:
        """given_values : given_values COMMA signed_literal
        | signed_literal"""
        p[0] = grown(p)


_KEYWORDS = {
    ast.Metadata: "metadata",
    ast.Parameters: "parameters",
    ast.Inputs: "inputs",
    ast.Find: "find",
    ast.ActionDefinition: "action",
}


# Rules of `inputs`: filters, keys, windows, times; and of durations.


@dataclass(frozen=True, slots=True)
class Window:
    """The part of an input between its key and its `with unique`."""

    within: ast.Duration | None = None
    retain: ast.Expression | None = None


_TESTS = frozenset({"=", "<", "<=", ">", ">=", "in", "not in"})
"""What a filter by name asks of its field."""


class InputRules(Rules):
    """`inputs { Type(filters) key name within duration retain count ... ; }`."""

    def p_inputs(self, p: Parts) -> None:
        """inputs : INPUTS LBRACE input_list RBRACE
        | INPUTS LT input_list GT"""
        p[0] = ast.Inputs(p[1].span, tuple(p[3]))

    def p_input_list(self, p: Parts) -> None:
        """input_list : input_list input
        |"""
        p[0] = grown(p)

    def p_input(self, p: Parts) -> None:
        """input : event_type LPAREN filters RPAREN role keys window unique newness clocking SEMICOLON"""
        p[0] = ast.InputDefinition(
            span=p[1].span.until(p[11].span),
            event=p[1],
            filters=tuple(p[3]),
            keys=tuple(p[6]),
            within=p[7].within,
            retain=p[7].retain,
            unique=tuple(p[8]),
            new=p[9],
            clocking=p[10],
            role=p[5],
        )

    def p_role(self, p: Parts) -> None:
        """role : AS name
        |"""
        p[0] = p[2] if len(p) == 3 else None

    # Filters

    def p_filters(self, p: Parts) -> None:
        """filters : filter_list
        |"""
        kept: list[ast.Filter] = []
        for item in p[1] if len(p) == 2 else ():
            if isinstance(item, ast.Broken):
                break  # further filters may have lost their positions
            kept.append(item)
        p[0] = kept

    def p_filter_list(self, p: Parts) -> None:
        """filter_list : filter_list COMMA filter
        | filter"""
        p[0] = grown(p)

    def p_filter_by_position(self, p: Parts) -> None:
        """filter : test
        | range"""
        p[0] = ast.Filter(p[1].span, None, p[1])

    def p_filter_anything(self, p: Parts) -> None:
        """filter : STAR"""
        p[0] = ast.Filter(p[1].span, None, ast.Anything(p[1].span))

    def p_filter_by_condition(self, p: Parts) -> None:
        """filter : expression"""
        match p[1]:
            case ast.Binary(operator=operator, left=ast.NameUse(name=field), right=right) if operator in _TESTS:
                p[0] = ast.Filter(p[1].span, field, ast.Compared(p[1].span, operator, right))
            case ast.Broken():
                p[0] = p[1]
            case _:
                p[0] = ast.Filter(p[1].span, None, ast.Condition(p[1].span, p[1]))

    def p_filter_by_name(self, p: Parts) -> None:
        """filter : sum IN range
        | sum EQ STAR"""
        if not isinstance(p[1], ast.NameUse):
            self.report(Mistake.FILTER_NAME, p[1].span)
            p[0] = ast.Broken(p[1].span.until(p[3].span))
            return
        test = ast.Anything(p[3].span) if isinstance(p[3], Token) else p[3]
        p[0] = ast.Filter(p[1].span.until(p[3].span), p[1].name, test)

    def p_test(self, p: Parts) -> None:
        """test : EQ sum
        | LT sum
        | LE sum
        | GT sum
        | GE sum"""
        p[0] = ast.Compared(p[1].span.until(p[2].span), p[1].content, p[2])

    def p_range(self, p: Parts) -> None:
        """range : LBRACKET expression COLON expression RBRACKET
        | LBRACKET expression COLON expression RPAREN
        | LPAREN expression COLON expression RBRACKET
        | LPAREN expression COLON expression RPAREN"""
        p[0] = ast.Range(p[1].span.until(p[5].span), p[2], p[4], p[1].content == "[", p[5].content == "]")

    # Keys

    def p_keys(self, p: Parts) -> None:
        """keys : KEY key_list
        |"""
        p[0] = p[2] if len(p) == 3 else []

    def p_key_list(self, p: Parts) -> None:
        """key_list : key_list COMMA key
        | key"""
        p[0] = grown(p)

    def p_key(self, p: Parts) -> None:
        """key : key_source
        | key_source AS name"""
        p[0] = p[1] if len(p) == 2 else replace(p[1], name=p[3])

    def p_key_that_may_miss(self, p: Parts) -> None:
        """key : key_source QUESTION
        | key_source QUESTION AS name"""
        p[0] = replace(p[1], span=p[1].span.until(p[2].span), name=p[4] if len(p) == 5 else None, may_miss=True)

    def p_key_source(self, p: Parts) -> None:
        """key_source : name
        | name LPAREN arguments RPAREN"""
        is_field = len(p) == 2
        span = p[1].span if is_field else p[1].span.until(p[4].span)
        p[0] = ast.Key(span, p[1], None if is_field else tuple(p[3]), None)

    def p_key_member(self, p: Parts) -> None:
        """key_source : name key_members"""
        p[0] = ast.Key(p[1].span.until(p[2][-1].span), p[1], None, None, tuple(p[2]))

    def p_key_members(self, p: Parts) -> None:
        """key_members : key_members DOT name
        | DOT name"""
        p[0] = [p[2]] if len(p) == 3 else [*p[1], p[3]]

    def p_unique(self, p: Parts) -> None:
        """unique : WITH UNIQUE unique_list
        |"""
        p[0] = p[3] if len(p) == 4 else []

    def p_unique_list(self, p: Parts) -> None:
        """unique_list : unique_list COMMA key_source
        | key_source"""
        p[0] = grown(p)

    def p_newness(self, p: Parts) -> None:
        """newness : NEW BY unique_list WITHIN duration
        |"""
        p[0] = ast.NewBy(p[1].span.until(p[5].span), tuple(p[3]), p[5]) if len(p) == 6 else None

    # Windows and times

    def p_window(self, p: Parts) -> None:
        """window : WITHIN duration RETAIN sum
        | WITHIN duration
        |"""
        p[0] = Window(p[2] if len(p) > 2 else None, p[4] if len(p) > 4 else None)

    def p_window_retain(self, p: Parts) -> None:
        """window : RETAIN sum"""
        p[0] = Window(None, p[2])

    def p_window_reversed(self, p: Parts) -> None:
        """window : RETAIN sum WITHIN duration"""
        self.report(Mistake.SECTION_ORDER, p[3].span, section="within", other="retain")
        p[0] = Window(p[4], p[2])

    def p_clocking(self, p: Parts) -> None:
        """clocking : WAIT duration heartbeat
        |"""
        p[0] = ast.Clocking(p[1].span.until(_end(p)), None, p[2], p[3]) if len(p) == 4 else None

    def p_clocking_time_from(self, p: Parts) -> None:
        """clocking : TIME FROM name WAIT duration heartbeat
        | TIME FROM name LPAREN RPAREN WAIT duration heartbeat"""
        p[0] = ast.Clocking(p[1].span.until(_end(p)), p[3], p[len(p) - 2], p[len(p) - 1])

    def p_clocking_without_wait(self, p: Parts) -> None:
        """clocking : TIME FROM name
        | TIME FROM name LPAREN RPAREN"""
        span = p[1].span.until(p[3].span)
        self.report(Mistake.TIME_WITHOUT_WAIT, span)
        p[0] = ast.Clocking(span, p[3], None, None)

    def p_heartbeat(self, p: Parts) -> None:
        """heartbeat : OR event_type
        |"""
        p[0] = p[2] if len(p) == 3 else None

    # Durations

    def p_same_duration(self, p: Parts) -> None:
        """duration : time_literal
        | sum"""

    def p_duration_below_zero(self, p: Parts) -> None:
        """duration : MINUS time_literal"""
        span = p[1].span.until(p[2].span)
        self.report(Mistake.NOT_POSITIVE, span, what="a duration")
        p[0] = ast.Broken(span)

    def p_time_literal(self, p: Parts) -> None:
        """time_literal : time_parts"""
        parts = tuple(p[1])
        p[0] = ast.TimeLiteral(parts[0][0].span.until(parts[-1][1].span), parts)

    def p_time_parts(self, p: Parts) -> None:
        """time_parts : time_parts time_part
        | time_part"""
        p[0] = grown(p)

    def p_time_part(self, p: Parts) -> None:
        """time_part : number NAME"""
        p[0] = (p[1], ast.Name(p[2].content, p[2].span))


def _end(p: Parts) -> Span:
    """The place of the duration that ends the time part of an input."""
    span: Span = p[len(p) - 2].span
    return span
