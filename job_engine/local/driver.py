"""The driver of jobs on one machine: processes of its own, and no Spark."""

from __future__ import annotations

import os

from job_engine.deployment import Deployment
from job_engine.errors import plain_error
from job_engine.job.driver import Driver, Machine
from job_engine.local.pool import Pool
from querylang.errors import InputError
from runtime.compiling.files import VARIABLE
from runtime.threads import thread_count

_early: dict[tuple[str, ...], Pool] = {}
"""The pool that was started early, by the variables of its environment."""


class LocalDriver(Driver):
    """Starts workers; see `Driver`."""

    def refuse_missing(self) -> None:
        """Nothing is missing: Ensue needs what it runs on for everything else, too."""

    def start_early(self, deployment: Deployment, *, runs: bool = True) -> None:
        """Start the process that workers fork from: it imports while this one does."""
        if runs and not _early:
            variables = _variables(deployment)
            _early[tuple(variables.values())] = Pool(thread_count(), variables)

    def find_tables(self, deployment: Deployment, given: object) -> Deployment:
        """There is no catalog: a deployment file that names tables is refused already."""
        if given is not None:
            raise InputError(f"{deployment.file}: `engine: local` runs without a session of Spark, and takes none")
        return deployment

    def open(self, deployment: Deployment, given: object = None, *, runs: bool = True) -> Machine:  # noqa: ARG002
        """A worker for each core."""
        from job_engine.local.machine import LocalMachine

        if not runs:
            return LocalMachine(None)
        variables = _variables(deployment)
        name = tuple(variables.values())
        return LocalMachine(_early.pop(name) if name in _early else Pool(thread_count(), variables))

    def plain_error(self, error: Exception) -> Exception:
        """As `Driver.plain_error`: workers have said what they know."""
        return plain_error(error)


def _variables(deployment: Deployment) -> dict[str, str]:
    """Of the environment of workers, beside those of this process."""
    archive = deployment.kernels
    return {} if archive is None or VARIABLE in os.environ else {VARIABLE: str(archive)}


DRIVER = LocalDriver()
