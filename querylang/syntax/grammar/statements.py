# ruff: noqa: D403 (docstrings are rules)
"""Rules of event definitions, types, blocks and statements."""

from __future__ import annotations

import re

from querylang.errors import Mistake, QueryError, nearest
from querylang.source import Span
from querylang.syntax import ast
from querylang.syntax.folded_tokens import REASONS
from querylang.syntax.grammar.expressions import Parts, Rules, grown, of_kind
from querylang.syntax.lexer import Token


class StatementRules(Rules):
    """The statements of a `find` block and of actions."""

    def p_block(self, p: Parts) -> None:
        """block : LBRACE statements RBRACE"""
        p[0] = ast.Block(p[1].span.until(p[3].span), tuple(p[2]))

    def p_statements(self, p: Parts) -> None:
        """statements : statements statement
        |"""
        p[0] = grown(p)

    def p_same_statement(self, p: Parts) -> None:
        """statement : block
        | if
        | refused"""

    # Output

    def p_statement_print(self, p: Parts) -> None:
        """statement : PRINT expression SEMICOLON"""
        p[0] = ast.Print(p[1].span, p[2])

    def p_statement_log(self, p: Parts) -> None:
        """statement : LOG expression SEMICOLON
        | LOG expression AT name SEMICOLON"""
        p[0] = ast.Log(p[1].span, p[2], p[4] if len(p) == 6 else None)

    def p_statement_send(self, p: Parts) -> None:
        """statement : SEND expression TO expression SEMICOLON"""
        p[0] = ast.Send(p[1].span, p[2], p[4])

    def p_statement_emit(self, p: Parts) -> None:
        """statement : EMIT expression SEMICOLON
        | EMIT expression TO expression SEMICOLON"""
        p[0] = ast.Emit(p[1].span, p[2], p[4] if len(p) == 6 else None)

    def p_statement_route(self, p: Parts) -> None:
        """statement : ROUTE expression SEMICOLON"""
        p[0] = ast.Route(p[1].span, p[2])

    # Variables and calls

    def p_statement_declaration(self, p: Parts) -> None:
        """statement : basic_type name initial SEMICOLON
        | postfix name initial SEMICOLON"""
        type_ = p[1] if isinstance(p[1], ast.TypeName) else self._type_of(p[1])
        p[0] = (
            ast.Broken(p[1].span) if type_ is None else ast.Declaration(p[1].span.until(p[2].span), type_, p[2], p[3])
        )

    def p_initial(self, p: Parts) -> None:
        """initial : ASSIGN expression
        |"""
        p[0] = p[2] if len(p) == 3 else None

    def p_statement_assignment(self, p: Parts) -> None:
        """statement : postfix ASSIGN expression SEMICOLON"""
        if not isinstance(p[1], ast.NameUse | ast.Member | ast.Index | ast.Broken):
            self.report(Mistake.NOT_A_TARGET, p[1].span)
            p[0] = ast.Broken(p[1].span)
        else:
            p[0] = ast.Assignment(p[1].span.until(p[2].span), p[1], p[3])

    def p_statement_evaluation(self, p: Parts) -> None:
        """statement : postfix SEMICOLON"""
        p[0] = ast.Evaluation(p[1].span, p[1])

    # Control flow

    def p_if(self, p: Parts) -> None:
        """if : IF expression then block
        | IF expression then block ELSE block"""
        p[0] = ast.If(p[1].span, p[2], p[4], p[6] if len(p) == 7 else None)

    def p_else_if(self, p: Parts) -> None:
        """if : IF expression then block ELSE if"""
        p[0] = ast.If(p[1].span, p[2], p[4], ast.Block(p[6].span, (p[6],)))

    def p_then(self, p: Parts) -> None:
        """then : THEN
        |"""

    def p_statement_ifpresent(self, p: Parts) -> None:
        """statement : IFPRESENT bindings then block
        | IFPRESENT bindings then block ELSE block"""
        p[0] = ast.IfPresent(p[1].span, tuple(p[2]), p[4], p[6] if len(p) == 7 else None)

    def p_bindings(self, p: Parts) -> None:
        """bindings : bindings COMMA binding
        | binding"""
        p[0] = grown(p)

    def p_binding(self, p: Parts) -> None:
        """binding : expression AS name
        | expression"""
        if len(p) == 4:
            p[0] = (p[1], p[3])
        elif isinstance(p[1], ast.NameUse):
            p[0] = (p[1], p[1].name)
        else:
            self.report(Mistake.NEEDS_NAME, p[1].span)
            p[0] = (ast.Broken(p[1].span), ast.Name("", p[1].span))

    def p_statement_while(self, p: Parts) -> None:
        """statement : WHILE expression block"""
        p[0] = ast.While(p[1].span, p[2], p[3])

    def p_statement_for(self, p: Parts) -> None:
        """statement : FOR name IN expression block"""
        p[0] = ast.For(p[1].span, p[2], p[4], p[5])

    def p_statement_break(self, p: Parts) -> None:
        """statement : BREAK SEMICOLON"""
        p[0] = ast.Break(p[1].span)

    def p_statement_continue(self, p: Parts) -> None:
        """statement : CONTINUE SEMICOLON"""
        p[0] = ast.Continue(p[1].span)

    def p_statement_return(self, p: Parts) -> None:
        """statement : RETURN SEMICOLON
        | RETURN expression SEMICOLON"""
        p[0] = ast.Return(p[1].span, p[2] if len(p) == 4 else None)

    def _type_of(self, value: ast.Expression) -> ast.TypeName | None:
        """The event type that an expression spells, as in `com.example.A a;`."""
        words: list[str] = []
        node = value
        while isinstance(node, ast.Member):
            words.append(node.name.text)
            node = node.receiver
        if isinstance(node, ast.NameUse):
            return ast.TypeName(value.span, ".".join([node.name.text, *reversed(words)]))
        self.report(Mistake.NOT_A_TYPE, value.span)
        return None


