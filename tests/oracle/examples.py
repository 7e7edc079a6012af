"""The rules of a pattern's meaning as examples in letters; each line is a find, its inputs, events, and the matches.

`letters.py` says how they are read.
"""

from __future__ import annotations

WINDOWS_AND_CANDIDATES = (
    # An event that a filter keeps out takes no retain slot; `within` is strict.
    ("A as a -> A as b", "A(v > 0) retain 2", "A1(1) A2(0) A3(1)", "a: A1, b: A3"),
    ("A as a -> A as b", "A retain 2", "A1(1) A2(0) A3(1)", "a: A1, b: A2; a: A2, b: A3"),
    ("A as a -> A as b", "A within 30", "A0 A29.9 A59.9", "a: A0, b: A29.9"),
    # Of equal times the row decides.
    ("A as a -> B as b", "A; B", "B1 A1", ""),
    ("A as a -> B as b", "A; B", "A1 B1", "a: A1, b: B1"),
    # The latest event is in the match.
    ("A as a -> B as b", "A; B", "A1 B2 A3", "a: A1, b: B2"),
    # One event may serve a name on each side of `and`.
    ("(X as x -> A as a1) and (Y as y -> A as a2)", "X; Y; A", "X1 A2 Y3 A4", "x: X1, a1: A4, y: Y3, a2: A4"),
    ("A as a and A as b", "A", "A1", "a: A1, b: A1"),
    # Sides of `or`: the more recent one; both where they bind the same events.
    ("(A as a -> C as c) or (B as b -> C as d)", "A; B; C", "A1 B2 C3", "b: B2, d: C3"),
    ("(A as a -> C as c) or (B as b -> C as d)", "A; B; C", "B1 A2 C3", "a: A2, c: C3"),
    ("A as a or A as b", "A", "A1", "a: A1, b: A1"),
)

CONDITIONS = (
    ("A as a -> A as b within 30", "A", "A0 A29.9", "a: A0, b: A29.9"),
    ("A as a -> A as b within 30", "A", "A0 A30", ""),
    ("A as a -> B as b -> C as c within 2 between (a b)", "A; B; C", "A0 B2 C3", ""),
    ("A as a -> B as b -> C as c within 2 between (b c)", "A; B; C", "A0 B2 C3", "a: A0, b: B2, c: C3"),
    # Ignored where it mentions an unset name.
    ("A as a or B as b where a.v > 5", "A; B", "A1(1) B2", "b: B2"),
    ("A as a or B as b -> C as c within 1 between (a c)", "A; B; C", "B1 C3", "b: B1, c: C3"),
    # `without`: strictly inside, not what the candidate binds, and only what its `where` means.
    ("A as a -> C as c without B as x", "A; B; C", "A1 B2 C3", ""),
    ("A as a -> C as c without B as x", "A; B; C", "B1 A1 C3 B3", "a: A1, c: C3"),
    ("A as a -> C as c without B as x", "A; B; C", "A1 B1 C1", ""),
    ("A as a -> C as c without B as x where x.v > a.v", "A; B; C", "A1(2) B2(2) C3", "a: A1, c: C3"),
    ("A as a -> B as b -> C as c without B as x", "A; B; C", "A1 B2 C3", "a: A1, b: B2, c: C3"),
    ("A as a -> B as b -> C as c without A as x between (b c)", "A; B; C", "A1 B2 A3 C4", ""),
    ("A as a -> B as b -> C as c without A as x between (a b)", "A; B; C", "A1 B2 A3 C4", "a: A1, b: B2, c: C4"),
    ("A as a -> C as c without B as x where x.v / a.v = 0", "A; B; C", "A1(0) B2 C3", "a: A1, c: C3"),
    # A `without` looks at its type's window.
    ("A as a -> C as c without B as x", "A; B within 1; C", "A1 B2 C3", "a: A1, c: C3"),
    ("A as a -> C as c without B as x where x.v = 1", "A; B retain 1; C", "A1 B2(1) B3(2) C4", "a: A1, c: C4"),
    (
        "A as a -> C as c without B as x where x.v = 1",
        "A; B within 9 with unique s; C",
        "A1 B2(1) B3 C4",
        "a: A1, c: C4",
    ),
)

