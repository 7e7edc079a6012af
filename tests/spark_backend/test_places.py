"""Places: texts that name them, and what a store has in common with a local folder."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet
import pytest

from job_engine.place import RemotePath, UnknownScheme, files_below, is_within, place_of
from job_engine.sinks.kinds import FORMATS, MicroBatch, publishing, writing
from querylang.errors import InputError
from tests.support.sinks import sink_of
from tests.support.stores import KEYS, StoreServer


def place(path: str) -> RemotePath:
    found = place_of(f"s3://bucket/{path}")
    assert isinstance(found, RemotePath)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in", "/base/in"),
        ("/data/in", "/data/in"),
        ("file:/data/in", "/data/in"),
        ("file:///data/a%20b#c", "/data/a b#c"),
        ("file://localhost/data", "/data"),
        ("a:b/c", "/base/a:b/c"),
        ("s3://bucket/in/", "s3://bucket/in"),
        ("S3A://bucket/a b/%20/#/ü", "s3://bucket/a b/%20/#/ü"),
        ("s3n://bucket", "s3://bucket"),
        ("gcs://bucket/x", "gs://bucket/x"),
        ("abfs://box@account.dfs.core.windows.net/x", "abfss://box@account.dfs.core.windows.net/x"),
        ("hdfs://host:8020/x", "hdfs://host:8020/x"),
    ],
)
def test_a_text_names_a_path_or_a_store(text: str, expected: str) -> None:
    assert str(place_of(text, Path("/base"))) == expected


@pytest.mark.parametrize("text", ["http://host/in", "ftp://host/in", "s3:///in", "dbfs:/in"])
def test_other_kinds_of_uri_are_refused(text: str) -> None:
    with pytest.raises(UnknownScheme):
        place_of(text)


def test_credentials_are_never_shown() -> None:
    found = place_of("s3://bucket/in", None, {"secret_key": "very-secret-key"})
    assert "very" not in repr(found) + str(found) + repr(found / "a")


@pytest.mark.parametrize("outer", ["s3://bucket/a", "s3://bucket"])
def test_a_place_lies_in_the_one_above_it(outer: str) -> None:
    assert is_within(place("a/b"), place_of(outer))


@pytest.mark.parametrize("other", ["s3://bucket/a/bc", "s3://other/a", "/a", "gs://bucket/a"])
def test_a_place_lies_in_no_other(other: str) -> None:
    assert not is_within(place("a/b"), place_of(other))


@pytest.mark.parametrize("name", ["plain.csv", "a b.csv", "100%.csv", "%20.csv", "#1.csv", "ü-δ.csv", "a+b=c&d?.csv"])
@pytest.mark.usefixtures("store")
def test_an_object_with_any_name_is_written_listed_read_and_removed(name: str) -> None:
    file = place("names") / name
    file.write_text("text")
    assert [path.name for path in files_below(place("names"))] == [name]
    assert (file.read_text(), file.stat().st_size, file.suffix) == ("text", 4, ".csv")
    moved = place("names") / "moved"
    file.replace(moved)
    assert [path.name for path in place("names").iterdir()] == ["moved"]
    moved.unlink()
    assert not moved.exists()


@pytest.mark.usefixtures("store")
def test_nothing_is_in_a_folder_that_does_not_exist() -> None:
    assert list(place("nowhere").iterdir()) == list(files_below(place("nowhere"))) == []
    assert not place("nowhere").is_dir()


@pytest.mark.parametrize("name", sorted(name for name in FORMATS if FORMATS[name] == "job_engine.sinks.folder"))
def test_an_object_of_a_sink_appears_when_it_is_published(name: str, store: StoreServer) -> None:
    sink = sink_of(name, place(f"out/{name}"))
    writer = writing(sink).open(sink, MicroBatch("0123456789ab", 1), 2, 3)
    writer.write("Q", pa.table({"v": [1]}))
    drafts = writer.finish()
    assert store.keys(f"out/{name}/") == [f"out/{name}/Q/.0123456789ab-00000001-00002.3.draft"]
    publishing(sink).publish(MicroBatch("0123456789ab", 1), [(sink, drafts)])
    written = f"out/{name}/Q/0123456789ab-00000001-00002.{name}"
    assert store.keys(f"out/{name}/") == [written]
    assert [result.place for result in publishing(sink).results(sink)] == [f"s3://bucket/{written}"]


def test_what_interrupted_attempts_left_is_removed(store: StoreServer) -> None:
    sink = sink_of("parquet", place("left"))
    for attempt, number in ((1, 1), (2, 1), (1, 0)):
        batch = MicroBatch("0123456789ab", number)
        writer = writing(sink).open(sink, batch, attempt, attempt)
        writer.write("Q", pa.table({"v": [attempt]}))
        drafts = writer.finish()
        if (attempt, number) != (1, 1):
            publishing(sink).publish(batch, [(sink, drafts)])
    kept = "left/Q/0123456789ab-00000001-00002.parquet"
    publishing(sink).remove_leftovers(sink, MicroBatch("0123456789ab", 1), {f"s3://bucket/{kept}"})
    assert store.keys("left/") == ["left/Q/0123456789ab-00000000-00001.parquet", kept]


def test_an_attempt_that_fails_writes_nothing(store: StoreServer) -> None:
    sink = sink_of("parquet", place("failed"))
    writer = writing(sink).open(sink, MicroBatch("0123456789ab", 1), 0, 0)
    writer.write("Q", pa.table({"v": [1]}))
    writer.abort()
    assert store.keys("failed/") == []


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (403, "AccessDenied", "the store refuses access: check credentials and permissions"),
        (403, "InvalidAccessKeyId", "the store refuses access: check credentials and permissions"),
        (404, "NoSuchBucket", "there is no such bucket"),
        (503, "SlowDown", "the store failed: SlowDown"),
        (500, "InternalError", "the store failed: InternalError"),
    ],
)
def test_a_sink_that_cannot_be_written_is_one_line(store: StoreServer, status: int, code: str, expected: str) -> None:
    store.refuse = lambda method, _path: (status, code) if method in ("PUT", "POST") else None
    sink = sink_of("json", place("refused"))
    writer = writing(sink).open(sink, MicroBatch("0123456789ab", 1), 0, 0)
    writer.write("Q", pa.table({"v": [1]}))
    with pytest.raises(InputError) as refused:
        writer.finish()
    assert str(refused.value) == f"s3://bucket/refused: cannot be written: {expected}"
    writer.abort()


def test_a_request_that_is_refused_for_a_moment_is_repeated(store: StoreServer) -> None:
    answers = [(503, "SlowDown"), None]
    store.refuse = lambda _method, _path: answers.pop(0) if answers else None
    place("again").write_text("text")
    assert store.keys("again") == ["again"]


def test_a_store_that_is_away_is_one_line_and_comes_back(store: StoreServer) -> None:
    place("before").write_text("text")
    store.stop()
    with pytest.raises(ConnectionError) as away:
        place("before").read_text()
    assert (away.value.strerror, away.value.filename) == ("the store cannot be reached", "s3://bucket/before")
    store.start()
    assert place("before").read_text() == "text"


def test_options_come_before_the_environment(store: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    options = {"endpoint_override": store.url, "secret_key": KEYS["AWS_SECRET_ACCESS_KEY"], "access_key": "mine"}
    found = place_of("s3://bucket/chosen", None, options)
    assert isinstance(found, RemotePath)
    found.write_text("text")
    assert store.keys("chosen") == ["chosen"]


def test_options_are_handed_to_stores_of_all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's classes are asked; no server is. Without options Arrow reads the URI."""
    from job_engine import stores

    given: list[tuple[object, ...]] = []
    for name in ("AzureFileSystem", "HadoopFileSystem"):
        monkeypatch.setattr(pyarrow.fs, name, lambda *args, **kinds: given.append((*args, kinds)), raising=False)
    azure, hdfs = "abfss://box@account.dfs.core.windows.net", "hdfs://me@host:8020"
    stores.open_store(azure, (("account_key", "YQ=="), ("retry", "3")))
    stores.open_store(hdfs, (("kerb_ticket", "/tmp/t"),))
    assert given == [
        ({"account_name": "account", "account_key": "YQ=="},),
        ("host", 8020, {"user": "me", "kerb_ticket": "/tmp/t"}),
    ]
    with pytest.raises(OSError, match="has no name of the machine or account that user belong to"):
        stores.open_store("hdfs://", (("user", "me"),))
