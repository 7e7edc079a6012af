"""The options of Kafka's client in a deployment file; what is wrong with them is reported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from job_engine.document.yaml_document import Node, Template
from job_engine.kafka.client_options import JAAS, PREFIX, WrongOption, client_options


def read_client(node: Node, options: Mapping[str, Node], folder: Path) -> dict[str, str]:
    """The options of Kafka's client, as librdkafka has them; mistakes are reported."""
    if PREFIX + "bootstrap.servers" not in options:
        node.wrong("'kafka.bootstrap.servers' is missing, such as `localhost:9092`")
    given = {key: option.text() for key, option in options.items() if key.startswith(PREFIX) and key != JAAS}
    login = options[JAAS].template() if JAAS in options else Template("")
    try:
        found = client_options(given | ({JAAS: login.text} if login.text else {}), folder)
    except WrongOption as error:
        options[error.key].wrong(f"'{error.key}': {error.message}")
        return {}
    filled = {key: login.fill(value) for key, value in found.items()}
    if JAAS in options and "sasl.password" in filled:
        options[JAAS].mistakes.keep(PREFIX + "sasl.password", filled["sasl.password"])
    return filled
