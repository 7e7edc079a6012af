# ruff: noqa: D102, D403 (docstrings are rules)
"""The grammar, for ply: LALR(1), a rule is the docstring of the method that builds its node.

Takes tokens; builds the nodes of `querylang.ast`. Rules with `error` say where parsing goes on after a mistake: at the
next `;`, closing brace, clause, section or query. What the language knows but this release does not do becomes an
`Unsupported` node: the checker refuses it. After a change: `python -m querylang.build_tables`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from querylang import ast
from querylang.errors import Mistake
from querylang.expression import Type
from querylang.source import Span
from querylang.tokens import SOFT_KEYWORDS


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a query with its keyword; `node` is an Inputs, Find, Unsupported or Broken."""

    keyword: str
    span: Span
    node: Any


@dataclass(frozen=True, slots=True)
class QueryParts:
    """A query whose sections nobody has looked at yet; a bare body has no name."""

    span: Span
    name: ast.Name | None
    sections: tuple[Section, ...]


@dataclass(frozen=True, slots=True)
class Window:
    """The part of an input between its key and its `wait`."""

    within: ast.Duration | None = None
    retain: ast.Expression | None = None
    unique: ast.Unsupported | None = None


class Grammar:
    """The rules. `p[0]` becomes the node of the rule, `p[1]` ... are its parts: nodes, or tokens for words."""

    start = "file"

    precedence = ("NOTHING_MORE", "error")
    """Loosest first: a mistake behind a pattern is one of its clauses, not one behind the query."""

    def p_file(self, p: Any) -> None:
        """file : items"""

    def p_items(self, p: Any) -> None:
        """items : items item
        |"""
        if len(p) == 3 and p[2] is not None:
            p.lexer.items.append(p[2])

    def p_item(self, p: Any) -> None:
        """item : event_definition
        | query
        | section"""
        p[0] = p[1]

    def p_item_package(self, p: Any) -> None:
        """item : PACKAGE qualified_name SEMICOLON"""
        p.lexer.package = p[2].text

    def p_item_using(self, p: Any) -> None:
        """item : USING qualified_name SEMICOLON
        | USING qualified_name DOT STAR SEMICOLON"""

    def p_item_error(self, p: Any) -> None:
        """item : error"""

    # Names

    def p_name(self, p: Any) -> None:
        p[0] = ast.Name(p[1].content, p[1].span)

    p_name.__doc__ = "name : NAME\n" + "\n".join(f"| {kind}" for kind in SOFT_KEYWORDS)

    def p_qualified_name(self, p: Any) -> None:
        """qualified_name : NAME
        | qualified_name DOT NAME"""
        if len(p) == 2:
            p[0] = ast.Name(p[1].content, p[1].span)
        else:
            p[0] = ast.Name(f"{p[1].text}.{p[3].content}", p[1].span.until(p[3].span))

    def p_event_type(self, p: Any) -> None:
        """event_type : qualified_name
        | DOT qualified_name"""
        p[0] = p[len(p) - 1]

    # Event definitions

    def p_event_definition(self, p: Any) -> None:
        """event_definition : annotations EVENT name LBRACE members RBRACE
        | annotations EVENT name LBRACE members error RBRACE"""
        members = p[5]
        first = p[1][0].span if p[1] else p[2].span
        p[0] = ast.EventDefinition(
            span=first.until(p[len(p) - 1].span),
            package=p.lexer.package,
            name=p[3],
            annotations=p[1],
            fields=_of_kind(members, ast.FieldDefinition),
            actions=_of_kind(members, ast.ActionDefinition),
            unsupported=_of_kind(members, ast.Unsupported),
            is_broken=len(p) == 8 or bool(_of_kind(members, ast.Broken)),
        )

    def p_annotations(self, p: Any) -> None:
        """annotations : annotations annotation
        |"""
        p[0] = _grown(p)

    def p_annotation(self, p: Any) -> None:
        """annotation : SIGN qualified_name LPAREN RPAREN
        | SIGN qualified_name LPAREN literals RPAREN"""
        p[0] = ast.Annotation(p[1].span.until(p[len(p) - 1].span), p[2], p[4] if len(p) == 6 else ())

    def p_literals(self, p: Any) -> None:
        """literals : literals COMMA literal
        | literal"""
        p[0] = _grown(p)

    def p_members(self, p: Any) -> None:
        """members : members member
        |"""
        p[0] = _grown(p)

    def p_member_field(self, p: Any) -> None:
        """member : type name SEMICOLON"""
        p[0] = ast.FieldDefinition(p[1], p[2])

    def p_member_constant(self, p: Any) -> None:
        """member : CONSTANT type name ASSIGN expression SEMICOLON"""
        p[0] = ast.Unsupported(p[1].span.until(p[3].span), "`constant` in an event")

    def p_member_action(self, p: Any) -> None:
        """member : action"""
        p[0] = p[1]

    def p_member_error(self, p: Any) -> None:
        """member : error SEMICOLON"""
        p[0] = ast.Broken(p[2].span)

    def p_action(self, p: Any) -> None:
        """action : ACTION name LPAREN action_parameters RPAREN block
        | ACTION name LPAREN action_parameters RPAREN RETURNS type block"""
        returned = None
        if [type(statement) for statement in p[len(p) - 1]] == [ast.Return]:
            value = p[len(p) - 1][0].value
            returned = value.name if isinstance(value, ast.NameUse) else None
        p[0] = ast.ActionDefinition(
            span=p[1].span.until(p[2].span),
            name=p[2],
            has_parameters=bool(p[4]),
            returns=p[7] if len(p) == 9 else None,
            returned=returned,
        )

    def p_action_parameters(self, p: Any) -> None:
        """action_parameters : action_parameter_list
        |"""
        p[0] = p[1] if len(p) == 2 else ()

    def p_action_parameter_list(self, p: Any) -> None:
        """action_parameter_list : action_parameter_list COMMA action_parameter
        | action_parameter"""
        p[0] = _grown(p)

    def p_action_parameter(self, p: Any) -> None:
        """action_parameter : type name"""
        p[0] = p[2]

    # Types

    def p_type(self, p: Any) -> None:
        """type : basic_type
        | qualified_name"""
        p[0] = ast.TypeName(p[1].text, p[1].span)

    def p_basic_type(self, p: Any) -> None:
        """basic_type : BOOLEAN
        | INTEGER
        | FLOAT
        | DECIMAL
        | STRING
        | LOCATION"""
        p[0] = ast.TypeName(p[1].content, p[1].span)

    def p_basic_type_of(self, p: Any) -> None:
        """basic_type : SEQUENCE LT type GT
        | OPTIONAL LT type GT
        | DICTIONARY LT type COMMA type GT"""
        span = p[1].span.until(p[len(p) - 1].span)
        p[0] = ast.TypeName(f"{p[1].content}<...>", span)

    # Queries

    def p_query(self, p: Any) -> None:
        """query : QUERY name LBRACE query_sections RBRACE"""
        p[0] = QueryParts(p[1].span.until(p[5].span), p[2], p[4])

    def p_query_sections(self, p: Any) -> None:
        """query_sections : query_sections query_section
        |"""
        p[0] = _grown(p)

    def p_query_section(self, p: Any) -> None:
        """query_section : section"""
        p[0] = p[1]

    def p_query_section_error(self, p: Any) -> None:
        """query_section : error"""
        p[0] = Section("", p.lexer.last, ast.Broken(p.lexer.last))

    def p_section(self, p: Any) -> None:
        """section : metadata
        | parameters
        | inputs
        | find"""
        p[0] = p[1]

    def p_section_action(self, p: Any) -> None:
        """section : action"""
        p[0] = Section("action", p[1].span, ast.Unsupported(p[1].span, "`action` in a query"))

    def p_metadata(self, p: Any) -> None:
        """metadata : METADATA LBRACE metadata_items RBRACE"""
        p[0] = Section("metadata", p[1].span, ast.Unsupported(p[1].span, "`metadata`"))

    def p_metadata_items(self, p: Any) -> None:
        """metadata_items : metadata_items STRING_LITERAL COLON STRING_LITERAL
        | metadata_items STRING_LITERAL COLON STRING_LITERAL COMMA
        |"""

    def p_parameters(self, p: Any) -> None:
        """parameters : PARAMETERS LBRACE parameter_list RBRACE"""
        p[0] = Section("parameters", p[1].span, ast.Unsupported(p[1].span, "`parameters`", p[3]))

    def p_parameter_list(self, p: Any) -> None:
        """parameter_list : parameter_list basic_type name SEMICOLON
        | parameter_list basic_type name ASSIGN expression SEMICOLON
        |"""
        p[0] = () if len(p) == 1 else (*p[1], p[3])

    # Inputs

    def p_inputs(self, p: Any) -> None:
        """inputs : INPUTS LBRACE input_list RBRACE
        | INPUTS LT input_list GT
        | INPUTS LBRACE input_list error RBRACE
        | INPUTS LT input_list error GT"""
        items = _of_kind(p[3], ast.InputDefinition)
        node = ast.Inputs(p[1].span, items, len(p) == 6 or len(items) < len(p[3]))
        p[0] = Section("inputs", p[1].span, node)

    def p_input_list(self, p: Any) -> None:
        """input_list : input_list input
        |"""
        p[0] = _grown(p)

    def p_input(self, p: Any) -> None:
        """input : event_type LPAREN filters RPAREN keys window unique clocking SEMICOLON"""
        p[0] = ast.InputDefinition(
            span=p[1].span.until(p[9].span),
            event=p[1],
            filters=p[3],
            keys=p[5],
            within=p[6].within,
            retain=p[6].retain,
            unique=p[7],
            clocking=p[8],
        )

    def p_input_error(self, p: Any) -> None:
        """input : error SEMICOLON"""
        p[0] = ast.Broken(p[2].span)

    def p_filters(self, p: Any) -> None:
        """filters : filter_list
        |"""
        p[0] = p[1] if len(p) == 2 else ()

    def p_filter_list(self, p: Any) -> None:
        """filter_list : filter_list COMMA filter
        | filter"""
        p[0] = _grown(p)

    def p_filter_by_position(self, p: Any) -> None:
        """filter : test
        | range"""
        p[0] = ast.Filter(p[1].span, None, p[1])

    def p_filter_by_equality(self, p: Any) -> None:
        """filter : sum"""
        p[0] = ast.Filter(p[1].span, None, ast.Compared(p[1].span, "=", p[1]))

    def p_filter_anything(self, p: Any) -> None:
        """filter : STAR"""
        p[0] = ast.Filter(p[1].span, None, ast.Anything(p[1].span))

    def p_filter_by_name(self, p: Any) -> None:
        """filter : name test
        | name IN range"""
        p[0] = ast.Filter(p[1].span.until(p[len(p) - 1].span), p[1], p[len(p) - 1])

    def p_filter_by_name_anything(self, p: Any) -> None:
        """filter : name EQ STAR"""
        p[0] = ast.Filter(p[1].span.until(p[3].span), p[1], ast.Anything(p[3].span))

    def p_test(self, p: Any) -> None:
        """test : EQ sum
        | LT sum
        | LE sum
        | GT sum
        | GE sum"""
        p[0] = ast.Compared(p[1].span.until(p[2].span), p[1].content, p[2])

    def p_range(self, p: Any) -> None:
        """range : LBRACKET expression COLON expression RBRACKET
        | LBRACKET expression COLON expression RPAREN
        | LPAREN expression COLON expression RBRACKET
        | LPAREN expression COLON expression RPAREN"""
        p[0] = ast.Range(p[1].span.until(p[5].span), p[2], p[4], p[1].content == "[", p[5].content == "]")

    def p_keys(self, p: Any) -> None:
        """keys : KEY key_list
        |"""
        p[0] = p[2] if len(p) == 3 else ()

    def p_key_list(self, p: Any) -> None:
        """key_list : key_list COMMA key
        | key"""
        p[0] = _grown(p)

    def p_key(self, p: Any) -> None:
        """key : name
        | name AS name"""
        p[0] = ast.Key(p[1].span, p[1], is_action=False, name=p[3] if len(p) == 4 else None)

    def p_key_action(self, p: Any) -> None:
        """key : name LPAREN arguments RPAREN
        | name LPAREN arguments RPAREN AS name"""
        p[0] = ast.Key(p[1].span.until(p[4].span), p[1], is_action=True, name=p[6] if len(p) == 7 else None)

    def p_window(self, p: Any) -> None:
        """window : WITHIN duration RETAIN sum
        | WITHIN duration
        |"""
        p[0] = Window(p[2] if len(p) > 2 else None, p[4] if len(p) > 4 else None)

    def p_window_retain(self, p: Any) -> None:
        """window : RETAIN sum"""
        p[0] = Window(None, p[2])

    def p_unique(self, p: Any) -> None:
        """unique : WITH UNIQUE key_list
        |"""
        p[0] = ast.Unsupported(p[1].span.until(p[2].span), "`with unique`") if len(p) == 4 else None

    def p_clocking(self, p: Any) -> None:
        """clocking : WAIT duration heartbeat
        |"""
        p[0] = ast.Clocking(p[1].span.until(p[2].span), None, p[2], p[3]) if len(p) == 4 else None

    def p_clocking_time_from(self, p: Any) -> None:
        """clocking : TIME FROM name WAIT duration heartbeat
        | TIME FROM name LPAREN RPAREN WAIT duration heartbeat"""
        duration = p[len(p) - 2]
        p[0] = ast.Clocking(p[1].span.until(duration.span), p[3], duration, p[len(p) - 1])

    def p_clocking_without_wait(self, p: Any) -> None:
        """clocking : TIME FROM name"""
        p.lexer.report(Mistake.TIME_WITHOUT_WAIT, p[1].span.until(p[3].span))
        p[0] = None

    def p_heartbeat(self, p: Any) -> None:
        """heartbeat : OR event_type
        |"""
        p[0] = p[2] if len(p) == 3 else None

    # Durations

    def p_duration(self, p: Any) -> None:
        """duration : time_literal
        | sum"""
        p[0] = p[1]

    def p_duration_below_zero(self, p: Any) -> None:
        """duration : MINUS time_literal"""
        span = p[1].span.until(p[2].span)
        p.lexer.report(Mistake.NOT_POSITIVE, span, what="a duration")
        p[0] = ast.Broken(span)

    def p_time_literal(self, p: Any) -> None:
        """time_literal : time_part
        | time_literal time_part"""
        parts = (p[1],) if len(p) == 2 else (*p[1].parts, p[2])
        p[0] = ast.TimeLiteral(parts[0][0].span.until(parts[-1][1].span), parts)

    def p_time_part(self, p: Any) -> None:
        """time_part : number NAME"""
        p[0] = (p[1], ast.Name(p[2].content, p[2].span))

    # Find

    def p_find(self, p: Any) -> None:
        """find : FIND pattern clauses ending
        | FIND error clauses ending
        | FIND EVERY pattern clauses ending"""
        is_every = len(p) == 6
        pattern = p[len(p) - 3]
        if not isinstance(pattern, ast.Pattern):
            pattern = ast.Broken(p[1].span)
        find = ast.Find(p[1].span, p[2].span if is_every else None, pattern, _attached(p[len(p) - 2]), p[len(p) - 1])
        p[0] = Section("find", p[1].span, find)

    def p_ending(self, p: Any) -> None:
        """ending : block
        | SEMICOLON
        | %prec NOTHING_MORE"""
        p[0] = p[1] if len(p) == 2 and isinstance(p[1], tuple) else ()

    def p_pattern(self, p: Any) -> None:
        """pattern : pattern ARROW disjunction
        | disjunction"""
        p[0] = _joined(p, "->")

    def p_disjunction(self, p: Any) -> None:
        """disjunction : disjunction OR conjunction
        | conjunction"""
        p[0] = _joined(p, "or")

    def p_conjunction(self, p: Any) -> None:
        """conjunction : conjunction AND pattern_part
        | pattern_part"""
        p[0] = _joined(p, "and")

    def p_pattern_part_term(self, p: Any) -> None:
        """pattern_part : event_type naming
        | event_type LPAREN RPAREN naming"""
        name = p[len(p) - 1]
        p[0] = ast.PatternTerm(p[1].span.until(name.span), p[1], name)

    def p_pattern_part_wait(self, p: Any) -> None:
        """pattern_part : WAIT LPAREN duration RPAREN
        | WAIT LPAREN duration RPAREN naming"""
        p[0] = ast.PatternWait(p[1].span.until(p[4].span), p[3], p[5] if len(p) == 6 else None)

    def p_pattern_part_group(self, p: Any) -> None:
        """pattern_part : LPAREN pattern RPAREN"""
        # A copy: a group is one part of what is around it, even if both are joined by the same word.
        p[0] = replace(p[2], span=p[1].span.until(p[3].span)) if isinstance(p[2], ast.PatternJoin) else p[2]

    def p_naming(self, p: Any) -> None:
        """naming : AS name
        | COLON name"""
        p[0] = p[2]

    def p_clauses(self, p: Any) -> None:
        """clauses : clauses clause
        |"""
        p[0] = _grown(p)

    def p_clause_where(self, p: Any) -> None:
        """clause : WHERE expression"""
        p[0] = ast.Where(p[1].span, p[2])

    def p_clause_within(self, p: Any) -> None:
        """clause : WITHIN duration"""
        p[0] = ast.Within(p[1].span.until(p[2].span), p[2])

    def p_clause_between(self, p: Any) -> None:
        """clause : BETWEEN LPAREN name_list RPAREN"""
        p[0] = ast.Unsupported(p[1].span, "`between`")

    def p_name_list(self, p: Any) -> None:
        """name_list : name_list name
        |"""

    def p_clause_without(self, p: Any) -> None:
        """clause : WITHOUT event_type naming"""
        p[0] = ast.Unsupported(p[1].span, "`without`", (p[3],))

    def p_clause_select(self, p: Any) -> None:
        """clause : SELECT expression naming"""
        p[0] = ast.Unsupported(p[1].span, "`select`", (p[3],))

    def p_clause_having(self, p: Any) -> None:
        """clause : HAVING expression"""
        p[0] = ast.Unsupported(p[1].span, "`having`")

    def p_clause_error(self, p: Any) -> None:
        """clause : error"""
        p[0] = ast.Broken(p.lexer.last)

    # Statements

    def p_block(self, p: Any) -> None:
        """block : LBRACE statements RBRACE
        | LBRACE statements error RBRACE"""
        p[0] = p[2] if len(p) == 4 else (*p[2], ast.Broken(p[4].span))

    def p_statements(self, p: Any) -> None:
        """statements : statements statement
        |"""
        p[0] = _grown(p)

    def p_statement_print(self, p: Any) -> None:
        """statement : PRINT expression SEMICOLON"""
        p[0] = ast.Print(p[1].span, p[2])

    def p_statement_send(self, p: Any) -> None:
        """statement : SEND expression TO expression SEMICOLON"""
        p[0] = ast.Send(p[1].span, p[2], p[4])

    def p_statement_return(self, p: Any) -> None:
        """statement : RETURN SEMICOLON
        | RETURN expression SEMICOLON"""
        p[0] = ast.Return(p[1].span, p[2] if len(p) == 4 else None)

    def p_statement_of_one_word(self, p: Any) -> None:
        """statement : LOG expression SEMICOLON
        | LOG expression AT name SEMICOLON
        | EMIT expression SEMICOLON
        | EMIT expression TO expression SEMICOLON
        | ROUTE expression SEMICOLON
        | WHILE expression block
        | FOR name IN expression block
        | BREAK SEMICOLON
        | CONTINUE SEMICOLON"""
        p[0] = ast.Unsupported(p[1].span, f"`{p[1].content}`")

    def p_statement_if(self, p: Any) -> None:
        """statement : if"""
        p[0] = p[1]

    def p_if(self, p: Any) -> None:
        """if : IF expression then block
        | IF expression then block ELSE block
        | IF expression then block ELSE if"""
        p[0] = ast.Unsupported(p[1].span, "`if`")

    def p_then(self, p: Any) -> None:
        """then : THEN
        |"""

    def p_statement_declaration(self, p: Any) -> None:
        """statement : basic_type name SEMICOLON
        | basic_type name ASSIGN expression SEMICOLON
        | postfix name SEMICOLON
        | postfix name ASSIGN expression SEMICOLON"""
        p[0] = ast.Unsupported(p[1].span.until(p[2].span), "a local declaration", (p[2],))

    def p_statement_assignment(self, p: Any) -> None:
        """statement : postfix ASSIGN expression SEMICOLON"""
        p[0] = ast.Unsupported(p[1].span.until(p[2].span), "an assignment")

    def p_statement_call(self, p: Any) -> None:
        """statement : expression SEMICOLON"""
        p[0] = ast.Unsupported(p[1].span, "an expression as a statement")

    def p_statement_block(self, p: Any) -> None:
        """statement : LBRACE statements RBRACE"""
        p[0] = ast.Unsupported(p[1].span, "a block inside a block")

    def p_statement_vendor(self, p: Any) -> None:
        """statement : PERCENT SEND LPAREN vendor_items RPAREN SEMICOLON
        | PERCENT NAME LPAREN vendor_items RPAREN SEMICOLON
        | PERCENT NAME LPAREN vendor_items RPAREN block"""
        p[0] = ast.Unsupported(p[1].span.until(p[2].span), f"`%{p[2].content}`")

    def p_vendor_items(self, p: Any) -> None:
        """vendor_items : vendor_items COMMA vendor_item
        | vendor_item
        |"""

    def p_vendor_item(self, p: Any) -> None:
        """vendor_item : STRING_LITERAL COLON STRING_LITERAL
        | STRING_LITERAL COLON LBRACE vendor_items RBRACE"""

    def p_statement_error(self, p: Any) -> None:
        """statement : error SEMICOLON"""
        p[0] = ast.Broken(p[2].span)

    # Expressions, loosest first

    def p_expression(self, p: Any) -> None:
        """expression : expression OR exclusive
        | exclusive
        exclusive : exclusive XOR conjunct
        | conjunct
        conjunct : conjunct AND negation
        | negation
        sum : sum PLUS product
        | sum MINUS product
        | product
        product : product STAR sign
        | product SLASH sign
        | product PERCENT sign
        | sign"""
        p[0] = _binary(p)

    def p_negation(self, p: Any) -> None:
        """negation : NOT negation
        | comparison
        sign : MINUS sign
        | postfix"""
        p[0] = ast.Unary(p[1].span.until(p[2].span), p[1].content, p[2]) if len(p) == 3 else p[1]

    def p_comparison(self, p: Any) -> None:
        """comparison : sum
        | compared
        | chain
        compared : sum EQ sum
        | sum NE sum
        | sum LT sum
        | sum LE sum
        | sum GT sum
        | sum GE sum"""
        p[0] = _binary(p)

    def p_chain(self, p: Any) -> None:
        """chain : compared comparer sum
        | chain comparer sum"""
        if not isinstance(p[1], ast.Broken):
            p.lexer.report(Mistake.COMPARISON_CHAIN, p[2].span)
        p[0] = ast.Broken(p[1].span.until(p[3].span))

    def p_comparer(self, p: Any) -> None:
        """comparer : EQ
        | NE
        | LT
        | LE
        | GT
        | GE"""
        p[0] = p[1]

    def p_postfix(self, p: Any) -> None:
        """postfix : primary"""
        p[0] = p[1]

    def p_postfix_member(self, p: Any) -> None:
        """postfix : postfix DOT NAME"""
        p[0] = ast.Member(p[1].span.until(p[3].span), p[1], ast.Name(p[3].content, p[3].span))

    def p_postfix_call(self, p: Any) -> None:
        """postfix : postfix DOT NAME LPAREN arguments RPAREN"""
        p[0] = ast.Call(p[1].span.until(p[6].span), p[1], ast.Name(p[3].content, p[3].span), p[5])

    def p_postfix_index(self, p: Any) -> None:
        """postfix : postfix LBRACKET expression RBRACKET"""
        p[0] = ast.Unsupported(p[2].span.until(p[4].span), "an index")

    def p_primary(self, p: Any) -> None:
        """primary : literal"""
        p[0] = p[1]

    def p_primary_name(self, p: Any) -> None:
        """primary : name"""
        p[0] = ast.NameUse(p[1])

    def p_primary_call(self, p: Any) -> None:
        """primary : name LPAREN arguments RPAREN"""
        p[0] = ast.Call(p[1].span.until(p[4].span), None, p[1], p[3])

    def p_primary_type_constant(self, p: Any) -> None:
        """primary : basic_type DOT NAME"""
        p[0] = ast.TypeConstant(p[1].span.until(p[3].span), p[1].text, ast.Name(p[3].content, p[3].span))

    def p_primary_type_call(self, p: Any) -> None:
        """primary : basic_type DOT NAME LPAREN arguments RPAREN"""
        p[0] = ast.Unsupported(p[1].span.until(p[3].span), f"`{p[1].text}.{p[3].content}`")

    def p_primary_group(self, p: Any) -> None:
        """primary : LPAREN expression RPAREN"""
        p[0] = p[2]

    def p_primary_sequence(self, p: Any) -> None:
        """primary : LBRACKET arguments RBRACKET"""
        p[0] = ast.Unsupported(p[1].span.until(p[3].span), "a sequence")

    def p_sign_new(self, p: Any) -> None:
        """sign : NEW type"""
        p[0] = ast.Unsupported(p[1].span.until(p[2].span), "`new`")

    def p_arguments(self, p: Any) -> None:
        """arguments : argument_list
        |"""
        p[0] = p[1] if len(p) == 2 else ()

    def p_argument_list(self, p: Any) -> None:
        """argument_list : argument_list COMMA expression
        | expression"""
        p[0] = _grown(p)

    # Literals

    def p_literal(self, p: Any) -> None:
        """literal : number"""
        p[0] = p[1]

    def p_literal_string(self, p: Any) -> None:
        """literal : STRING_LITERAL"""
        p[0] = ast.Constant(p[1].span, Type.STRING, p[1].content)

    def p_literal_boolean(self, p: Any) -> None:
        """literal : TRUE
        | FALSE"""
        p[0] = ast.Constant(p[1].span, Type.BOOLEAN, p[1].content == "true")

    def p_literal_decimal(self, p: Any) -> None:
        """literal : DECIMAL_LITERAL"""
        p[0] = ast.Unsupported(p[1].span, "`decimal`")

    def p_number_integer(self, p: Any) -> None:
        """number : INTEGER_LITERAL"""
        digits = p[1].content.lstrip("0") or "0"
        # Python refuses to read thousands of digits; how far beyond 64 bits a number is does not matter.
        p[0] = ast.Constant(p[1].span, Type.INTEGER, int(digits[:100]))

    def p_number_float(self, p: Any) -> None:
        """number : FLOAT_LITERAL"""
        p[0] = ast.Constant(p[1].span, Type.FLOAT, float(p[1].content))


