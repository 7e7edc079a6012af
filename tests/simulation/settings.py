"""Settings that few jobs in simulated worlds have, and what a replay of their records needs to have the same ones."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.simulation.kinds import Kind
from tests.torture.streams import Source

FORMATS = {"csv": ("csv", "csv.gz", "parquet", "arrow", "json.zst"), "json": ("json", "json.gz", "parquet")}
"""Other formats of files, by the format that a source would have."""

POLICIES = (
    "stream_analytics late=5s over=k",
    "stream_analytics late=2s out_of_order=2s action=drop over=k",
    "apama",
    "stream_analytics late=5s",
)
"""For all topics: they are instead of waits. Files of a source share a timeline, which a replay of them does not."""

LENGTHS = ("5 seconds", "20 seconds", "2 minutes")

CHANCES = {"formats": 0.2, "layout": 0.1, "channel": 0.15, "forget_keys": 0.1, "ordering": 0.1, "moved": 0.1}
"""How often a job has such a setting."""

SINKS = ("matches", "output", "discarded", "ledger")

CHANNEL = "channels: {silent: {format: parquet, path: out/silent}}\n"


@dataclass
class Settings:
    """What the deployment file of a job says beside what most say.

    options: the same for a replay
    is_one: whether there is one table for the matches of all queries
    moves: whether sinks of files move to other folders
    channel: the line of the file that gives what is sent to a channel a sink of its own, or none
    """

    deployment: Path
    chooser: random.Random
    options: dict[str, Any] = field(default_factory=dict)
    is_one: bool = False
    channel: str = ""
    moves: bool = False

    @staticmethod
    def of(path: Path, chooser: random.Random, kind: Kind, sources: list[Source]) -> Settings:
        """Draw them, and write them down."""
        found = Settings(path, chooser)
        text = path.read_text("utf-8")
        drawn = {name for name, chance in CHANCES.items() if chooser.random() < chance}
        if "formats" in drawn and kind in (Kind.FILES, Kind.LOOKUPS, Kind.STORES):
            text = _with_formats(text, chooser, sources)
        if "layout" in drawn and "matches:   {format: parquet" in text:
            text = text.replace("matches:   {format: parquet,", "matches:   {format: parquet, layout: one,")
            found.is_one = True
        if "channel" in drawn and "output:    {format: parquet" in text and kind is not Kind.STORES:
            found.channel = CHANNEL
            text += CHANNEL
        found.moves = "moved" in drawn and kind not in (Kind.STORES, Kind.DELTA)
        if "forget_keys" in drawn:
            length = chooser.choice(LENGTHS)
            found.options["forget_keys"] = length
            text += f"forget_keys: {length}\n"
        if "ordering" in drawn and kind is Kind.TOPICS:
            policy = chooser.choice(POLICIES)
            found.options["ordering"] = policy
            text = re.sub(r"(?m)^(  \w+: \{format: \w+, )(?=.*source_time: ts)", rf"\1ordering: {policy}, ", text)
            text += "" if "\nidle: none\n" in text else "idle: none\n"
            (file,) = path.parent.glob("*.query")
            file.write_text(re.sub(r" wait \d+\.\d", "", file.read_text("utf-8")), "utf-8")
        path.write_text(text, "utf-8")
        return found

    def edit(self) -> None:
        """Change those that may be changed between two runs."""
        text = self.deployment.read_text("utf-8")
        if self.channel:
            line = next((line for line in text.splitlines(keepends=True) if line.startswith("channels: ")), "")
            if not line:
                text += self.channel
            elif self.chooser.random() < 0.5:
                self.channel, text = line, text.replace(line, "")
        if self.moves and self.chooser.random() < 0.5:
            name = self.chooser.choice(SINKS)
            text = re.sub(
                rf"(?m)^(  {name}: .*path: \S*?){name}(2?)\b",
                lambda found: f"{found[1]}{name}{'' if found[2] else '2'}",
                text,
            )
        trigger = self.chooser.choice(("0 seconds", "100ms", "1 second"))
        self.deployment.write_text(re.sub(r"(?m)^trigger: .*$", f"trigger: {trigger}", text), "utf-8")


def _with_formats(text: str, chooser: random.Random, sources: list[Source]) -> str:
    for source in sources:
        source.format = chooser.choice(FORMATS[source.format])
        name = source.format.partition(".")[0]
        text = re.sub(rf"(?m)^(  {source.name}: \{{format: )\w+", rf"\1{name}", text)
        if name in ("parquet", "arrow"):  # a column has one type
            for row in source.rows:
                row.cells["v"] = None if row.cells["v"] == "oops" else row.cells["v"]
    return text
