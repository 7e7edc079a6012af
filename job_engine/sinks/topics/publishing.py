"""Topics as sinks, and the publishers of this process: one per checkpoint and sink."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from job_engine.errors import Outage, OutageTooLong, Unreachable, patience_of
from job_engine.kafka_broker import (
    QUIET,
    AskedBroker,
    TopicChoice,
    broker_error,
    common_options,
    is_passing,
    kafka_client,
    servers,
)
from job_engine.kafka_settings import first_answer
from job_engine.local_path import LocalPath
from job_engine.sinks import kinds
from job_engine.sinks.kinds import Draft, MicroBatch, Result, Sink
from job_engine.sinks.topics.settings import TopicSink
from job_engine.sinks.topics.writing import ID, drafted_messages, each_message
from job_engine.threads import begun, within
from querylang.errors import InputError, did_you_mean
from querylang.printable import one_line, warn
from runtime.threads import in_threads

# Send the messages of micro-batches to a topic exactly once, by transactions.
#
# The messages of a micro-batch and the number of the next one are committed together: the number is
# the committed offset of a consumer group, which no consumer joins. A micro-batch that is repeated
# after a crash finds its number there, and sends nothing. A second run with the same checkpoint
# takes over the transactional id, after which the first one cannot write.

Found = TypeVar("Found")

ANSWER_WITHIN = 10.0
"""Seconds that a broker may take to answer, before it is asked again."""

STALLED = 5
"""Seconds in which no message is sent: then the broker does not answer."""

_STUCK = 30.0
"""Seconds after which a call of the client is given up: some do not return after an outage."""

_DEFAULTS = {
    "compression.type": "zstd",
    "linger.ms": "5",
    "partitioner": "murmur2_random",  # that of Java's clients: equal keys of all programs are in one partition
    "message.max.bytes": str(100 << 20),  # the topic decides how long messages may be
    "transaction.timeout.ms": "300000",
    "reconnect.backoff.max.ms": "2000",
    "retry.backoff.ms": "5",
}
"""Where a transaction begins right behind another one, the broker still writes the end of that one,
and asks to try again. It needs a millisecond or two, where the client would wait for a hundred.
"""


_SILENT = logging.getLogger("librdkafka")
_SILENT.setLevel(logging.CRITICAL + 1)
"""The client prints fatal errors whatever its log level is; we say them ourselves."""


_OF_COORDINATOR = "__transaction_state"
"""The topic of transaction coordinators: a broker makes it for the first transaction."""

NO_COORDINATOR = (
    f"the broker answers, but cannot make the topic `{_OF_COORDINATOR}` (one broker alone needs"
    " `transaction.state.log.replication.factor=1` and `transaction.state.log.min.isr=1`): there is no transaction"
    " coordinator"
)


def transactional_id(identity: str, name: str) -> str:
    """The transactional id of a sink, and the name of the group that has its progress."""
    return f"ensue-{identity}-{name}"


def may_not_write(sink: TopicSink) -> InputError:
    """What to raise where the login may not write messages to a topic, or not read it."""
    return InputError(
        f"sink '{sink.name}': Kafka at {servers(sink.client)}: no permission to write to the topic '{sink.topic}', or to"
        " read it: both are needed, because the number of the micro-batch is committed with the messages"
    )


class TopicPublisher:
    """The messages of one sink, on the driver.

    identity: names the checkpoint
    tell: takes lines about brokers that do not answer
    """

    def __init__(self, sink: TopicSink, identity: str, tell: Callable[[str], None] = warn) -> None:
        self._sink = sink
        self._name = transactional_id(identity, sink.name)
        self._where = f"Kafka at {servers(sink.client)}"
        self._outage = Outage(patience_of(sink.retry), lambda line: tell(f"sink '{sink.name}': {line}"))
        self._reason: Any = None
        self._refused: tuple[Any, bytes] | None = None
        self._sends_singly = False
        self._seconds_stalled = 0
        self._producer: Any = None
        self._consumer: Any = None
        self.published = 0
        self._by_others: int | None = None

    def open(self) -> None:
        """Take over the transactional id, and learn which micro-batch is `published` next."""
        package = kafka_client()
        self.close()
        single = {"batch.size": "1"} if self._sends_singly else {}
        settings = {**_DEFAULTS, **self._sink.client, **single, **QUIET, "transactional.id": self._name}
        callbacks = {"error_cb": self._take, "on_delivery": self._delivered, "delivery.report.only.error": True}
        group = {"group.id": self._name, "enable.auto.commit": "false", "isolation.level": "read_committed"}
        self._reason = None
        try:
            self._producer = package.Producer({**settings, **callbacks}, logger=_SILENT)
            self._consumer = package.Consumer({**common_options(self._sink.client), **group, **QUIET})
            self._answered(lambda: self._producer.init_transactions(ANSWER_WITHIN))
            (place,) = self._answered(lambda: self._consumer.committed([self._place(0)], timeout=ANSWER_WITHIN))
        except package.KafkaException as error:
            raise self._plain(error.args[0]) from error
        if place.error is not None:
            raise self._plain(place.error)
        self.published = max(place.offset, 0)
        self._by_others = self.published if self._by_others is None else self._by_others
        self._outage.over(self._where)

    def _reopen(self) -> None:
        """Connect anew, however often it takes."""
        while True:
            with suppress(_Stuck):
                self.open()
                return

    def close(self) -> None:
        """End the connections; an open transaction is aborted by the next run, or in time."""
        if self._consumer is not None:
            self._consumer.close()
        self._producer = self._consumer = None

    def publish(self, batch: int, drafts: Sequence[Draft]) -> None:
        """Send the messages of a micro-batch, unless that has been done.

        A run repeats all micro-batches that the one before has published and not committed.

        Raises InputError for what the broker refuses, and Unreachable.
        """
        if self._by_others is not None and batch < self._by_others:
            return
        while batch >= self.published:
            try:
                self._attempt(batch, drafts)
            except _Stuck:
                self._reopen()
        if self.published > batch + 1:
            raise self._taken_over()
        self._outage.over(self._where)

    def _attempt(self, batch: int, drafts: Sequence[Draft]) -> None:
        """One transaction, or what makes another one possible."""
        try:
            self._send(batch, drafts)
            self.published = batch + 1
        except kafka_client().KafkaException as error:
            self._recover(self._first_cause(error.args[0], batch), drafts)

    def _send(self, batch: int, drafts: Sequence[Draft]) -> None:
        self._refused, self._seconds_stalled = None, 0
        self._producer.begin_transaction()
        for draft in drafts:
            for table in drafted_messages(draft):
                for key, value, headers in each_message(table):
                    self._produce(key, value, headers)

        def note() -> None:
            self._note(batch, ANSWER_WITHIN)

        noted, is_noted = begun(note, "ensue-kafka"), False  # the broker takes messages and progress at the same time
        try:
            self._flush()
        finally:
            with suppress(TimeoutError):
                is_noted = noted.exception(_STUCK) is None
        attempts = iter([noted.result])

        def note_again() -> None:
            next(attempts, note)()

        if not is_noted:
            self._answered(note_again)
        self._answered(lambda: self._producer.commit_transaction(ANSWER_WITHIN))

    def _note(self, batch: int, seconds: float) -> None:
        """Make the number of the next micro-batch a part of the transaction."""
        group = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction([self._place(batch + 1)], group, seconds)

    def _produce(self, key: str | None, value: str, headers: list[tuple[str, bytes]]) -> None:
        while True:
            try:
                self._producer.produce(self._sink.topic, value, key, headers=headers)
            except BufferError:  # more messages wait than the client holds
                before = len(self._producer)
                self._served(lambda: self._producer.poll(0.5))
                self._note_progress(before - len(self._producer))
            else:
                return

    def _flush(self) -> None:
        """Wait until the broker has all messages, or has refused one."""
        left = len(self._producer)
        while left and self._refused is None:
            before, left = left, self._served(lambda: self._producer.flush(1.0))
            self._note_progress(before - left)
        if self._refused is not None:
            raise kafka_client().KafkaException(self._refused[0])
        if self._outage.is_on:
            raise _Stuck  # the client may not recover within a transaction

    def _served(self, call: Callable[[], int]) -> int:
        """What a call gives that runs callbacks, whose fatal errors the client hides or loses."""
        try:
            return call()
        except SystemError as error:
            package = kafka_client()
            code = package.KafkaError._FATAL  # noqa: SLF001  its name
            lost = package.KafkaException(package.KafkaError(code, "a fatal error of the client", fatal=True))
            raise error.__cause__ or lost from error

    def _note_progress(self, sent: int) -> None:
        """Notice that the broker has stopped to take messages."""
        if sent or self._refused is not None:
            self._seconds_stalled = 0
            return
        self._seconds_stalled += 1
        if self._seconds_stalled >= STALLED:
            if self._reason is None and not self._outage.is_on:
                self._refuse_deleted_topic()
            self._wait(self._reason, self._outage.note)

    def _refuse_deleted_topic(self) -> None:
        """Raise InputError where the broker answers but no longer has the topic.

        The client waits for such a topic as for a broker that does not answer.
        """
        try:
            known = self._producer.list_topics(timeout=1).topics
        except kafka_client().KafkaException:
            return
        if self._sink.topic not in known:
            raise InputError(
                f"sink '{self._sink.name}': {self._where}: the topic '{self._sink.topic}' does not exist any more."
                " Make it again and run the job again: it continues where it stopped"
            )

    def _first_cause(self, error: Any, batch: int) -> Any:
        """The error that has ended the transaction.

        What is called after that, or at the same time, may only say that the transaction has
        ended. The cause is then in the report of a message, or the client says it to the next call:
        it keeps the first error.
        """
        if not (error.fatal() or error.txn_requires_abort() or error.name() == _STATE):
            return error
        package = kafka_client()
        with suppress(package.KafkaException):
            self._served(lambda: self._producer.flush(1.0))
        if self._refused is not None and not error.fatal():
            return self._refused[0]
        try:
            _in_time(lambda: self._note(batch, 1.0))  # sends nothing any more
        except package.KafkaException as found:
            return error if found.args[0].name() == _STATE else found.args[0]
        return error

    def _recover(self, error: Any, drafts: Sequence[Draft]) -> None:
        """Make the next attempt possible; raises what makes it impossible."""
        if error.fatal():
            if not self._outage.is_on:
                raise self._plain(error) if error.name().endswith(_FORBIDDEN) else self._taken_over()
            self._reopen()  # the broker has given up our transaction while it did not answer
            return
        if is_passing(error) or error.name() in _REPEATABLE:
            try:
                self._answered(lambda: self._producer.abort_transaction(ANSWER_WITHIN))
            except kafka_client().KafkaException as found:
                if found.args[0].fatal() and not self._outage.is_on:
                    raise self._taken_over() from found
                self._reopen()  # this ends the transaction, too
            self._wait(error, self._outage.wait)
            return
        with suppress(kafka_client().KafkaException):  # readers would wait for the end of the transaction
            self._producer.abort_transaction(ANSWER_WITHIN)
        if self._refused is not None and error.name() in _TOO_LONG and not self._sends_singly:
            self._sends_singly = True  # a topic for short messages may refuse many that are sent together
            self._reopen()
            return
        raise self._plain(error) if self._refused is None else self._refusal(*self._refused, drafts)

    def _answered(self, ask: Callable[[], Found]) -> Found:
        """What a broker answers; it is asked again while it does not."""
        while True:
            try:
                return _in_time(ask)
            except kafka_client().KafkaException as found:
                error = found.args[0]
                if error.fatal() or error.txn_requires_abort() or not is_passing(error):
                    raise
                self._served(lambda: self._producer.poll(0))
                said = self._consumer.poll(0)
                if said is not None and said.error() is not None:
                    self._take(said.error())
                if self._reason is not None and self._reason.name().endswith(_FORBIDDEN):
                    raise self._plain(self._reason) from found  # the client asks again for ever
                self._wait(error if self._reason is None else self._reason, self._outage.wait)
            except _Stuck:
                self._wait(self._reason, self._outage.note)
                raise

    def _wait(self, error: Any, wait: Callable[[str], None]) -> None:
        """Note an outage; `error`: None = nothing is known but that no answer comes."""
        if error is None:
            text = f"{self._where}: the broker does not answer"
        elif error.name() == "_TIMED_OUT" and self._has_no_coordinator():
            text = f"{self._where}: {NO_COORDINATOR}"
        else:
            text = str(broker_error(self._sink.client, error))
        try:
            wait(text)
        except OutageTooLong as found:
            raise Unreachable(
                f"sink '{self._sink.name}': {found}. Run the job again: it continues where it stopped"
            ) from found

    def _has_no_coordinator(self) -> bool:
        """Whether the broker answers, and has not been able to make what transactions need."""
        try:
            return _OF_COORDINATOR not in self._producer.list_topics(timeout=1).topics
        except kafka_client().KafkaException:
            return False

    def _take(self, error: Any) -> None:
        """What the client says of connections."""
        self._reason = error

    def _delivered(self, error: Any, message: Any) -> None:
        """Called for messages that were not delivered; some only because others were not."""
        if error is not None and self._refused is None and not error.name().startswith(_CONSEQUENCES):
            self._refused = (error, message.value() or b"")

    def _place(self, offset: int) -> Any:
        return kafka_client().TopicPartition(self._sink.topic, 0, offset)

    def _plain(self, error: Any) -> InputError:
        begin, name = f"sink '{self._sink.name}'", error.name()
        if name == "TOPIC_AUTHORIZATION_FAILED":
            return may_not_write(self._sink)
        if name in ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"):
            what = "group" if name.startswith("GROUP") else "transactional id"
            return InputError(f"{begin}: {self._where}: no permission for the {what} '{self._name}'")
        return InputError(f"{begin}: {broker_error(self._sink.client, error)}")

    def _refusal(self, error: Any, value: bytes, drafts: Sequence[Draft]) -> InputError:
        """The line for a message that the broker does not take."""
        if error.name() not in _TOO_LONG:
            return self._plain(error)
        return InputError(
            f"sink '{self._sink.name}': a message of {len(value)} bytes is longer than the topic '{self._sink.topic}'"
            f" takes ({ID} {one_line(_identity(value, drafts))}). Raise its 'max.message.bytes' and run the job again:"
            " it continues where it stopped"
        )

    def _taken_over(self) -> InputError:
        return InputError(
            f"sink '{self._sink.name}': another run of this job has begun to write to the topic '{self._sink.topic}',"
            f" or a transaction took longer than 'kafka.transaction.timeout.ms' ({self._name})"
        )


class _Stuck(Exception):
    """The connection is given up: another one takes over its transaction."""


def _in_time(call: Callable[[], Found]) -> Found:
    """What a call gives, if it returns at all; raises _Stuck."""
    try:
        return within(_STUCK, call, "ensue-kafka")
    except TimeoutError:
        raise _Stuck from None


_STATE = "_STATE"
"""The name of the error of a call that is not possible at this time: never a cause."""

_CONSEQUENCES = ("_PURGE", _STATE)
"""How names of errors begin that messages have because of other ones."""

_FORBIDDEN = "AUTHORIZATION_FAILED"
"""How names of errors end where a login has no permission."""

_TOO_LONG = ("MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")

_REPEATABLE = ("INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS", "INVALID_PRODUCER_ID_MAPPING", "UNKNOWN_PRODUCER_ID")
"""Errors of transactions that the broker has given up: the next one works."""


def _identity(value: bytes, drafts: Sequence[Draft]) -> str:
    """What identifies a message with this value."""
    for draft in drafts:
        for table in drafted_messages(draft):
            for _, text, headers in each_message(table):
                if text.encode() == value:
                    return dict(headers)[ID].decode()
    return "?"


_NEEDED = frozenset({"READ", "WRITE"})


class Publishing(kinds.Publishing):
    """Sinks of Kafka; see `kinds.Publishing`."""

    def __init__(self) -> None:
        self._publishers: dict[tuple[str, str], TopicPublisher] = {}

    def refuse_unwritable(self, sink: Sink, parts: Mapping[str, pa.Schema]) -> None:  # noqa: ARG002
        """Raise InputError for a topic that is missing or may not be written, or without broker."""
        refuse_unwritable(sink.own)

    def publish(self, batch: MicroBatch, drafts: Sequence[tuple[Sink, Sequence[Draft]]]) -> None:
        """Send the messages of a micro-batch: to several topics at the same time."""
        tasks = [(self._publisher(batch.identity, sink.own), own) for sink, own in drafts]
        in_threads(lambda task: task[0].publish(batch.number, task[1]), tasks, len(tasks))
        for draft in (draft for _, own in drafts for draft in own if draft.path):
            LocalPath(draft.path).unlink(missing_ok=True)

    def _publisher(self, identity: str, own: TopicSink) -> TopicPublisher:
        name = (identity, own.name)
        if name not in self._publishers:
            publisher = TopicPublisher(own, identity)
            publisher.open()
            self._publishers[name] = publisher
        return self._publishers[name]

    def remove_leftovers(self, sink: Sink, batch: MicroBatch, written: Collection[str]) -> None:
        """Nothing is left: messages of transactions that were not committed are not read."""

    def results(self, sink: Sink) -> Iterator[Result]:  # noqa: ARG002
        """None: who wrote a message of a topic cannot be asked."""
        return iter(())

    def last_published(self, sink: Sink, identity: str) -> int:
        """As `kinds.Publishing.last_published`."""
        return self._publisher(identity, sink.own).published - 1

    def with_drafts(self, sink: Sink, folder: str) -> Sink:
        """As `kinds.Publishing.with_drafts`."""
        own: TopicSink = sink.own
        return replace(sink, own=replace(own, drafts=folder))

    def begin(self, identity: str, sinks: Sequence[Sink], newest: int) -> None:
        """Connect for a new run of a job; raises InputError where it may not write."""
        self.end(identity)
        for sink in sinks:
            own: TopicSink = sink.own
            published = self._publisher(identity, own).published
            if published > newest + 1:
                raise InputError(
                    f"the topic '{own.topic}' of the sink '{own.name}' has the results of micro-batch"
                    f" {published - 1}, but the checkpoint has reached {'none' if newest < 0 else newest}: it was"
                    " restored from an older copy, and would write results a second time. Restore the newest"
                    " checkpoint, or begin with a new checkpoint and a new topic"
                )

    def end(self, identity: str) -> None:
        """End the connections of a job's run."""
        for name in [name for name in self._publishers if name[0] == identity]:
            self._publishers.pop(name).close()


PUBLISHING = Publishing()


def refuse_unwritable(own: TopicSink) -> None:
    """Raise InputError for a topic that is missing or may not be written, or without broker."""

    def ask(broker: AskedBroker) -> None:
        if own.topic not in broker.listing(TopicChoice(names=(own.topic,))).topics:
            hint = did_you_mean(own.topic, broker.listing(TopicChoice(pattern=".*")).topics)
            raise InputError(f"sink '{own.name}': no such topic: '{own.topic}'{hint}")
        # Nothing is sent before the first result: a job would run for long until it is refused.
        rights = broker.rights(own.topic)
        if rights is not None and not rights >= _NEEDED:
            raise may_not_write(own)

    first_answer(f"sink '{own.name}'", own.client, own.retry, ask)