WINNERS_AND_WAITS = (
    (
        "W as w1 -> W as w2 where w1.s != w2.s",
        "W retain 3",
        "W0(Dublin) W600(London) W1200(London) W1800(London) W5400(Paris)",
        "w1: W0, w2: W600; w1: W0, w2: W1200; w1: W1800, w2: W5400",
    ),
    ("A as a and B as b -> C as c", "A; B; C", "A1 B2 A3 C4", "a: A3, b: B2, c: C4"),
    # Equal events: that of the last written name decides.
    (
        "A as a and A as b and A as c where a.v != b.v and b.v != c.v and a.v != c.v",
        "A",
        "A1(1) A2(2) A3(3)",
        "a: A1, b: A2, c: A3",
    ),
    ("A as a and A as b where a.v != b.v", "A", "A1(1) A2(2)", "a: A1, b: A2"),
    # A trailing wait starts at the latest event; its point is after the events of its own moment.
    ("A as a -> wait(5) as t without B as x", "A; B", "A1 B7", "a: A1 at 6"),
    ("A as a -> wait(5) as t without B as x", "A; B", "A1 B6", "a: A1 at 6"),
    ("A as a -> wait(5) as t without B as x", "A; B", "A1 B5.9", ""),
    ("A as a -> wait(5) as t without A as x", "A", "A1 A3 A9", "a: A3 at 8; a: A9 at 14"),
    # Who wins is decided before the wait; what left its window meanwhile still blocks.
    ("A as a -> B as b -> wait(5) as t without C as x between (a t)", "A; B; C", "A1 A2 C3 B4", ""),
    ("A as a -> wait(9) as t without B as x where x.v = 1", "A; B retain 1", "A1 B2(1) B3(2)", ""),
    # A leading wait is before the oldest event.
    ("wait(5) as t -> A as a without A as x between (t a)", "A", "A1 A5 A9.5 A14.5", "a: A1; a: A14.5"),
)
"""At A14.5 the point is 9.5, and an event at the point is not behind it."""

RUNS = (
    ("A as a+ -> B as b", "A; B", "A1 A2 B3 B4", "a: A1 A2, b: B3; a: A1 A2, b: B4"),
    ("A as a {2} -> B as b", "A; B", "A1 A2 A3 B4", "a: A2 A3, b: B4"),
    ("A as a {2,3} -> B as b", "A; B", "A1 B2 A3 B4 A5 A6 B7", "a: A1 A3, b: B4; a: A3 A5 A6, b: B7"),
    ("A as a {4,} -> B as b", "A; B", "A1 A2 A3 B4", ""),
    ("A as a * -> B as b", "A; B", "B1 A2 B3", "b: B1; a: A2, b: B3"),
    ("A as a {0,1} -> B as b", "A; B", "B1 A2 A3 B4", "b: B1; a: A3, b: B4"),
    ("A as a -> B as b ? -> A as c", "A; B", "A1 B2 A3 A4", "a: A1, b: B2, c: A3; a: A3, c: A4"),
    ("A as a ? -> B as b where a.v > 1", "A; B", "B1 A2(1) B3", "b: B1; b: B3"),
    # A run takes all it can, but the most recent events come first.
    ("B as b -> A as a +", "A; B", "B1 A2 B3 A4", "b: B1, a: A2; b: B3, a: A4"),
    ("A as a + -> A as b +", "A", "A1 A2 A3", "a: A1, b: A2; a: A1, b: A2 A3"),
    # Groups: all of an iteration before all of the next, each name a run.
    ("(A as a -> B as b) {2,3}", "A; B", "A1 B2 A3 B4", "a: A1 A3, b: B2 B4"),
    ("(A as a -> B as b) {2}", "A; B", "A1 A2 B3 B4", ""),
    ("(A as a -> B as b) + -> C as c", "A; B; C", "A1 B2 A3 B4 C5", "a: A1 A3, b: B2 B4, c: C5"),
    ("(A as a -> B as b) ? -> C as c", "A; B; C", "A1 C2 B3 C4", "c: C2; a: A1, b: B3, c: C4"),
    ("(A as a) {2}", "A", "A1 A2", "a: A1 A2"),
    # The run of a side that is not taken is empty in a block; `and` shares events.
    ("A as a {2} or B as b", "A; B", "A1 B2 A3", "b: B2; a: A1 A3"),
    ("A as a + and A as b", "A", "A1 A2", "a: A1, b: A1; a: A1 A2, b: A2"),
)
"""`A as a + -> A as b +` over A1 A2 A3: {a: A1, b: A2 A3} and {a: A1 A2, b: A3} have the same events; `b` was written last."""

