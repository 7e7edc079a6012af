"""What runs of a simulated job: its queries with their instances, and how files are taken over into it, three-way.

Written anew from the table in `docs/care.md`, to judge a job by.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Text:
    """A query that runs, or of a file: its text, and the values of its instances."""

    text: str
    instances: Mapping[str, Values] = field(default_factory=lambda: {"": {}})

    @property
    def defaults(self) -> dict[str, Any]:
        """The values of parameters that have no other ones."""
        declared = re.search(r"\{ parameters \{(.*?)\}", self.text)
        found = re.findall(r"(\w+) := ([\d.]+);", declared[1]) if declared else []
        return {name: float(value) if "." in value else int(value) for name, value in found}

    def known(self, values: Values) -> dict[str, Any]:
        """Of values, those whose parameters there are."""
        return {name: value for name, value in values.items() if name in self.defaults}


Texts = Mapping[str, Text]


def texts_of(queries: Mapping[str, str], parameters: Mapping[str, Any]) -> Texts:
    """What files say."""
    found = {}
    for name, text in queries.items():
        given = parameters.get(name, {})
        is_only = not any(isinstance(own, dict) for own in given.values())
        found[name] = Text(text.strip(), {"": given} if is_only else given)
    return found


def events_of(text: str, running: Texts) -> Iterator[str]:
    """A control event that was taken, and what it brings with it."""
    yield text
    ((kind, (first, *_)),) = json.loads(text).items()
    if kind == "ReplaceQuery":
        yield from _values_again(_text_of(first), running)


def merged(before: Texts, files: Texts, running: Texts) -> Iterator[str]:
    """Control events that do what a start with `--apply` does.

    before: what the files said when they were last applied
    """
    for name, own in files.items():
        was, runs = before.get(name), running.get(name)
        if runs is None:
            yield _event("DeployQuery", own.text)
            yield from (
                _event("SetParameters", name, instance, dict(given)) for instance, given in own.instances.items()
            )
            if "" not in own.instances:
                yield _event("RemoveInstance", name, "")
            continue
        if (was is None or was.text != own.text) and own.text != runs.text:
            yield _event("ReplaceQuery", own.text)
            yield from _values_again(own.text, running)
            runs = replace(runs, text=own.text)
        yield from _set(name, was, own, runs)
    yield from (_event("UndeployQuery", name) for name in before if name not in files and name in running)


def _set(name: str, was: Text | None, own: Text, runs: Text) -> Iterator[str]:
    """The instances and values of one query that runs."""
    earlier = {} if was is None else was.instances
    for instance, given in own.instances.items():
        if instance not in runs.instances:
            yield _event("SetParameters", name, instance, dict(given))
            continue
        values = own.defaults | given
        known = None if was is None or instance not in earlier else was.defaults | was.known(earlier[instance])
        changed = {key: value for key, value in values.items() if known is None or known.get(key, key) != value}
        if changed:
            yield _event("SetParameters", name, instance, changed)
    for instance in earlier:
        if instance not in own.instances and instance in runs.instances:
            yield _event("RemoveInstance", name, instance)


def _values_again(text: str, running: Texts) -> Iterator[str]:
    """Values that the text before did not know, and this one does."""
    name = name_of(text)
    runs = running[name]
    for instance, given in runs.instances.items():
        again = Text(text).known({key: value for key, value in given.items() if key not in runs.defaults})
        if again:
            yield _event("SetParameters", name, instance, again)


def done_by(events: Iterable[str], running: Texts) -> Texts:
    """What runs behind control events."""
    found = dict(running)
    for event in events:
        ((kind, (first, *more)),) = json.loads(event).items()
        match kind:
            case "DeployQuery":
                found[name_of(_text_of(first))] = Text(_text_of(first))
            case "ReplaceQuery":
                name = name_of(_text_of(first))
                found[name] = replace(found[name], text=_text_of(first))
            case "UndeployQuery":
                del found[first]
            case "SetParameters":
                own = found[first].instances
                instance, given = more
                found[first] = replace(found[first], instances={**own, instance: {**own.get(instance, {}), **given}})
            case "RemoveInstance":
                left = {name: given for name, given in found[first].instances.items() if name != more[0]}
                found[first] = replace(found[first], instances=left)
    return found


def name_of(text: str) -> str:
    """The name of a query."""
    return text.split()[1].rstrip("{")


def _text_of(definitions: str) -> str:
    """The query of a text that may define event types before it."""
    return (
        definitions[definitions.index("query ") :].strip()
        if "event " in definitions.partition("query ")[0]
        else definitions.strip()
    )


def _event(kind: str, *arguments: object) -> str:
    return json.dumps({kind: arguments})