# Rules of event definitions: annotations, fields, constants, actions; of tables; and of types.


class EventTypeRules(Rules):
    """`@Annotation event Name { fields, constants, actions }`, `table Name { columns }`."""

    def p_table_definition(self, p: Parts) -> None:
        """table_definition : TABLE name LBRACE columns RBRACE"""
        p[0] = ast.TableDefinition(p[1].span.until(p[5].span), p[2], tuple(p[4]))

    def p_columns(self, p: Parts) -> None:
        """columns : columns column
        |"""
        p[0] = grown(p)

    def p_column(self, p: Parts) -> None:
        """column : type name SEMICOLON
        | KEY type name SEMICOLON"""
        is_key = len(p) == 5
        p[0] = ast.Column(p[1].span.until(p[len(p) - 2].span), p[len(p) - 2], p[len(p) - 3], is_key)

    def p_column_network(self, p: Parts) -> None:
        """column : KEY NETWORK name SEMICOLON"""
        p[0] = ast.Column(p[1].span.until(p[3].span), p[3], None, is_key=True)

    def p_event_definition(self, p: Parts) -> None:
        """event_definition : annotations EVENT name LBRACE members RBRACE"""
        annotations = of_kind(p[1], ast.Annotation)
        first = annotations[0].span if annotations else p[2].span
        package = self.package.name.text if self.package is not None else None
        p[0] = ast.EventDefinition(first.until(p[6].span), package, p[3], annotations, tuple(p[5]))

    def p_annotations(self, p: Parts) -> None:
        """annotations : annotations annotation
        |"""
        p[0] = grown(p)

    def p_annotation(self, p: Parts) -> None:
        """annotation : SIGN qualified_name
        | SIGN qualified_name LPAREN RPAREN
        | SIGN qualified_name LPAREN annotation_arguments RPAREN"""
        arguments = {3: None, 5: (), 6: tuple(p[4]) if len(p) == 6 else ()}[len(p)]
        end = p[2].span if len(p) == 3 else p[len(p) - 1].span
        p[0] = ast.Annotation(p[1].span.until(end), p[2], arguments)

    def p_annotation_arguments(self, p: Parts) -> None:
        """annotation_arguments : annotation_arguments COMMA annotation_argument
        | annotation_argument"""
        p[0] = grown(p)

    def p_same_annotation_argument(self, p: Parts) -> None:
        """annotation_argument : literal"""

    def p_members(self, p: Parts) -> None:
        """members : members member
        |"""
        p[0] = grown(p)

    def p_member_field(self, p: Parts) -> None:
        """member : type name SEMICOLON"""
        p[0] = ast.FieldDefinition(p[1].span.until(p[2].span), p[1], p[2])

    def p_member_constant(self, p: Parts) -> None:
        """member : CONSTANT type name ASSIGN signed_literal SEMICOLON"""
        p[0] = ast.ConstantDefinition(p[1].span.until(p[5].span), p[2], p[3], p[5])

    def p_same_member(self, p: Parts) -> None:
        """member : action
        | refused"""

    def p_refused(self, p: Parts) -> None:
        """refused : REFUSED"""
        p[0] = ast.Refused(p[1].span, f"`{p[1].content}`", REASONS[p[1].content])

    # Actions, of queries too

    def p_action(self, p: Parts) -> None:
        """action : ACTION name LPAREN action_parameters RPAREN returns block"""
        head = p[1].span.until(p[5].span if p[6] is None else p[6].span)
        p[0] = ast.ActionDefinition(head, p[2], tuple(p[4]), p[6], p[7])

    def p_returns(self, p: Parts) -> None:
        """returns : RETURNS type
        |"""
        p[0] = p[2] if len(p) == 3 else None

    def p_action_parameters(self, p: Parts) -> None:
        """action_parameters : action_parameter_list
        |"""
        p[0] = p[1] if len(p) == 2 else []

    def p_action_parameter_list(self, p: Parts) -> None:
        """action_parameter_list : action_parameter_list COMMA action_parameter
        | action_parameter"""
        p[0] = grown(p)

    def p_action_parameter(self, p: Parts) -> None:
        """action_parameter : type name"""
        p[0] = ast.Parameter(p[1].span.until(p[2].span), p[1], p[2])

    # Types

    def p_same_type(self, p: Parts) -> None:
        """type : basic_type"""

    def p_type_name(self, p: Parts) -> None:
        """type : qualified_name"""
        p[0] = ast.TypeName(p[1].span, p[1].text)

    def p_basic_type(self, p: Parts) -> None:
        """basic_type : BOOLEAN
        | INTEGER
        | FLOAT
        | DECIMAL
        | STRING
        | LOCATION"""
        p[0] = ast.TypeName(p[1].span, p[1].content)

    def p_basic_type_of(self, p: Parts) -> None:
        """basic_type : SEQUENCE LT type GT
        | OPTIONAL LT type GT
        | DICTIONARY LT type COMMA type GT"""
        inner = (p[3],) if len(p) == 5 else (p[3], p[5])
        p[0] = ast.TypeName(p[1].span.until(p[len(p) - 1].span), p[1].content, inner)


