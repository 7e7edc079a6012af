"""The journal as files and texts: of a checkpoint, and of commands.

No value that may be secret is in them. For one that a deployment takes from a variable or a file,
the text of the deployment is written, `${TOKEN}`, and a salted hash. A later start reads the
variable again. A plan with such values is written without them, and made again when it is read.

The journal is replaced as a whole, so that a change is done or not. What the files of queries and
values said when they were last applied is kept beside it, so that a later start can tell what has
changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, NotRequired, TypedDict

from job_engine.chance import new_salt
from job_engine.deployment import Deployment
from job_engine.durable_files import RESTORE, JobFile, indented
from job_engine.job.checkpoint.checkpoint_record import FILES_NAME
from job_engine.job.checkpoint.job_folder import JobFolder, Reached
from job_engine.job.journal import (
    Asked,
    EndedRoute,
    HiddenPlan,
    HistoryCommand,
    HistoryName,
    InstancesCommand,
    Journal,
    JournalEpoch,
    Mistake,
    Taken,
    Taking,
    instance_words,
)
from job_engine.job.plan_rules import finishing, refuse_mixtures
from job_engine.place import Place
from job_engine.wire.gathering import Gathered
from job_engine.wire.plan_text import is_packed, load_alone, load_plan, plan_text, template_text
from job_engine.wire.program import History, Program
from querylang.changes import Moment
from querylang.errors import InputError, counted
from querylang.merging import FileChange
from querylang.parameters import converted
from querylang.plan.model import Plan, QueryPlan
from querylang.running import Changed, Running, RunningQuery, Version
from runtime.json_reader import DamagedJson, json_of_text
from runtime.json_shapes import Count
from runtime.reading import ControlError, parse_change

JOURNAL_VERSION = 5
"""Written where there are many queries, which are packed. Version 4 is written where texts that
routed have ended. Version 3 is written where queries feed each other,
or have. Version 2 is written where values may be secret.
Other journals are of version 1, which older releases read, too."""

FILES_VERSION = 3
"""Written where there are many queries, which are packed. Version 2 is written where values may be
secret. Other files are of version 1, which older releases read, too."""

HISTORY, INSTANCES, FILES = "DeployWithHistory", "CopyInstances", "ApplyFiles"
"""The names of texts that users cannot send: no control event has them."""

Resolve = Callable[[str], Any]
"""The value that a text with variables stands for; raises InputError if one is not set."""


_Masked = TypedDict("_Masked", {"from": str, "salt": str, "hash": str})

PlainValue = str | int | float | bool | None | list[str | int | float | bool] | _Masked
"""The shape of a value of a parameter, as `masked` gives it."""


def no_variables(written: str) -> Any:
    """Where there is no deployment."""
    raise InputError(f"nobody knows what '{written}' stands for")


def read_journal(deployment: Deployment) -> Journal | None:
    """The journal of a checkpoint; None = its queries have never changed. Raises InputError."""
    file = journal_file(deployment.checkpoint)
    found = file.read()
    if found is None:
        return None
    with file.checking():
        return journal_of_plain(found, deployment.value_of)


def reached_journal(deployment: Deployment, reached: Reached | None = None) -> Journal | None:
    """The journal as a run continues with it, without the epochs that have ended in all buckets.

    They are in its file until the next change is written. Nothing may begin in one of them, and
    their queries have no records any more that are still to be processed.

    reached: where the job is; None = it is read
    """
    journal = read_journal(deployment)
    if journal is None:
        return None
    now = reached or JobFolder(deployment.checkpoint).reached()
    return journal.settled(now.progress, now.batches.ended)


def how_taken(
    deployment: Deployment, program: Program, journal: Journal, moment: Moment, reached: Reached, command: int = 0
) -> Taking:
    """How a change of a job is taken behind its last micro-batch.

    program: what the files say
    command: as of `Taking`; 0 = it is only foretold
    """
    finish = finishing(deployment, feeds=program.feeds and journal.is_fed)
    return Taking(
        command,
        moment,
        reached.batches.ended,
        finish,
        program.sources,
        program.crosses,
        reached.progress.epoch,
        partial(refuse_mixtures, deployment),
    )


def write_journal(checkpoint: Place, journal: Journal) -> None:
    """Replace the journal; it survives a power cut."""
    journal_file(checkpoint).write(journal_to_plain(journal))
    _remember(journal.running.queries)


def journal_file(checkpoint: Place) -> JobFile[PlainJournal]:
    """The journal, inside a checkpoint."""
    file, versions = checkpoint / "ensue" / "program.json", range(1, JOURNAL_VERSION + 1)
    return JobFile(file, PlainJournal, RESTORE, versions, text=indented, packs=JOURNAL_VERSION)


def read_files(deployment: Deployment) -> Running | None:
    """What the files said; None = nobody has written it down. Raises InputError."""
    file = _files_file(deployment.checkpoint)
    found = file.read()
    if found is None:
        return None
    with file.checking():
        return running_of_plain(found["queries"], deployment.value_of)


def write_files(checkpoint: Place, files: Running) -> None:
    """Write down what the files say; it survives a power cut."""
    queries = running_to_plain(files)
    version = FILES_VERSION if is_packed(queries["plan"]) else 2 if has_hidden(files) else 1
    _files_file(checkpoint).write({"version": version, "queries": queries})


def _files_file(checkpoint: Place) -> JobFile[_FilesFile]:
    file, versions = checkpoint / "ensue" / FILES_NAME, range(1, FILES_VERSION + 1)
    return JobFile(file, _FilesFile, RESTORE, versions, text=indented, packs=FILES_VERSION)


def asked_of_text(text: str, resolve: Resolve = no_variables) -> Asked:
    """What the text of a command asks for; `resolve`: gives values that the text does not have.

    Raises DamagedJson, and InputError if the variable of a value is not set.
    """
    history = history_of_text(text)
    if history is not None:
        return history
    if _is(text, INSTANCES):
        return json_of_text(text, _InstancesText)["CopyInstances"]
    if _is(text, FILES):
        data = json_of_text(text, _FilesText)["ApplyFiles"]
        before, files = running_of_plain(data["before"], resolve), running_of_plain(data["files"], resolve)
        return FileChange(before, files, data["returns"])
    try:
        change = parse_change(text)
    except ControlError as error:
        return Mistake(str(error))
    return Mistake(f"{text.split('(', maxsplit=1)[0]} does not change queries") if change is None else change


def history_of_text(text: str) -> HistoryCommand | None:
    """The inverse of `history_text`; None = another command. Raises DamagedJson."""
    return json_of_text(text, _HistoryText)["DeployWithHistory"] if _is(text, HISTORY) else None


def history_text(command: HistoryCommand) -> str:
    """The inverse of `history_of_text`."""
    return json.dumps({HISTORY: asdict(command)})


def instances_text(command: InstancesCommand) -> str:
    """The text of a command that `asked_of_text` reads."""
    return json.dumps({INSTANCES: asdict(command)})


def files_text(change: FileChange) -> str:
    """A change of the files, as the text of a command."""
    queries = {"before": running_to_plain(change.before), "files": running_to_plain(change.files)}
    return json.dumps({FILES: {**queries, "returns": change.returns}})


def _is(text: str, name: str) -> bool:
    return text.startswith(f'{{"{name}"')


def journal_to_plain(journal: Journal) -> dict[str, Any]:
    """The journal as files may hold it: without values that may be secret."""
    is_hiding = has_hidden(journal.running) or any(epoch.hidden for epoch in journal.epochs)
    is_gathered = journal.gathered is not None
    running, epochs = running_to_plain(journal.running), [_epoch_to_plain(epoch) for epoch in journal.epochs]
    has_many = any(is_packed(item["plan"]) for item in (running, *epochs))
    return {
        "version": (
            JOURNAL_VERSION if has_many else 4 if journal.ended else 3 if is_gathered else 2 if is_hiding else 1
        ),
        "running": running,
        "since": dict(journal.since),
        "epochs": epochs,
        "taken": [asdict(item) for item in journal.taken],
        **({"gathered": journal.gathered} if is_gathered else {}),
        **({"ended": [asdict(item) for item in journal.ended]} if journal.ended else {}),
    }


def _epoch_to_plain(epoch: JournalEpoch) -> dict[str, Any]:
    plain = {
        "number": epoch.number,
        "plan": plan_text(_without_hidden(epoch)),
        "begins": epoch.begins,
        "heirs": epoch.heirs,
        "history": None if epoch.history is None else asdict(epoch.history),
        "behind": epoch.behind,
    }
    return plain | ({"hidden": [hidden_to_plain(item) for item in epoch.hidden]} if epoch.hidden else {})


def _without_hidden(epoch: JournalEpoch) -> Plan:
    """The plan without the instances that have values which may be secret."""
    places = {item.place for item in epoch.hidden}
    queries = (query for place, query in enumerate(epoch.plan.queries) if place not in places)
    return replace(epoch.plan, queries=tuple(queries))


def journal_of_plain(data: PlainJournal, resolve: Resolve = no_variables) -> Journal:
    """The inverse of `journal_to_plain`, without its version; raises DamagedJson.

    Raises InputError if the variable of a value is not set.
    """
    if not data["epochs"]:
        raise DamagedJson("'epochs': expected at least one")
    epochs = tuple(_epoch_of_plain(item, resolve) for item in data["epochs"])
    running, gathered = running_of_plain(data["running"], resolve), data.get("gathered")
    return Journal(running, data["since"], epochs, data["taken"], gathered, data.get("ended", ()))


def _epoch_of_plain(data: _PlainEpoch, resolve: Resolve) -> JournalEpoch:
    hidden = tuple(hidden_of_plain(item, resolve) for item in data.get("hidden", ()))
    plan, found = load_plan(data["plan"]), data.get("history")
    history = None if found is None else History(found["folder"], found["titles"])
    queries = list(plan.queries)
    for item in sorted(hidden, key=lambda item: item.place):
        queries.insert(item.place, item.plan)
    plan = replace(plan, queries=tuple(queries))
    return JournalEpoch(data["number"], plan, hidden, data["begins"], data["heirs"], history, data.get("behind"))


def hidden_to_plain(item: HiddenPlan) -> dict[str, Any]:
    """The instance as a file may have it."""
    return {
        "place": item.place,
        "template": plan_text(Plan((), (item.template,))),
        "instance": item.instance,
        "values": masked(item.values, item.hidden),
    }


def hidden_of_plain(data: PlainHidden, resolve: Resolve) -> HiddenPlan:
    """The inverse of `hidden_to_plain`; raises DamagedJson, InputError if a variable is not set."""
    templates = load_alone(data["template"]).queries
    if len(templates) != 1:
        raise DamagedJson(f"'template': expected the plan of one query, found {len(templates)}")
    template = templates[0]
    where = instance_words(template.name, data["instance"])
    values, hidden = unmasked(data["values"], template, where, resolve)
    return HiddenPlan(data["place"], template, data["instance"], values, hidden)


def running_to_plain(running: Running) -> dict[str, Any]:
    """The queries as files may hold them: without values that may be secret."""
    plain = _to_plain(
        running, [{name: _masked_values(query, name) for name in query.instances} for query in _all(running)]
    )
    return plain | {"annotated": running.is_annotated}


def running_of_plain(data: PlainRunning, resolve: Resolve = no_variables) -> Running:
    """The inverse of `running_to_plain`; raises DamagedJson.

    Raises InputError if the variable of a value is not set.
    """
    plan = load_plan(data["plan"])
    count = sum(len(item["versions"]) for item in data["queries"])
    if count != len(plan.queries) or not all(item["versions"] for item in data["queries"]):
        raise DamagedJson(f"its plan has {counted(len(plan.queries), 'text')} of queries, and its list {count}")
    templates = iter(plan.queries)
    queries = {}
    for item in data["queries"]:
        versions = tuple(Version(next(templates), *bounds) for bounds in item["versions"])
        instances: dict[str, dict[str, Any]] = {}
        hidden: dict[str, dict[str, str]] = {}
        for name, values in item["instances"].items():
            where = instance_words(item["name"], name)
            instances[name], shown = unmasked(values, versions[-1].template, where, resolve)
            hidden |= {name: shown} if shown else {}
        made = RunningQuery(versions, instances, item["origin"], item["value_origins"], hidden)
        known = _RUNNING.get(made.name)
        queries[made.name] = known if known == made else made
    _remember(queries)
    return Running(plan.events, queries, data["editions"], plan.stopped, data.get("annotated", False))


_RUNNING: dict[str, RunningQuery] = {}
"""By name, the queries that were read or written last: they know their plans."""


def _remember(queries: Mapping[str, RunningQuery]) -> None:
    if len(_RUNNING) > 2 * len(queries) + _FEW:
        _RUNNING.clear()
    _RUNNING.update(queries)


_FEW = 1_000


def is_same(one: Running, other: Running) -> bool:
    """Whether the queries and their values are the same."""
    return one == other or _compared(one) == _compared(other)  # the first is fast, and nearly always true


def has_hidden(running: Running) -> bool:
    """Whether some values may be secret."""
    return any(shown for query in _all(running) for shown in query.hidden.values())


def _compared(running: Running) -> dict[str, Any]:
    """For comparison only: it has the values."""
    plain = _to_plain(
        running, [{name: _kept_values(values) for name, values in q.instances.items()} for q in _all(running)]
    )
    return plain | {"hidden": [{name: shown for name, shown in q.hidden.items() if shown} for q in _all(running)]}


def _kept_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.kept if isinstance(value, Changed) else value for name, value in values.items()}


def _all(running: Running) -> Sequence[RunningQuery]:
    return list(running.queries.values())


def _masked_values(query: RunningQuery, name: str) -> dict[str, Any]:
    return masked(query.instances[name], query.hidden.get(name, {}))


def _to_plain(running: Running, instances: Sequence[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """`instances`: by query, what is written of the values of its instances."""
    templates: Sequence[Version] = [version for query in running.queries.values() for version in query.versions]
    plan = Plan(running.events, tuple(version.template for version in templates), running.stopped)
    return {
        "plan": template_text(plan),
        "queries": [
            {
                "name": query.name,
                "versions": [[version.starts, version.ends, version.done] for version in query.versions],
                "instances": own,
                "origin": query.origin,
                "value_origins": dict(query.value_origins),
            }
            for query, own in zip(running.queries.values(), instances, strict=True)
        ],
        "editions": dict(running.editions),
    }


def masked(values: Mapping[str, Any], hidden: Mapping[str, str]) -> dict[str, Any]:
    """The values of an instance as a file may have them."""
    return {name: _masked(value, hidden[name]) if name in hidden else value for name, value in values.items()}


def _masked(value: Any, written: str) -> Mapping[str, str]:
    if isinstance(value, Changed):
        return value.kept
    salt = new_salt()
    return {"from": written, "salt": salt, "hash": _hashed(value, salt)}


def _hashed(value: Any, salt: str) -> str:
    return hashlib.blake2b(repr(value).encode("utf-8", "surrogatepass"), key=salt.encode(), digest_size=16).hexdigest()


def unmasked(
    values: Mapping[str, Any], template: QueryPlan, where: str, resolve: Resolve
) -> tuple[dict[str, Any], dict[str, str]]:
    """The inverse of `masked`, and what is shown in place of the values.

    where: of messages, the instance

    Raises InputError if a variable is not set.
    """
    hidden = {name: value["from"] for name, value in values.items() if isinstance(value, Mapping)}
    return {name: _unmasked(name, value, template, where, resolve) for name, value in values.items()}, hidden


def _unmasked(name: str, value: Any, template: QueryPlan, where: str, resolve: Resolve) -> Any:
    if not isinstance(value, Mapping):
        return value
    try:
        found = resolve(value["from"])
    except InputError as error:
        raise InputError(f"the value of '{name}' of {where} is not kept in the checkpoint: {error}") from None
    for parameter in template.parameters:
        if parameter.name == name:
            found = converted(parameter, found)
    return found if _hashed(found, value["salt"]) == value["hash"] else Changed(found, value)


class _PlainQuery(TypedDict):
    name: str
    versions: list[tuple[int | None, int | None, int | None]]
    instances: dict[str, dict[str, PlainValue]]
    origin: str
    value_origins: dict[str, str]


class PlainRunning(TypedDict):
    """The queries, as `running_to_plain` gives them."""

    plan: str
    queries: list[_PlainQuery]
    editions: dict[str, int]
    annotated: NotRequired[bool]


class PlainHidden(TypedDict):
    """An instance, as `hidden_to_plain` gives it."""

    place: Count
    template: str
    instance: str
    values: dict[str, PlainValue]


class _FilesFile(TypedDict):
    queries: PlainRunning


class _PlainHistory(TypedDict):
    folder: HistoryName
    titles: tuple[str, ...]


class _PlainEpoch(TypedDict):
    number: Count
    plan: str
    begins: int | None
    heirs: tuple[tuple[str, str], ...]
    history: NotRequired[_PlainHistory | None]
    behind: NotRequired[tuple[int, int, int] | None]
    hidden: NotRequired[list[PlainHidden]]


class PlainJournal(TypedDict):
    """A journal, as `journal_to_plain` gives it, without its version."""

    running: PlainRunning
    since: dict[str, int]
    epochs: list[_PlainEpoch]
    taken: tuple[Taken, ...]
    gathered: NotRequired[Gathered | None]
    ended: NotRequired[tuple[EndedRoute, ...]]


class _HistoryText(TypedDict):
    DeployWithHistory: HistoryCommand


class _InstancesText(TypedDict):
    CopyInstances: InstancesCommand


class _PlainChange(TypedDict):
    before: PlainRunning
    files: PlainRunning
    returns: bool


class _FilesText(TypedDict):
    ApplyFiles: _PlainChange
