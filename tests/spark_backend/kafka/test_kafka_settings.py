"""What a deployment file may say of a Kafka source, without a broker and without the client."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from job_engine.deployment_file import load_deployment
from job_engine.kafka_broker import TopicChoice
from job_engine.sources.source import Source
from job_engine.sources.topics.settings import AvroForm, KafkaSource, RegistryAddress
from querylang.errors import InputError
from tests.support.schema_verdicts import same_verdict

FILE = """\
name: cards
queries: [cards.query]
sources:
  cards:
    format: kafka
    options:
      kafka.bootstrap.servers: "one:9092,two:9092"
      subscribe: "b, a"
    event: Withdrawal
sinks:
  matches: {format: parquet, path: out/matches}
checkpoint: state
"""


def load(folder: Path, text: str = FILE, environment: dict[str, str] | None = None) -> Source:
    (folder / "cards.query").write_text("")
    (folder / "cards.yaml").write_text(text)
    with same_verdict(text):
        (source,) = load_deployment(folder / "cards.yaml", environment or {}).sources
    return source


def kafka(folder: Path, options: str, environment: dict[str, str] | None = None) -> KafkaSource:
    found = load(folder, FILE.replace('      subscribe: "b, a"', options), environment).own
    assert found is not None
    return found


def test_what_is_said_is_read(tmp_path: Path) -> None:
    source = load(tmp_path, FILE.replace("    event", "    start: 2024-01-01T00:00:00Z\n    skew: 3s\n    event"))
    client = {"bootstrap.servers": "one:9092,two:9092"}
    assert source.own == KafkaSource(
        "cards", TopicChoice(("a", "b")), client, start=1_704_067_200_000_000, skew=3_000_000, ahead=86_400_000_000
    )
    assert {key: value.text for key, value in source.fixed.items()} == {
        "format": "kafka",
        "event": "Withdrawal",
        "start": "2024-01-01T00:00:00Z",
        "options.subscribe": "b, a",
    }


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ("      subscribePattern: card.*", TopicChoice(pattern="card.*")),
        ("""      assign: '{"t": [1, 0]}'""", TopicChoice(assigned={"t": (0, 1)})),
    ],
)
def test_topics_are_chosen_in_three_ways(tmp_path: Path, options: str, topics: TopicChoice) -> None:
    assert kafka(tmp_path, options).topics == topics


SASL = """\
      subscribe: a
      kafka.security.protocol: SASL_SSL
      kafka.sasl.mechanism: SCRAM-SHA-512
      kafka.sasl.jaas.config: >-
        org.apache.kafka.common.security.scram.ScramLoginModule required
        username="me" password="${PASSWORD}";
      kafka.ssl.truststore.location: ca.pem
      kafka.ssl.truststore.type: PEM
      kafka.fetch.max.wait.ms: 10
