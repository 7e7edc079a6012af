"""Read the setting `ordering` of a source; what can be set is in `runtime.policies.presets`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import yaml

from job_engine.document.yaml_document import Node
from querylang.plan.model import TimePolicy
from runtime.policies.plan_policies import OrderingError, parse_ordering


def read_ordering(node: Node) -> TimePolicy | None:
    """A policy written as text or as a mapping; None = mistakes were reported."""
    is_mapping = isinstance(node.raw, yaml.MappingNode)
    entries = node.mapping() if is_mapping else {}
    before = len(node.mistakes.found)
    given: Any = {name: _value(entry) for name, entry in entries.items()} if is_mapping else node.text()
    if len(node.mistakes.found) > before or given == "":
        return None
    try:
        return parse_ordering(given)
    except OrderingError as error:
        for setting, message in error.found:
            _report(entries.get(setting or "", node), message)
    return None


def ordering_text(policy: TimePolicy | None) -> str:
    """The settings of a policy that are not its defaults; equal for equal policies."""
    if policy is None:
        return ""
    own = [(item.name, getattr(policy, item.name)) for item in fields(policy) if item.name != "name"]
    defaults = {item.name: item.default for item in fields(policy)}
    settings = [f"{name}={_setting_text(value)}" for name, value in own if value != defaults[name]]
    return " ".join([policy.name, *settings])


def _setting_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(getattr(value, "value", value))


def _value(node: Node) -> Any:
    """As written, whatever its YAML type: the policy reads its own words."""
    if isinstance(node.raw, yaml.SequenceNode):
        return [item.text() for item in node.items()]
    return None if node.is_empty() else node.text()


def _report(node: Node, message: str) -> None:
    """Report a mistake; a value from the environment is not shown."""
    written = [item.written() for item in node.items()]
    is_secret = any("${" in text for text in written)
    node.wrong(
        f"{message.partition(', not ')[0]}, not what '{', '.join(written)}' stands for" if is_secret else message
    )