RUN_CONDITIONS = (
    # Each event; of none it holds.
    ("A as a + -> B as b where a.v > 1", "A; B", "A1(2) A2(1) A3(3) B4", "a: A1 A3, b: B4"),
    ("A as a * -> B as b where a.v > b.v", "A; B", "A1(1) B2(5)", "b: B2"),
    ("(A as a -> B as b) + where b.v > a.v", "A; B", "A1(1) B2(2) A3(5) B4(4)", "a: A1, b: B2; a: A1, b: B4"),
    # prev: the candidate's event directly before, whatever name has it.
    (
        "A as a {2,} consecutive => B as b where a.v > prev(a).v",
        "A; B",
        "A1(5) A2(3) A3(4) A4(6) B5",
        "a: A2 A3 A4, b: B5",
    ),
    ("B as b -> A as a + where a.v > prev(a).v", "A; B", "B1(3) A2(2) A3(4) A4(5)", "b: B1, a: A3; b: B1, a: A3 A4"),
    ("A as a -> B as b where b.v > prev(b).v", "A; B", "A1(5) A2(9) B3(6)", "a: A1, b: B3"),
    ("A as a -> B as b where a.v > prev(a).v", "A; B", "A1(5) B3(6)", "a: A1, b: B3"),
    ("A as a and A as b -> A as c where b.v > prev(b).v", "A", "A1(1) A2(1)", "a: A1, b: A1, c: A2"),
    # Folds.
    ("A as a + -> B as b where sum(a.v) <= 10", "A; B", "A1(5) A2(7) A3(4) B4", "a: A1 A3, b: B4"),
    ("A as a + -> B as b where count(a) = 2", "A; B", "A1 A2 A3 B4", "a: A2 A3, b: B4"),
    ("A as a * -> B as b where count(a) = 0", "A; B", "A1 B2", "b: B2"),
    ("A as a * -> B as b where sum(a.v) = 0", "A; B", "A1(3) B2", "b: B2"),
    ("A as a * -> B as b where min(a.v) < 5", "A; B", "B1", ""),
    ("A as a * -> B as b where not min(a.v) < 5", "A; B", "B1", ""),
    # A fold of none is null, so the other side decides.
    ("A as a * -> B as b where min(a.v) < 5 or b.v = 0", "A; B", "B1", "b: B1"),
    ("A as a * -> B as b where not (min(a.v) < 5 and b.v = 0)", "A; B", "B1", ""),
    ("A as a * -> B as b where first(a).v > 5", "A; B", "B1", "b: B1"),
    ("A as a + -> B as b where last(a).v > first(a).v", "A; B", "A1(3) A2(2) A3(4) A4(1) B5", "a: A1 A2 A3, b: B5"),
    ("A as a + -> B as b where max(a.v) - min(a.v) < 2", "A; B", "A1(3) A2(9) A3(4) B5", "a: A1 A3, b: B5"),
    (
        "(A as a -> B as b) + -> C as c where sum(b.v - a.v) > 2",
        "A; B; C",
        "A1(1) B2(2) A3(1) B4(3) C5",
        "a: A1 A3, b: B2 B4, c: C5",
    ),
    ("A as a + -> B as b where avg(a.v) > b.v", "A; B", "A1(1) A2(2) B3(1)", "a: A1 A2, b: B3"),
    ("A as a + where a.v <= avg(a.v)", "A", "A1(1) A2(2)", "a: A1; a: A2"),
    # Taken apart at its `and`s, if it uses any of this; whole, as Apama has it, if it does not.
    ("A as a * or B as b -> C as c where a.v > 5 and c.v = 1", "A; B; C", "B1 C2(0)", ""),
    ("A as a or B as b -> C as c where a.v > 5 and c.v = 1", "A; B; C", "B1 C2(0)", "b: B1, c: C2"),
    ("A as a ? -> B as b where a.v > 5 and b.v = 1", "A; B", "B1(0)", ""),
    # Ranges.
    ("A as a + -> B as b -> C as c within 2 between (a b)", "A; B; C", "A1 A2 A3 B3.5 C9", "a: A2 A3, b: B3.5, c: C9"),
    ("A as a * -> B as b -> C as c within 1 between (a c)", "A; B; C", "B1 C9", "b: B1, c: C9"),
    ("(A as a -> B as b) {2} -> C as c without D as x between (a b)", "A; B; C; D", "A1 B2 D3 A4 B5 C6", ""),
    (
        "(A as a -> B as b) {2} -> C as c without D as x between (a b)",
        "A; B; C; D",
        "A1 B2 A4 B5 D5.5 C6",
        "a: A1 A4, b: B2 B5, c: C6",
    ),
    ("A as a {2} -> B as b without C as x where x.v > a.v", "A; B; C", "A1(1) A2(5) C3(3) B4", "a: A1 A2, b: B4"),
    ("A as a {2} -> B as b without C as x where x.v > a.v", "A; B; C", "A1(1) A2(5) C3(6) B4", ""),
    # Where the latest events are of an optional run that leaves the rest of the pattern as it is.
    ("A as a {0,} and C as c within 5", "A; C", "C1 A8", "c: C1"),
    ("A as a {0,} and C as c without D as x", "A; C; D", "C1 D2 A8", "c: C1"),
    # An event that blocks one candidate is a member of another one.
    (
        "C as c {2,} -> A as a + without A as x",
        "A within 5; C",
        "C1 C2 A3 C4 A5",
        "c: C1 C2, a: A3; c: C1 C2, a: A3 A5",
    ),
)

