"""The words of the additions are words only where the grammar has them: elsewhere they are names."""

from __future__ import annotations

import pytest

import querylang

WORDS = "all after match skip past last first consecutive prev count sum avg min max by most per is null"

TEXT = """
package {w}.x;
event {w} {{ integer {w}; string k; action {w}x() returns integer {{ return {w}; }} }}
event B {{ integer {w}; string k; }}
query {w}q {{
    parameters {{ integer {w}p := 1; }}
    inputs {{ {w}({w} > 0) key k within 9.0; B({w} > {w}p) key k within 9.0; }}
    find {w} as {w} -> B as b where {w}.{w} < b.{w} without B as c where c.{w} = {w}.{w}
    {{ integer x := {w}.{w}; print x.toString(); }}
}}
query {w} {{
    parameters {{ integer {w} := 1; }}
    inputs {{ B({w} > {w}) within 9.0; }}
    find B as a -> B as b select a.{w} + {w} as total
    {{ integer y := own{w}({w}); print y.toString(); }}
    action own{w}(integer {w}) returns integer {{ return {w} + 1; }}
}}
query Selected {{ inputs {{ B() within 9.0; }} find B as a -> B as b select a.{w} as {w} }}
query Wait {{ inputs {{ B() within 9.0; }} find B as a -> wait(1.0) as {w} -> B as b without B as x between (a {w}) }}
query Without {{
    inputs {{ B() within 9.0; }}
    find B as a without B as {w} where {w}.{w} > 1 {{ integer {w} := 3; print {w}.toString(); }}
}}
query Key {{ inputs {{ B() key {w} as {w} within 9.0; }} find B as a -> B as b {{ print {w}.toString(); }} }}
query Every {{ inputs {{ {w}() within 9.0; }} find every {w} as a select last(a.{w}) as x having count() > 1 }}
query New {{
    inputs {{ B() key k within 9.0 with unique {w} new by {w}, k within 9.0; }}
    find B as a {{ B x := new B; print x.toString(); {w} y := new {w}; print y.toString(); }}
}}
query Skip {{
    inputs {{ {w}() within 9.0; }}
    find {w} as {w} {{2,3}} -> {w} as b after match skip to first {w}
}}
query Rate {{
    inputs {{ B() key k within 9.0; }}
    find B as {w} where {w}.{w} = 1 after match skip to first {w} at most 2 per 1 hour by {w}.{w}, k {{ print {w}.k; }}
}}
query Often {{ parameters {{ integer {w} := 1; }} inputs {{ B() within 9.0; }} find B as b at most {w} per {w} by {w} }}
query Names {{ inputs {{ B() within 9.0; }} find B as {w} -> B as b within 3.0 between ({w} b) at most 1 per 1.0 }}
query Run {{ inputs {{ {w}() within 9.0; }} find {w} : {w} + -> {w}() as b {{ print b.{w}.toString(); }} }}
"""


@pytest.mark.parametrize("word", WORDS.split())
def test_a_word_of_the_additions_is_a_name_wherever_names_are(word: str) -> None:
    assert len(querylang.compile_text(TEXT.format(w=word)).plan.queries) == 13
