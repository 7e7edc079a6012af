"""What is seen of a job over HTTP: metrics in Prometheus' format, health and readiness."""

from __future__ import annotations

import itertools
import json
import re
import socket
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from job_engine.deployment import Address
from job_engine.deployment_file import load_deployment
from job_engine.job import watch
from job_engine.job.checkpoint.progress import JobProgress
from job_engine.job.job import deploy, run
from job_engine.job.prometheus import FRESH, PARTITIONS, Kept, Metrics
from job_engine.job.reports import Figures, Pulse
from job_engine.job.stages.start import WallClock
from job_engine.operator.clocks import JobClock, SourceWatermark
from job_engine.sources.source import SourceBacklog
from querylang.errors import InputError
from querylang.printable import LogForm
from tests.project.repository import ROOT
from tests.support.local_jobs import local
from tests.support.sensors import add_files, project, project_of_two, table
from tests.support.waiting import LONGEST, wait_for

Samples = dict[tuple[str, tuple[str, ...]], float]
"""By name and values of labels."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def asked(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=LONGEST) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def with_metrics(path: Path, value: object) -> Path:
    path.write_text(f"{path.read_text()}metrics: {value}\n")
    return path


def samples(text: str) -> Samples:
    families = list(text_string_to_metric_families(text))
    return {(item.name, tuple(item.labels.values())): item.value for family in families for item in family.samples}


@dataclass(frozen=True, slots=True)
class Watched:
    port: int
    ready: tuple[int, str]
    hasty: tuple[int, str]
    text: str


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """A job that has read its only file, and a later one that is not a table; then it has ended."""
    folder = tmp_path_factory.mktemp("watched")
    port = free_port()
    path = local(with_metrics(project(folder, buckets=2), port))
    add_files(folder, table(500), 1)
    handle = deploy(path)
    try:
        wait_for(lambda: samples(asked(port, "metrics")[1])["ensue_state_bytes", ()] > 0)  # something is saved
        ready, hasty, text = asked(port, "readyz"), asked(port, "readyz?within=0us"), asked(port, "metrics")[1]
        assert asked(port, "healthz") == (200, "ok\n")
        assert asked(port, "readyz?within=soon")[0] == 400
        assert asked(port, "else")[0] == 404
        with pytest.raises(InputError, match=r"another run of this job is at work"):
            deploy(path)
        assert asked(port, "healthz") == (200, "ok\n")
    finally:
        handle.stop()
    return Watched(port, ready, hasty, text)


def test_the_metrics_are_those_of_the_job(watched: Watched) -> None:
    found = samples(watched.text)
    assert found["ensue_events_total", ("readings",)] == 500
    assert found["ensue_ledger_records", ("Rise", "received")] == 500
    assert found["ensue_matches_total", ("Jump",)] > 0
    assert found["ensue_micro_batch_duration_seconds_count", ()] == 1
    assert found["ensue_kernel_seconds_total", ()] > 0
    assert found["ensue_backlog_files", ("readings",)] <= 1  # it may not be committed yet
    assert found["ensue_state_bytes", ()] > 1000
    assert found["ensue_keys", ()] == 31  # of Rise 30 sensors, of Jump the one key that all records have
    assert found["ensue_memory_bytes", ()] > 10_000_000
    assert abs(found["ensue_last_commit_timestamp_seconds", ()] - time.time()) < 120
    assert found["ensue_watermark_delay_seconds", ("readings",)] > 86_400


def test_a_job_is_ready_when_its_first_micro_batch_has_ended(watched: Watched) -> None:
    assert watched.ready == (200, "ok\n")
    assert watched.hasty[0] == 503


def test_the_port_is_free_when_the_job_has_ended(watched: Watched) -> None:
    with pytest.raises(urllib.error.URLError):
        asked(watched.port, "healthz")


def test_every_metric_is_in_the_documents_and_no_other(watched: Watched) -> None:
    exported = set(re.findall(r"^# TYPE (ensue_\w+) ", watched.text, re.MULTILINE))
    text = (ROOT / "docs" / "jobs.md").read_text()
    rows = text.partition("<!-- table: metrics -->")[2].partition("\n\n")[0]
    documented = set(re.findall(r"`(ensue_\w+)`", rows))
    assert exported - {"ensue_micro_batch_duration_seconds_created"} == documented


@pytest.mark.parametrize("name", ["alerts.yaml", "grafana.json"])
def test_every_metric_of_the_examples_is_exported(watched: Watched, name: str) -> None:
    exported = set(re.findall(r"^# TYPE (ensue_\w+) ", watched.text, re.MULTILINE))
    text = (ROOT / "docs" / "deploy" / name).read_text()
    used = {word.removesuffix("_bucket") for word in re.findall(r"ensue_\w+", text)}
    assert used <= exported
    assert len(used) > 8


def test_the_examples_are_what_they_are_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = ROOT / "docs" / "deploy"
    rules = yaml.safe_load((folder / "alerts.yaml").read_text())["groups"][0]["rules"]
    assert all({"alert", "expr", "annotations"} <= rule.keys() for rule in rules)
    assert len(json.loads((folder / "grafana.json").read_text())["panels"]) > 10
    secret, config, _, pods = yaml.safe_load_all((folder / "kubernetes.yaml").read_text())
    for file, text in config["data"].items():
        (tmp_path / file).write_text(text.replace("/data", str(tmp_path)))
    (variable,) = pods["spec"]["template"]["spec"]["containers"][0]["env"]
    monkeypatch.setenv(variable["name"], secret["stringData"][variable["valueFrom"]["secretKeyRef"]["key"]])
    deployment = load_deployment(tmp_path / "cards.yaml")
    assert deployment.log is LogForm.JSON
    assert [source.format for source in deployment.sources] == ["kafka", "csv"]
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz?within=10m"


def test_a_port_that_is_taken_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        path = with_metrics(project(tmp_path), port)
        with pytest.raises(InputError, match=rf"^metrics: the port 127\.0\.0\.1:{port} is taken by another process"):
            run(path, once=True)
    assert not (tmp_path / "state" / "offsets").exists()


def test_without_the_package_one_line_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InputError, match=r"pip install 'ensue\[metrics\]'"):
        run(with_metrics(project(tmp_path), free_port()), once=True)


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("9108", Address("127.0.0.1", 9108)),
        ("0.0.0.0:80", Address("0.0.0.0", 80)),
        ('"[::1]:9108"', Address("::1", 9108)),
        ("metrics.internal:9108", Address("metrics.internal", 9108)),
    ],
)
def test_an_address_is_a_port_or_a_host_and_a_port(tmp_path: Path, value: str, address: Address) -> None:
    assert load_deployment(with_metrics(project(tmp_path), value)).metrics == address


@pytest.mark.parametrize("value", ["0", "65536", "here", "a:b:1", "[1]"])
def test_what_is_no_address_is_refused_with_its_line(tmp_path: Path, value: str) -> None:
    with pytest.raises(InputError, match=r":\d+: 'metrics' must be a (port such as|text)"):
        load_deployment(with_metrics(project(tmp_path), value))


def test_the_log_is_text_unless_it_is_json(tmp_path: Path) -> None:
    path = project(tmp_path)
    assert load_deployment(path).log is LogForm.TEXT
    path.write_text(path.read_text() + "log: json\n")
    assert load_deployment(path).log is LogForm.JSON


def of(progress: JobProgress, backlog: tuple[SourceBacklog, ...] = (), **given: Any) -> Samples:
    figures = Figures(("Rise",), ("north",), given.pop("ledger", {}), progress, {"Rise": 0}, **given)
    return samples(Metrics("sensors", figures, lambda: backlog).text().decode())


def test_labels_are_bounded_however_many_partitions_and_files_there_are() -> None:
    many = tuple(SourceWatermark("north", number, 1_000_000 * number, 1) for number in range(1000))
    ledger = {("Rise", f"file{number}", "received"): 1 for number in range(1000)}
    found = of(JobProgress(clock=JobClock(many)), ledger=ledger)
    assert sum(name == "ensue_partition_watermark_delay_seconds" for name, _ in found) == PARTITIONS
    assert found["ensue_watermark_delay_seconds", ("north",)] == pytest.approx(time.time(), abs=60)
    assert found["ensue_events_total", ("other",)] == 1000


def test_a_source_that_does_not_answer_has_no_backlog_and_says_so() -> None:
    found = of(JobProgress(), (SourceBacklog("north", problem="down"), SourceBacklog("south", messages=7)))
    assert found["ensue_backlog_unknown", ("north",)] == 1
    assert found["ensue_backlog_messages", ("south",)] == 7
    assert ("ensue_backlog_messages", ("north",)) not in found


def test_what_is_slow_is_looked_at_now_and_then_only() -> None:
    now, looks = [0.0], []
    kept = Kept(lambda: looks.append(1) or len(looks), lambda: now[0])
    assert (kept(), kept()) == (1, 1)
    now[0] = FRESH
    assert kept() == 2


def test_a_job_is_stuck_when_a_micro_batch_takes_too_long() -> None:
    pulse = Pulse(100.0)
    assert pulse.problem(100.0, 5) == "no micro-batch has ended yet"
    pulse.beat(200.0)
    assert pulse.problem(205.0, 5) == ""
    assert pulse.problem(206.0, 5) == "a micro-batch has been at work for 6 s, longer than 5 s"


class EndedRun:
    """A run that ends; counts how often it was looked at."""

    is_idle = is_between_batches = False
    message = "Processing"

    def __init__(self) -> None:
        self.looks = 0

    @property
    def is_active(self) -> bool:
        self.looks += 1
        return self.looks == 1

    def wait(self, seconds: float | None = None) -> bool:
        return not self.is_active

    def stop(self) -> None:
        """It ends by itself."""


def test_metrics_stay_while_a_change_of_the_queries_starts_the_job_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "INTERVAL", 0.01)
    port, is_needed = free_port(), [True]
    figures = Figures(("Rise",), ("north",), {}, JobProgress(), {"Rise": 0})
    server = watch.Watch(Address("127.0.0.1", port), Metrics("sensors", figures, tuple))
    server.hold_while(lambda: is_needed[0])
    before, after = EndedRun(), EndedRun()
    server.follow(before)
    wait_for(lambda: before.looks > 5)
    assert asked(port, "healthz") == (200, "ok\n")
    server.follow(after)
    wait_for(lambda: after.looks > 5)
    assert asked(port, "metrics")[0] == 200
    is_needed[0] = False
    wait_for(lambda: is_free(port))


def is_free(port: int) -> bool:
    try:
        asked(port, "healthz")
    except OSError:
        return True
    return False


def test_metrics_and_log_may_change_between_two_runs(tmp_path: Path) -> None:
    path = project_of_two(tmp_path)
    before = load_deployment(path).fixed
    assert load_deployment(with_metrics(path, 9108)).fixed == before


def test_a_clock_that_is_set_back_is_noticed_and_small_corrections_are_not() -> None:
    shown, steady = iter([100.0, 101.0, 99.0, 103.0, 3.0, 4.0, 900.0, 901.0]), itertools.count(0.0, 1.0)
    clock = WallClock(lambda: next(shown), lambda: next(steady))
    assert [clock.set_back() for _ in range(7)] == [0.0, 0.0, 0.0, 101.0, 0.0, 0.0, 0.0]