NEXT = (
    ("A as a => B as b", "A; B; C", "A1 C2 B3", ""),
    ("A as a => B as b", "A; B", "A1 C2 B3", "a: A1, b: B3"),
    # Filtered events do not count; those that have left their window, or that `unique` hides, are.
    ("A as a => B as b", "A; B; C(v > 1)", "A1 C2(1) B3", "a: A1, b: B3"),
    ("A as a => B as b", "A; B; C within 1", "A1 C2 B9", ""),
    ("A as a => B as b", "A; B retain 1", "A1 B2 B3", "a: A1, b: B2"),
    # `A => B or C` is `A => (B or C)`; L is all that stands to its left.
    ("A as a => B as b or C as c", "A; B; C", "A1 B2 A3 C4 C5", "a: A1, b: B2; a: A3, c: C4"),
    ("A as a -> B as b ? => C as c", "A; B; C", "A1 C2 A3 B4 C5", "a: A1, c: C2; a: A3, b: B4, c: C5"),
    ("A as a -> B as b ? => C as c", "A; B; C", "A1 B2 B3 C4", "a: A1, b: B3, c: C4"),
    ("A as a -> B as b {0,1} => C as c", "A; B; C; D", "A1 D2 C3", ""),
    ("A as a => B as b ? -> C as c", "A; B; C; D", "A1 D2 C3", "a: A1, c: C3"),
    # The candidate's own events under an `and` stand between too.
    ("(A as a => C as c) and B as b", "A; B; C", "A1 B2 C3", ""),
    # consecutive
    ("A as a {2,} consecutive -> B as b", "A; B; C", "A1 A2 C3 A4 B5", "a: A1 A2, b: B5"),
    ("(A as a -> B as b) {2} consecutive", "A; B; C", "A1 B2 A3 B4", "a: A1 A3, b: B2 B4"),
    ("(A as a -> B as b) {2} consecutive", "A; B; C", "A1 B2 C3 A4 B5", ""),
    ("C as c -> A as a {2} consecutive", "A; C", "C1 C2 A3 A4", "c: C2, a: A3 A4"),
    ("A as a {1} consecutive -> B as b", "A; B; C", "A1 C2 B3", "a: A1, b: B3"),
)

AFTER_MATCH = (
    ("A as a+ -> B as b after match skip past last event", "A; B", "A1 A2 B3 B4", "a: A1 A2, b: B3"),
    ("A as a -> B as b after match skip past last event", "A; B", "A1 A2 B3 B4 A5 B6", "a: A2, b: B3; a: A5, b: B6"),
    ("A as a {2} -> B as b after match skip to last a", "A; B", "A1 A2 B3 A4 B5", "a: A1 A2, b: B3; a: A2 A4, b: B5"),
    (
        "A as a {2} -> B as b after match skip to first b",
        "A; B",
        "A1 A2 B3 A4 B5 A6 B7",
        "a: A1 A2, b: B3; a: A4 A6, b: B7",
    ),
    # By position, over all iterations of a group.
    (
        "(A as a -> B as b) {2} after match skip to first b",
        "A; B",
        "A1 B2 A3 B4 A5 B6",
        "a: A1 A3, b: B2 B4; a: A3 A5, b: B4 B6",
    ),
    ("(A as a -> B as b) {2} after match skip to last b", "A; B", "A1 B2 A3 B4 A5 B6", "a: A1 A3, b: B2 B4"),
    # What was passed over still counts for `without`, `=>`, `retain` and `unique`.
    ("A as a -> B as b without C as x after match skip past last event", "A; B; C", "A1 B2 A3 C4 B5", "a: A1, b: B2"),
    ("A as a + -> B as b after match skip to first b", "A; B", "A1 B2 B3 A4 B5", "a: A1, b: B2; a: A4, b: B5"),
    # The most recent free candidate wins.
    ("A as a and B as b after match skip past last event", "A; B", "A1 B2 B3 A4", "a: A1, b: B2; a: A4, b: B3"),
)

