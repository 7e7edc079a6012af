"""Compare what the reader of deployment files says with what their JSON schema says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import jsonschema
import yaml

from querylang.errors import InputError
from tests.project.repository import ROOT

SCHEMA = json.loads((ROOT / "job_engine" / "deployment.schema.json").read_text())

BEYOND_A_SCHEMA = (
    "no such (folder|query file|archive)|'format: kafka'|is a file|lies in that of|have the same folder|not an archive",
    r"needs the environment variable|not '\$\{|is not YAML|contains itself|duplicate key|is empty",
    "cannot be a path|local or mounted folder|!!timestamp|must be a number, a text|stands for",
    r"unknown key '[\w.]+' in 'options'|maxFilesPerTrigger|a setting of (CSV|Delta)|cannot be set for|delimiter|encoding|decimal|time_format",
    "is not an option|expected one of subscribe|kafka.bootstrap.servers|'kafka|is a setting of Kafka's|assign",
    "'arrival' can only be|partition_by|names of topics|regular expression|has no '|'decode: |has no meaning with",
    r"Avro|'avro\.schema'|schema\.registry|basic\.auth|the schema of a record|http://localhost:8081|no such file",
    "'policy'|ordering|'late|'over'|'action'|'out_of_order'|'every'|'early'|'idle'",
)
"""Messages of mistakes that only the reader finds: they concern other files, variables, or what options mean."""


class Loader(yaml.SafeLoader):
    """As editors read YAML: a date is text."""


Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith("timestamp")]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def complaints(text: str) -> list[str]:
    """What the schema says of a deployment file."""
    try:
        document = yaml.load(text, Loader)  # a SafeLoader
    except (yaml.YAMLError, ValueError) as error:
        return [str(error)]
    return [
        f"{error.json_path}: {error.message}" for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(document)
    ]


@contextmanager
def same_verdict(text: str) -> Iterator[None]:
    """The schema has to accept what is accepted within, and to refuse what is refused, if it can know it."""
    try:
        yield
    except InputError as error:
        if not _is_beyond(str(error)) and not complaints(text):
            raise AssertionError(f"the schema accepts it, the reader says: {error}") from error
        raise
    if complaints(text):
        raise AssertionError(f"the reader accepts it, the schema says: {complaints(text)}")


def _is_beyond(messages: str) -> bool:
    return all(any(re.search(pattern, line) for pattern in BEYOND_A_SCHEMA) for line in messages.split("\n"))
