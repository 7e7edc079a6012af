# ruff: noqa: D403 (docstrings are rules)
"""Rules of event definitions: annotations, fields, constants, actions; and of types."""

from __future__ import annotations

from querylang.syntax import ast
from querylang.syntax.foreign_constructs import REASONS
from querylang.syntax.grammar.base import Parts, Rules, grown, of_kind


class EventTypeRules(Rules):
    """`@Annotation event Name { fields, constants, actions }`."""

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
