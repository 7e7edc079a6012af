"""Deployment files: what they may say, and how mistakes in them are reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

import querylang
from job_engine.deployment import Deployment
from job_engine.deployment_file import load_deployment
from job_engine.job.plan_rules import with_source_orderings
from job_engine.wire.clock_sources import Clock
from querylang.errors import FileErrors, InputError
from querylang.parameters import with_instances
from runtime.file_forms import CsvForm
from runtime.policies.plan_policies import parse_ordering
from runtime.policies.settings_text import TimeForm
from tests.support.pace import measured
from tests.support.schema_verdicts import same_verdict

GOOD = """\
name: cards
queries: [queries/*.query]
sources:
  withdrawals:
    format: parquet
    path: data
    event: Withdrawal
    source_time: ts
    arrival: at
    options: {maxFilesPerTrigger: 2}
control: {format: json, path: control/}
sinks:
  matches: {format: parquet, path: out/matches}
  discarded: {format: json, path: "${OUT}/discarded"}
clock: arrival
buckets: 8
trigger: 1 second
checkpoint: state/cards
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "cards.query").write_text("")
    return tmp_path


def load(folder: Path, text: str) -> Deployment:
    (folder / "deploy.yaml").write_text(text)
    with same_verdict(text):
        return load_deployment(folder / "deploy.yaml", {"OUT": "/secret/place"})


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        load(folder, text)
    return str(caught.value).replace(f"{folder}/deploy.yaml:", "").split("\n")


def test_a_whole_file(folder: Path) -> None:
    (folder / "deploy.yaml").write_text(GOOD)
    deployment = load_deployment(folder / "deploy.yaml", {"OUT": "/secret/place"})
    assert deployment.name == "cards"
    assert deployment.queries == (folder / "queries" / "cards.query",)
    assert [source.name for source in deployment.sources] == ["withdrawals"]
    assert deployment.sources[0].own.max_files == 2
    assert deployment.sources[0].place == folder / "data"
    assert deployment.sinks["discarded"].place == Path("/secret/place/discarded")
    assert (deployment.clock, deployment.buckets, deployment.trigger) == (Clock.ARRIVAL, 8, 1_000_000)


def test_a_query_file_has_any_name_that_is_there(folder: Path) -> None:
    """Its signs are a pattern only if no file has exactly this name."""
    for name in ("a[1].query", "a1.query", "b**.query"):
        (folder / "queries" / name).write_text("")
    found = load(folder, GOOD.replace("[queries/*.query]", "['queries/a[1].query', 'queries/b**.query']"))
    assert [path.name for path in found.queries] == ["a[1].query", "b**.query"]


def test_a_long_pattern_takes_no_time(folder: Path) -> None:
    pattern = "[" * 100_000
    with measured() as used:
        assert mistakes(folder, GOOD.replace("[queries/*.query]", f"['{pattern}']")) == [
            f"2: no such query file: '{pattern}'"
        ]
    assert used.seconds < 1


def test_an_archive_of_kernels_has_to_be_one(folder: Path) -> None:
    archive, text = folder / "kernels.zip", f"{GOOD}kernels: kernels.zip\n"
    assert mistakes(folder, text) == ["19: no such archive of kernels: 'kernels.zip'"]
    archive.write_text("not a zip file")
    assert mistakes(folder, text) == ["19: not an archive of `ensue compile --out`: 'kernels.zip'"]
    with ZipFile(archive, "w"):
        pass
    assert load(folder, text).kernels == archive


def test_the_settings_of_files(folder: Path) -> None:
    text = "    order: name\n    min_age: 5s\n    after: archive done/here\n    unreadable: stop\n"
    (folder / "deploy.yaml").write_text(GOOD.replace("    arrival: at\n", text))
    source = load_deployment(folder / "deploy.yaml", {"OUT": "/out"}).sources[0]
    own = source.own
    assert (own.order, own.min_age, own.stops) == ("name", 5_000_000, True)
    assert (own.after, own.archive) == ("archive", str(folder / "done" / "here"))
    assert list(source.fixed) == ["format", "path", "event", "source_time", "order"]


def test_values_of_parameters_keep_types_and_lines(folder: Path) -> None:
    values = "parameters:\n  Rising:\n    eu: {least: 1, name: '7', is_on: true}\n    us: {least: '${LEAST}'}\n"
    (folder / "deploy.yaml").write_text(GOOD + values)
    found = load_deployment(folder / "deploy.yaml", {"OUT": "/out", "LEAST": "2.5"}).parameters
    assert found.values == {"Rising": {"eu": {"least": 1, "name": "7", "is_on": True}, "us": {"least": 2.5}}}
    paths = (("Rising", "us"), ("Rising", "eu", "least"), ("Rising", "none"), ("Falling",))
    assert [found.line_of(path) for path in paths] == [22, 21, 20, 20]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("buckets: 8", "bucket: 8", "16: unknown key 'bucket' in 'the deployment'; did you mean 'buckets'?"),
        ("buckets: 8", "buckets: many", "16: 'buckets' must be a whole number from 1 to 10000, not 'many'"),
        ("buckets: 8", "buckets: 0", "16: 'buckets' must be a whole number from 1 to 10000, not '0'"),
        ("path: data\n", "path: dato\n", "6: no such folder: 'dato'; did you mean 'data'?"),
        ("format: parquet\n", "format: parqet\n", "5: 'format' must be parquet, csv, json, arrow, kafka or delta, not 'parqet'; did you mean 'parquet'?"),
        ("format: parquet\n", "format: orc\n", "5: 'format: orc' is not supported yet; supported: parquet, csv, json, arrow, kafka and delta"),
        ("format: parquet\n    path: data\n    event: Withdrawal\n    source_time: ts\n    arrival: at\n", "format: delta\n    path: data\n    event: Withdrawal\n", "5: 'withdrawals' has no 'arrival': the column that says when a record arrived"),
        ("format: parquet\n    path: data\n", "format: delta\n    path: data\n    order: name\n", "7: 'order' is not a setting of Delta sources; sources of files have it"),
        ("format: parquet\n    path: data\n", "format: delta\n    path: data\n    start: soon\n", "7: 'start' must be `earliest`, `latest`, a version or a time, not 'soon'"),
        ("format: parquet\n    path: data\n", "format: parquet\n    path: data\n    skip_changes: true\n", "7: 'skip_changes' is not a setting of sources of files; Delta sources have it"),
        ("path: out/matches}", "path: out/matches, partition_by: day}", "13: 'partition_by' is a setting of Delta tables; 'matches' is parquet"),
        ("{format: parquet, path: out/matches}", "{format: delta, path: out/matches, partition_by: [day, v]}", "13: 'partition_by' must be day or instance, not 'v'"),
        ("{format: parquet, path: out/matches}", "{format: delta, path: out/matches, formulas: escape}", "13: 'formulas' is a setting of CSV; 'matches' is delta"),
        ("{format: parquet, path: out/matches}", "{format: kafka, topic: t, partition_by: day, options: {kafka.bootstrap.servers: h}}", "13: 'partition_by' is a setting of Delta tables; 'matches' is a topic of Kafka"),
        ("{format: parquet, path: out/matches}", "{format: delta, path: 's3://b/matches', options: {tls_ca_file_path: x}}", "13: 'tls_ca_file_path' cannot be set for Delta tables"),
        ("maxFilesPerTrigger: 2", "maxFilePerTrigger: 2", "10: unknown key 'maxFilePerTrigger' in 'options'; did you mean 'maxFilesPerTrigger'?"),
        ("maxFilesPerTrigger: 2", "maxFilesPerTrigger: 0", "10: 'maxFilesPerTrigger' must be a whole number from 1 to 4611686018427387904, not '0'"),
        ("${OUT}", "${OUTPUT}", "14: 'path' needs the environment variable OUTPUT, which is not set"),
        ("clock: arrival", "clock: wall", "15: 'clock' must be arrival or processing, not 'wall'"),
        ("trigger: 1 second", "trigger: soon", "17: 'trigger' must be a length of time such as `1 second` or `500ms`, not 'soon'"),
        ("checkpoint: state/cards\n", "", "1: 'checkpoint' is missing"),
        ("[queries/*.query]", "[queries/*.qry]", "2: no such query file: 'queries/*.qry'"),
        ("[queries/*.query]", "['queries/a**b']", "2: no such query file: 'queries/a**b'"),
        ("[queries/*.query]", f"['{'x' * 300}/*.query']", f"2: no such query file: '{'x' * 300}/*.query'"),
        ("[queries/*.query]", f"[{'x' * 300}.query]", f"2: no such query file: '{'x' * 300}.query'"),
        ("[queries/*.query]", "queries/card.query", "2: no such query file: 'queries/card.query'; did you mean 'cards.query'?"),
        ("out/matches", "/secret/place/discarded", "14: the sink 'matches' and the sink 'discarded' have the same folder"),
        ("    event: Withdrawal\n", "    event: Withdrawal\n    type_field: kind\n", "8: 'withdrawals' has both 'event' and 'type_field'; expected one of them"),
        ("name: cards", "name: [cards", "2: is not YAML: did not find expected ',' or ']'"),
        ("name: cards", "name:", "1: 'name' must be a text, not empty"),
        ("name: cards", "name: &a [*a]", "1: *a contains itself"),
        ("clock: arrival", "parameters: {least: !!timestamp x}", "15: 'least' must be a number, a text, true or false, not 'x'"),
        ("buckets: 8", f"buckets: {'9' * 5000}", f"16: 'buckets' must be a whole number from 1 to 10000, not '{'9' * 5000}'"),
        ("clock: arrival", "parameters: eu", "15: 'parameters' must be a mapping of names to values, not 'eu'"),
        ("  matches:", "  matchs:", "13: unknown key 'matchs' in 'sinks'; did you mean 'matches'?"),
        ("    arrival: at\n", "    order: size\n", "9: 'order' must be time or name, not 'size'"),
        ("    arrival: at\n", "    min_age: soon\n", "9: 'min_age' must be a length of time such as `5s`, not 'soon'"),
        ("    arrival: at\n", "    after: archive\n", "9: 'after' must be `keep`, `delete` or `archive FOLDER`, not 'archive'"),
        ("    arrival: at\n", "    after: archive data/old\n", "9: the folder of the archive of the source 'withdrawals' lies in that of the source 'withdrawals'; choose folders beside each other"),
        ("    arrival: at\n", "    unreadable: keep\n", "9: 'unreadable' must be discard or stop, not 'keep'"),
        ("path: out/matches", f"path: {'o' * 300}", "13: 'path' cannot be a path: a name in it is too long, or has a NUL"),
        (
            "path: out/matches",
            "path: http://host/out",
            "13: 'path' must be a local or mounted folder, or a URI that begins with `s3://`, `gs://`, `abfss://`, `hdfs://` or `file:`; not 'http://host/out'",
        ),
    ],
)  # fmt: skip
def test_a_mistake_has_its_line_and_what_was_expected(folder: Path, old: str, new: str, expected: str) -> None:
    assert old in GOOD
    found = mistakes(folder, GOOD.replace(old, new))
    assert found[0] == expected


ORDERED = GOOD.replace("    arrival: at\n", "    arrival: at\n    ordering: ORDERING\n")


@pytest.mark.parametrize(
    ("written", "ordering"),
    [
        ("{policy: stream_analytics, late: 5s, out_of_order: 2 s, action: drop, over: [card, region]}", "stream_analytics late=5s out_of_order=2s action=drop over=card,region"),
        ("{policy: stream_analytics, late: -1, early: none, start: 2024-01-01 10:00:00, partitions: 4}", "stream_analytics late=-1 early=none start=2024-01-01T10:00:00Z partitions=4"),
        ("{policy: streaminsight, every: 5, delay: -1tick, final: yes, early: ~}", "streaminsight every=5 delay=-1tick final=yes"),
        ("\n      policy: streaminsight\n      import: Other", "streaminsight import=Other"),
        ("{policy: stream_analytics, late: '${LATE}'}", "stream_analytics late=7s"),
        ("stream_analytics late=5s over=card", "stream_analytics late=5s over=card"),
        ("apama", "apama"),
    ],
)  # fmt: skip
def test_a_source_has_an_ordering(folder: Path, written: str, ordering: str) -> None:
    (folder / "deploy.yaml").write_text(ORDERED.replace("ORDERING", written))
    (source,) = load_deployment(folder / "deploy.yaml", {"OUT": "/out", "LATE": "7s"}).sources
    assert (source.ordering, source.arrival) == (parse_ordering(ordering), "at")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{policy: asa}", ["10: 'policy' must be apama, stream_analytics or streaminsight, not 'asa'; did you mean 'stream_analytics'?"]),
        ("{late: 5s}", ["10: 'policy' is missing: it is apama, stream_analytics or streaminsight"]),
        ("stream_analytics lat=5s", ["10: 'lat' is not a setting of stream_analytics; did you mean 'late'?"]),
        (
            "\n      policy: stream_analytics\n      late: 1:30\n      out_of_order: 10 min\n      final: yes",
            [
                "12: 'late' must be a length of time from 0 seconds to 20 days 23 hours 59 minutes 59 seconds, or -1 (for ever), not '1:30'",
                "13: 'out_of_order' must be a length of time from 0 seconds to 9 minutes 59 seconds, not 10 minutes",
                "14: 'final' is a setting of streaminsight, not of stream_analytics, which has late, out_of_order, early, action, over, partitions, start",
            ],
        ),
        ("{policy: stream_analytics, late: 5s, late: 6s}", ["10: duplicate key 'late' in 'ordering'"]),
        ("{policy: stream_analytics, late: {a: 1}}", ["10: 'late' must be a text, not a mapping"]),
        ("{policy: stream_analytics, late: '${OUT}'}", ["10: 'late' must be a length of time from 0 seconds to 20 days 23 hours 59 minutes 59 seconds, or -1 (for ever), not what '${OUT}' stands for"]),
        ("", ["10: 'ordering' must be a text, not empty"]),
    ],
)  # fmt: skip
def test_a_mistake_in_an_ordering_has_its_line(folder: Path, written: str, expected: list[str]) -> None:
    assert mistakes(folder, ORDERED.replace("ORDERING", written)) == expected


def test_an_ordering_that_does_not_fit_the_queries_has_its_line(folder: Path) -> None:
    query = "event Withdrawal { string card; } query Q { inputs { Withdrawal() within 9.0 wait 9.0; } find Withdrawal as a -> Withdrawal as b { } }"
    (folder / "queries" / "cards.query").write_text(query)
    (folder / "deploy.yaml").write_text(ORDERED.replace("ORDERING", "stream_analytics over=crd"))
    deployment = load_deployment(folder / "deploy.yaml", {"OUT": "/out"})
    with pytest.raises(FileErrors) as caught:
        with_source_orderings(querylang.compile_paths(deployment.queries).plan, deployment)
    place = "query 'Q', input 'Withdrawal': "
    assert caught.value.found == (
        (10, f"{place}`wait` says how events are put in order, and so does the policy 'stream_analytics' of its source; only 'apama' can be combined with it"),
        (10, f"{place}'over=crd', but the event type has the field card; did you mean 'card'?"),
    )  # fmt: skip


def test_the_plan_of_a_deployment_has_its_sources_orderings(folder: Path) -> None:
    query = "event Withdrawal { string card; } query Q { inputs { Withdrawal() within 9.0; } find Withdrawal as a -> Withdrawal as b { } }"
    (folder / "queries" / "cards.query").write_text(query)
    (folder / "deploy.yaml").write_text(ORDERED.replace("ORDERING", "stream_analytics over=card"))
    deployment = load_deployment(folder / "deploy.yaml", {"OUT": "/out"})
    plan = with_source_orderings(querylang.compile_paths(deployment.queries).plan, deployment)
    (item,) = plan.queries[0].inputs
    assert (item.policy, item.sources) == (parse_ordering("stream_analytics over=card"), ("withdrawals",))


def test_all_mistakes_are_told_in_order_of_lines(folder: Path) -> None:
    found = mistakes(folder, GOOD.replace("buckets: 8", "buckets: x").replace("path: data", "path: no"))
    assert [line.split(":")[0] for line in found] == ["6", "16"]


def test_a_value_from_the_environment_is_never_shown(folder: Path) -> None:
    found = mistakes(folder, GOOD.replace("path: data", "path: ${OUT}/x").replace("clock: arrival", "clock: ${OUT}"))
    assert not any("secret" in line for line in found)
    options = GOOD.replace("maxFilesPerTrigger: 2", 'pathGlobFilter: "${OUT}"')
    assert "secret" not in repr(load(folder, options)).replace("/secret/place/discarded", "")


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing.yaml: no such file$"):
        load_deployment(tmp_path / "nothing.yaml")


def test_an_empty_file_says_so(folder: Path) -> None:
    assert mistakes(folder, "# nothing\n") == ["1: is empty; a deployment file begins with `name:`"]


def test_reading_a_deployment_file_needs_neither_spark_nor_pandas() -> None:
    code = "import sys, job_engine.deployment_file; print([m for m in ('pyspark', 'pandas', 'pyarrow', 'numba') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("query", "value", "expected"),
    [
        ("integer n", "'${OUT}'", "must be integer, not what '${OUT}' stands for"),
        ("decimal n", "'${OUT}'", "must be decimal, not what '${OUT}' stands for"),
        ("float n", "'-7${DIGITS}'", "`within` of 'A' is not possible with what '-7${DIGITS}' stands for"),
        ("integer n", "'9${DIGITS}'", "must be integer, not what '9${DIGITS}' stands for"),
    ],
)
def test_values_from_the_environment_are_not_shown_in_messages(
    folder: Path, query: str, value: str, expected: str
) -> None:
    text = f"query Q {{ parameters {{ {query}; }} inputs {{ A() within {'n' if 'float' in query else '1.0'}; }} find A as a }}"
    plan = querylang.compile_text(text).plan
    (folder / "deploy.yaml").write_text(GOOD + f"parameters: {{Q: {{eu: {{n: {value}}}}}}}\n")
    digits = "12345678901234567890"
    given = load_deployment(folder / "deploy.yaml", {"OUT": "/secret/place", "DIGITS": digits}).parameters
    with pytest.raises(FileErrors) as caught:
        with_instances(plan, given)
    assert str(caught.value).endswith(expected)
    assert digits not in str(caught.value)


FORMS = """\
    format: csv
    path: data
    csv: {delimiter: ";", encoding: latin-1, decimal: ","}
    time_unit: ms
    time_format: "%d.%m.%Y"
    infer: true
"""


def with_source(settings: str) -> str:
    first, last = GOOD.index("    format: parquet"), GOOD.index("control:")
    return GOOD[:first] + settings + GOOD[last:]


def test_the_forms_of_a_source(folder: Path) -> None:
    source = load(folder, with_source(FORMS)).sources[0]
    assert source.csv == CsvForm(";", "iso8859-1", ",")
    assert (source.times, source.infers) == (TimeForm("ms", "%d.%m.%Y"), True)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("csv\n", "json\n", "7: 'csv' is a setting of CSV; 'withdrawals' is json"),
        ('";"', '";;"', "7: csv: delimiter ';;' is not one ASCII character; write one such as `;` or `|`, or `tab`"),
        ('","', "x", "7: csv: decimal 'x' is neither a point nor a comma; write `decimal=,`"),
        ("encoding", "encodin", "7: unknown key 'encodin' in 'csv'; did you mean 'encoding'?"),
        ("ms", "h", "8: 'time_unit' must be s, ms, us or ns, not 'h'"),
        ("%d.%m.%Y", "soon", "9: time_format: 'soon' has neither a date nor a time; write one such as '%d.%m.%Y %H:%M:%S'"),
        ("true", "perhaps", "10: 'infer' must be true or false, not 'perhaps'"),
    ],
)  # fmt: skip
def test_a_wrong_form_of_a_source(folder: Path, old: str, new: str, message: str) -> None:
    assert mistakes(folder, with_source(FORMS.replace(old, new))) == [message]