"""


def test_names_of_java_are_translated_and_secrets_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    source = kafka(tmp_path, SASL, {"PASSWORD": 'a"b;'})
    assert source.client == {
        "bootstrap.servers": "one:9092,two:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "me",
        "sasl.password": 'a"b;',
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "fetch.wait.max.ms": "10",
    }
    assert 'a"b;' not in repr(source)


ODD = "p#?/[%41@\\,:\"'ü"
"""A password of everything that is syntax somewhere."""


def test_a_value_of_a_variable_is_never_taken_for_syntax(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    assert kafka(tmp_path, SASL, {"PASSWORD": ODD}).client["sasl.password"] == ODD
    url = '      subscribe: a\n      schema.registry.url: "http://one:8081,https://me:${PASSWORD}@[::1]:8081/api/"\n'
    found = avro(tmp_path, url, {"PASSWORD": ODD}).registry
    assert found == RegistryAddress(("http://one:8081", "https://[::1]:8081/api"), f"me:{ODD}")
    assert "p#" not in found.shown


@pytest.mark.parametrize("password", ["p#x", "p?x", "p/x", "p[x", "p@x", "p:x"])
def test_a_login_in_a_whole_url_may_have_any_letter(tmp_path: Path, password: str) -> None:
    url = "      subscribe: a\n      schema.registry.url: ${URL}\n"
    found = avro(tmp_path, url, {"URL": f"http://me:{password}@two:8081/api"}).registry
    assert found == RegistryAddress(("http://two:8081/api",), f"me:{password}")


def test_a_url_that_is_none_is_refused_without_its_login(tmp_path: Path) -> None:
    url = "      subscribe: a\n      schema.registry.url: http://me:geheim@[two:8081\n"
    with pytest.raises(InputError, match="must be a URL such as") as caught:
        avro(tmp_path, url)
    assert "geheim" not in str(caught.value)


def test_secrets_are_read_from_files_and_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("geheim\n")
    option = "      subscribe: a\n      kafka.sasl.username: me\n      kafka.sasl.password: ${file:secret}"
    source = kafka(tmp_path, option)
    assert source.client["sasl.password"] == "geheim"
    with pytest.raises(InputError, match="needs the file 'gone', which cannot be read: No such file or directory"):
        kafka(tmp_path, option.replace("secret}", "gone}"))
    with pytest.raises(InputError) as caught:
        load(tmp_path, FILE.replace("event: Withdrawal", "event: Withdrawal\n    start: ${file:secret}"))
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('subscribe: "b, a"', "subscibe: a", "8: unknown key 'subscibe' in 'options'; did you mean 'subscribe'?"),
        (
            'subscribe: "b, a"',
            "subscribe: a\n      kafka.sasl.mechanisn: PLAIN",
            "9: unknown key 'kafka.sasl.mechanisn' in 'options'; did you mean 'kafka.sasl.mechanism'?",
        ),
        (
            'subscribe: "b, a"',
            "subscribe: a\n      startingOffsets: latest",
            (
                "9: 'startingOffsets' is not an option here: say where a new job begins with 'start' beside 'options':"
                " earliest, latest or a time"
            ),
        ),
        (
            'subscribe: "b, a"',
            "subscribe: a\n      failOnDataLoss: false",
            (
                "9: 'failOnDataLoss' is not an option here: lost messages always stop a job; `ensue run --accept-loss`"
                " continues without them"
            ),
        ),
        (
            'subscribe: "b, a"',
            "subscribe: a\n      assign: '{}'",
            "7: 'cards' has subscribe and assign; expected one of subscribe, subscribePattern and assign",
        ),
        (
            'subscribe: "b, a"',
            "subscribe: a\n      kafka.sasl.jaas.config: geheim",
            '9: \'kafka.sasl.jaas.config\': must be like `...PlainLoginModule required username="..." password="...";`',
        ),
        (
            'subscribe: "b, a"',
            "subscribe: a\n      kafka.ssl.truststore.location: ca.jks",
            (
                "9: 'kafka.ssl.truststore.location': only PEM files can be read: export the certificates and set"
                " 'kafka.ssl.truststore.type: PEM'"
            ),
        ),
        (
            "    event: Withdrawal\n",
            "",
            "5: 'cards' needs 'event', the type of all its messages, or 'type', the field that has it",
        ),
        (
            "event: Withdrawal",
            "event: Withdrawal\n    path: in",
            "10: 'path' is not a setting of Kafka sources; sources of files and Delta sources have it",
        ),
        (
            "event: Withdrawal",
            "event: Withdrawal\n    min_age: 1s",
            "10: 'min_age' is not a setting of Kafka sources; sources of files have it",
        ),
        (
            "event: Withdrawal",
            "event: Withdrawal\n    decode: columns",
            "10: 'decode: columns' is not supported yet; supported: json and avro",
        ),
        (
            "event: Withdrawal",
            "event: Withdrawal\n    start: soon",
            "10: 'start' must be `earliest`, `latest` or a time, not 'soon'",
        ),
    ],
)
def test_a_mistake_has_its_line_and_the_way_out(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in FILE
    with pytest.raises(InputError) as caught:
        load(tmp_path, FILE.replace(before, after))
    assert message in str(caught.value).replace(f"{tmp_path}/cards.yaml:", "").split("\n")
    assert "geheim" not in str(caught.value)


def test_settings_of_kafka_are_refused_for_files_and_controls_may_come_from_a_topic(tmp_path: Path) -> None:
    options = '{kafka.bootstrap.servers: "one:9092", subscribe: controls}'
    load(tmp_path, FILE.replace("sinks:", f"control: {{format: kafka, options: {options}}}\nsinks:"))
    control = load_deployment(tmp_path / "cards.yaml", {}).control
    assert control is not None
    assert control.own.is_control
    (tmp_path / "in").mkdir()
    files = "name: a\nqueries: [cards.query]\nsources:\n  s: {format: csv, path: in, skew: 1s}\nsinks:\n"
    with pytest.raises(InputError, match="4: 'skew' is not a setting of sources of files; Kafka sources have it"):
        load(tmp_path, files + "  matches: {format: csv, path: out}\ncheckpoint: state\n")


def test_the_client_is_imported_only_where_there_is_such_a_source() -> None:
    program = """
import sys
sys.modules["confluent_kafka"] = None
import spark_backend.source_stream
from job_engine.kafka_broker import AskedBroker
from job_engine.kafka_broker import BrokerError
try:
    AskedBroker({})
except BrokerError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "Kafka needs the package confluent-kafka: pip install 'ensue[kafka]'\n"


AVRO = """\
      subscribe: a
      schema.registry.url: "https://one:8081/, http://me:geheim@two:8081/api"
      schema.registry.ssl.ca.location: ca.pem
"""


def avro(folder: Path, options: str, environment: dict[str, str] | None = None) -> AvroForm:
    text = FILE.replace("    event: Withdrawal\n", "    decode: avro\n").replace('      subscribe: "b, a"\n', options)
    found = load(folder, text, environment).own
    assert found is not None
    assert found.avro is not None
    return found.avro