FIND_ALL = (
    ("all A as a -> B as b", "A; B", "A1 A2 B3", "a: A1, b: B3; a: A2, b: B3"),
    ("all A as a + -> B as b", "A; B", "A1 A2 B3", "a: A1, b: B3; a: A2, b: B3; a: A1 A2, b: B3"),
    ("all A as a or A as b", "A", "A1", "a: A1, b: A1"),
    ("all (A as a -> C as c) or (B as b -> C as d)", "A; B; C", "A1 B2 C3", "a: A1, c: C3; b: B2, d: C3"),
    ("all A as a -> B as b where a.v > 1", "A; B", "A1(2) A2(1) A3(3) B4", "a: A1, b: B4; a: A3, b: B4"),
    # The skip counts from the last of them.
    (
        "all A as a -> B as b after match skip to last a",
        "A; B",
        "A1 A2 B3 B4",
        "a: A1, b: B3; a: A2, b: B3; a: A2, b: B4",
    ),
    # Each has its own timer.
    (
        "all A as a -> B as b -> wait(2) as t without C as x between (b t)",
        "A; B; C",
        "A1 A2 B3 B6 C7",
        "a: A1, b: B3 at 5; a: A2, b: B3 at 5",
    ),
)

SELECTS = (
    (
        "A as a + -> B as b select sum(a.v) as n select a as m",
        "A; B",
        "A1(2) A2(3) B3",
        "a: A1 A2, b: B3, n: 5, m: [A1 A2]",
    ),
    ("A as a or B as b select b.v as n", "A; B", "A1 B2(3)", "a: A1, n: None; b: B2, n: 3"),
    ("A as a * -> B as b select count(a) as n select avg(a.v) as m", "A; B", "B1", "b: B1, n: 0, m: None"),
    ("A as a + or B as b select a as n", "A; B", "B1", "b: B1, n: []"),
    ("A as a + select avg(a.v) as n", "A", "A1(2) A2(3)", "a: A1, n: 2.0; a: A1 A2, n: 2.5"),
)

WAITS_IN_THE_MIDDLE = (
    ("A as a -> wait(10.0) as t -> C as c without B as x between (a t)", "A; B; C", "A0 B12 C13", "a: A0, c: C13"),
    ("A as a -> wait(10.0) as t -> C as c without B as x between (a t)", "A; B; C", "A0 B3 C13", ""),
    ("A as a -> wait(10.0) as t -> C as c without B as x between (a t)", "A; B; C", "A0 C9", ""),
    ("A as a -> wait(10.0) as t -> C as c", "A; C", "A0 C10", "a: A0, c: C10"),
    ("A as a -> wait(2) as t -> B as b and C as c", "A; B; C", "A0 B1 C2 B3", "a: A0, b: B3, c: C2"),
    ("A as a and B as b -> wait(2) as t -> C as c", "A; B; C", "B0 A3 C4 C5", "a: A3, b: B0, c: C5"),
    # Its silence is asked of the window when the last event comes.
    (
        "A as a -> wait(10.0) as t -> C as c without B as x between (a t)",
        "A; B within 9; C",
        "A0 B3 C13",
        "a: A0, c: C13",
    ),
    # A trailing one that repeats: due again and again, until the conditions fail.
    ("A as a -> wait(2) as t {1,3}", "A", "A1", "a: A1 at 3; a: A1 at 5; a: A1 at 7"),
    ("A as a -> wait(2) as t {1,3} without B as x", "A; B", "A1 B4", "a: A1 at 3"),
    ("A as a -> wait(2) as t {1,2}", "A", "A1 A3", "a: A1 at 3; a: A1 at 5; a: A3 at 5; a: A3 at 7"),
)

TODAY = (*WINDOWS_AND_CANDIDATES, *CONDITIONS, *WINNERS_AND_WAITS)
ADDITIONS = (*RUNS, *RUN_CONDITIONS, *NEXT, *AFTER_MATCH, *FIND_ALL, *SELECTS, *WAITS_IN_THE_MIDDLE)