def _grown(p: Any) -> tuple[Any, ...]:
    """A list's rule: empty, its first element, or a longer list; separators are not kept."""
    match len(p):
        case 1:
            return ()
        case 2:
            return (p[1],)
        case length:
            return (*p[1], p[length - 1])


def _of_kind(nodes: Iterable[Any], kind: type) -> tuple[Any, ...]:
    return tuple(node for node in nodes if isinstance(node, kind))


def _binary(p: Any) -> ast.Expression:
    if len(p) == 2:
        single: ast.Expression = p[1]
        return single
    return ast.Binary(p[1].span.until(p[3].span), p[2].content, p[1], p[3])


def _joined(p: Any, operator: str) -> ast.Pattern:
    if len(p) == 2:
        single: ast.Pattern = p[1]
        return single
    left, right = p[1], p[3]
    span = left.span.until(right.span)
    if isinstance(left, ast.PatternJoin) and left.operator == operator:
        return ast.PatternJoin(span, operator, (*left.parts, right))
    return ast.PatternJoin(span, operator, (left, right))


def _attached(clauses: tuple[ast.Clause, ...]) -> tuple[ast.Clause, ...]:
    """A `where` behind a `without` belongs to it: it is no condition of the pattern."""
    kept: list[ast.Clause] = []
    for clause in clauses:
        is_after_without = bool(kept) and isinstance(kept[-1], ast.Unsupported) and kept[-1].what == "`without`"
        if not (isinstance(clause, ast.Where) and is_after_without):
            kept.append(clause)
    return tuple(kept)
