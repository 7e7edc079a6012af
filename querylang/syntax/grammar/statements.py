# ruff: noqa: D403 (docstrings are rules)
"""Rules of blocks and statements."""

from __future__ import annotations

from querylang.errors import Mistake
from querylang.syntax import ast
from querylang.syntax.grammar.base import Parts, Rules, grown


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