# Rules of `%send(...);` and `%custom(...) { ... }`, written by the vendor's graphical editor.
#
# The values of a `%send` are expressions in strings; they are parsed too, with places in the
# string.


_WORDS = ("send", "custom")


class VendorRules(Rules):
    """`%word("key":"value", "fields":{"name":"expression"})`."""

    def expression_in(self, text: Token) -> ast.Expression:
        """The expression in a string; the parser implements it."""
        raise NotImplementedError

    def p_statement_vendor_send(self, p: Parts) -> None:
        """statement : PERCENT SEND LPAREN vendor_items RPAREN SEMICOLON"""
        span = p[1].span.until(p[2].span)
        strings = {key.content: value for key, value in p[4] if isinstance(value, Token)}
        fields = [item for _key, value in p[4] if isinstance(value, list) for item in of_kind(value, tuple)]
        if "eventType" not in strings:
            self.report(Mistake.VENDOR_EVENT, span)
            p[0] = ast.Broken(span)
            return
        event, channel = strings["eventType"], strings.get("channel")
        p[0] = ast.VendorSend(
            span=span,
            event=ast.Name(event.content, _inside(event)),
            channel=None if channel is None else self.expression_in(channel),
            fields=tuple((ast.Name(key.content, _inside(key)), self.expression_in(value)) for key, value in fields),
            extra=tuple((key, value.content) for key, value in strings.items() if key not in {"eventType", "channel"}),
        )

    def p_statement_vendor_custom(self, p: Parts) -> None:
        """statement : PERCENT NAME LPAREN vendor_items RPAREN block
        | PERCENT NAME LPAREN vendor_items RPAREN SEMICOLON"""
        span = p[1].span.until(p[2].span)
        if p[2].content != "custom" or not isinstance(p[6], ast.Block):
            mistake = QueryError.of(Mistake.UNEXPECTED, span, found=f"`%{p[2].content}`", expected="a statement")
            word = nearest(p[2].content, _WORDS)
            self.mistakes.append(mistake.with_hint(None if word is None else f"did you mean `%{word}`?"))
            p[0] = ast.Broken(span)
            return
        items = tuple((key.content, value.content) for key, value in p[4] if isinstance(value, Token))
        p[0] = ast.VendorCustom(span, items, p[6])

    def p_vendor_items(self, p: Parts) -> None:
        """vendor_items : vendor_item_list
        |"""
        p[0] = p[1] if len(p) == 2 else []

    def p_vendor_item_list(self, p: Parts) -> None:
        """vendor_item_list : vendor_item_list COMMA vendor_item
        | vendor_item"""
        p[0] = grown(p)

    def p_vendor_item(self, p: Parts) -> None:
        """vendor_item : STRING_LITERAL COLON STRING_LITERAL"""
        p[0] = (p[1], p[3])

    def p_vendor_item_fields(self, p: Parts) -> None:
        """vendor_item : STRING_LITERAL COLON LBRACE vendor_fields RBRACE"""
        p[0] = (p[1], p[4])

    def p_vendor_fields(self, p: Parts) -> None:
        """vendor_fields : vendor_field_list
        |"""
        p[0] = p[1] if len(p) == 2 else []

    def p_vendor_field_list(self, p: Parts) -> None:
        """vendor_field_list : vendor_field_list COMMA vendor_field
        | vendor_field"""
        p[0] = grown(p)

    def p_vendor_field(self, p: Parts) -> None:
        """vendor_field : STRING_LITERAL COLON STRING_LITERAL"""
        p[0] = (p[1], p[3])


def _inside(token: Token) -> Span:
    """The place of a string without its quotes."""
    return Span(token.source, token.start + 1, max(token.start + 1, token.end - 1))


def offsets(token: Token) -> list[int]:
    """The place in the source of each character of the string's value, and of its end."""
    raw = token.span.text[1:]
    start = token.start + 1
    found = [start + match.start() for match in re.finditer(r"\\.|[^\\\"]", raw, re.DOTALL)]
    return [*found, token.end - 1]