def test_a_registry_and_its_login_are_read_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    found = avro(tmp_path, AVRO)
    urls = ("https://one:8081", "http://two:8081/api")
    assert found == AvroForm(None, RegistryAddress(urls, "me:geheim", authorities=str(tmp_path / "ca.pem")))
    login = 'schema.registry.basic.auth.user.info: "other:${WORD}"'
    found = avro(tmp_path, AVRO + f"      {login}\n", {"WORD": "much:secret"})
    assert found.registry is not None
    assert found.registry.login == "other:much:secret"
    assert "secret" not in repr(found)
    inherited = "      kafka.sasl.username: u\n      kafka.sasl.password: p\n      kafka.sasl.mechanism: PLAIN\n"
    found = avro(tmp_path, f"{AVRO}{inherited}      basic.auth.credentials.source: SASL_INHERIT\n")
    assert found.registry is not None
    assert found.registry.login == "u:p"


def test_a_schema_is_read_with_the_files_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "geo.Place.avsc").write_text('{"type": "record", "name": "geo.Place", "fields": []}')
    fields = '[{"name": "place", "type": "geo.Place"}]'
    (tmp_path / "w.avsc").write_text(f'{{"type": "record", "name": "W", "fields": {fields}}}')
    found = avro(tmp_path, "      subscribe: a\n      avro.schema: w.avsc\n")
    assert found.schema is not None
    assert '"geo.Place", "fields": []' in found.schema


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "'cards' needs 'avro.schema', a file with the schema, or 'schema.registry.url', such as"),
        ("      avro.schema: w.avsc", "no such file: 'w.avsc'"),
        ("      avro.schema: cards.query", "'cards.query' is not a schema of Avro: "),
        ("      avro.schema: int.avsc", "'int.avsc' must be the schema of a record"),
        ("      schema.registry.url: one:8081", "'schema.registry.url' must be a URL such as `http://localhost:8081`"),
        ("      basic.auth.user.info: a:b\n      avro.schema: w.avsc", "has no meaning without 'schema.registry.url'"),
        (f"{AVRO}      basic.auth.user.info: a", "must be a user name and a password with a colon between"),
    ],
)
def test_mistakes_about_avro_are_told(tmp_path: Path, options: str, message: str) -> None:
    (tmp_path / "int.avsc").write_text('"int"')
    with pytest.raises(InputError) as raised:
        avro(tmp_path, f"      subscribe: a\n{options}\n" if "subscribe" not in options else f"{options}\n")
    assert message in str(raised.value)


def test_options_of_avro_need_its_decoding(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'avro.schema' belongs to `decode: avro`"):
        kafka(tmp_path, "      subscribe: a\n      avro.schema: w.avsc")


@pytest.mark.parametrize(
    ("written", "ahead"), [("", 86_400_000_000), ("ahead: 1 hour", 3_600_000_000), ("ahead: none", None)]
)
def test_a_topic_has_a_limit_to_the_future_unless_it_says_none(tmp_path: Path, written: str, ahead: int | None) -> None:
    own = load(tmp_path, FILE.replace("    event: Withdrawal", f"    event: Withdrawal\n    {written}")).own
    assert own.ahead == ahead


SINKS = """sinks:
  matches: {format: kafka, topic: %s, options: {kafka.bootstrap.servers: "%s"}}"""


@pytest.mark.parametrize(
    ("read", "servers", "topic", "is_refused"),
    [
        ('subscribe: "b, a"', "three:9092, TWO", "a", True),
        ('subscribePattern: "[ab].*"', "SSL://one:9092", "a.matches", True),
        ('assign: "{\\"a\\": [0]}"', "one", "a", True),
        ('subscribe: "b, a"', "one:9093", "a", False),
        ('subscribe: "b, a"', "one:9092", "c", False),
        ('subscribePattern: "[ab]"', "one:9092", "ab", False),
    ],
)
def test_a_topic_that_is_read_and_written_is_refused(
    tmp_path: Path, read: str, servers: str, topic: str, *, is_refused: bool
) -> None:
    text = FILE.replace('subscribe: "b, a"', read).split("sinks:")[0]
    text += SINKS % (topic, servers) + "\ncheckpoint: state\n"
    (tmp_path / "cards.query").write_text("")
    (tmp_path / "cards.yaml").write_text(text)
    if not is_refused:
        load_deployment(tmp_path / "cards.yaml", {})
        return
    with pytest.raises(InputError) as raised:
        load_deployment(tmp_path / "cards.yaml", {})
    assert str(raised.value) == (
        f"{tmp_path}/cards.yaml:11: the topic '{topic}' is read by the source 'cards' and written by the sink"
        " 'matches': the job would read its own results. Let the sink write to another one"
    )


def test_a_channel_into_the_control_stream_is_refused(tmp_path: Path) -> None:
    text = (
        FILE
        + """\
control: {format: kafka, options: {kafka.bootstrap.servers: "one:9092", subscribe: controls}}
channels:
  alerts: {format: kafka, topic: controls, options: {kafka.bootstrap.servers: "one:9092"}}
"""
    )
    (tmp_path / "cards.query").write_text("")
    (tmp_path / "cards.yaml").write_text(text)
    with pytest.raises(InputError, match=r"yaml:15: the topic 'controls' is read by the control stream and written"):
        load_deployment(tmp_path / "cards.yaml", {})
