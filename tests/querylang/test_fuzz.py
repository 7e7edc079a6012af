"""No text raises anything but the language's own errors: mutations of good and bad texts, from a fixed seed."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from pathlib import Path

from querylang import QueryErrors, Source, check_text, compile_text
from querylang.tokens import KEYWORDS, SYMBOLS

SEEDS = [
    re.sub(r"^//~.*\n", "", path.read_text(), flags=re.MULTILINE)
    for path in sorted((Path(__file__).parent / "errors").glob("*.cases"))
]
TEXTS = [part for seed in SEEDS for part in re.split(r"^// case: .*\n", seed, flags=re.MULTILINE) if part]
WORDS = [
    *KEYWORDS,
    *SYMBOLS,
    "a",
    "A",
    "3",
    "1.5",
    '"x"',
    "#day",
    "/*",
    "*/",
    "//",
    '"',
    "\\",
    "\x00",
    "é",
    "\n",
    " ",
    "minutes",
]


def mutated(random_: random.Random) -> str:
    """A text with a few tokens dropped, doubled, swapped, replaced or cut off."""
    parts = re.findall(r"\w+|\s+|.", random_.choice(TEXTS))
    for _ in range(random_.choice((1, 1, 2, 3, 8))):
        at = random_.randrange(len(parts)) if parts else 0
        match random_.randrange(6):
            case 0:
                del parts[at : at + random_.randrange(1, 4)]
            case 1:
                parts[at:at] = parts[at : at + random_.randrange(1, 6)]
            case 2:
                parts.insert(at, random_.choice(WORDS))
            case 3:
                parts[at : at + 1] = [random_.choice(WORDS)]
            case 4:
                other = random_.randrange(len(parts)) if parts else 0
                parts[at : at + 1], parts[other : other + 1] = parts[other : other + 1], parts[at : at + 1]
            case 5 if random_.random() < 0.2:
                del parts[at:]
            case _:
                parts.append(random_.choice(WORDS))
    return "".join(parts)


def outcome(text: str, definitions: list[Source], check: Callable[..., object]) -> QueryErrors | None:
    """The mistakes of the text, None if it has none; what else is raised says with which text."""
    try:
        check(text, definitions=definitions)
    except QueryErrors as found:
        return found
    except BaseException as error:
        raise AssertionError(f"{error!r} for the text:\n{text}") from error
    return None


def test_no_text_raises_anything_but_query_errors() -> None:
    random_ = random.Random(7)
    for _ in range(int(os.environ.get("ENSUE_MUTATIONS", "2000"))):
        text = mutated(random_)
        definitions = [Source("beside.mon", mutated(random_))] if random_.random() < 0.2 else []
        found = outcome(text, definitions, compile_text if random_.random() < 0.8 else check_text)
        assert found is None or (found.errors and str(found)), text
