"""All commands of the command line, in the order in which `ensue --help` shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ensue.commands.backtest import backtest, sweep
from ensue.commands.care import backup, compact, forget, move, rebucket, reprocess, restore
from ensue.commands.changes import control, deploy, diff, remove, replace, set_, shadow, undeploy
from ensue.commands.compile_ahead import compile_ahead, package
from ensue.commands.replay import funnel, match, replay, verify, why
from ensue.commands.run import run
from ensue.commands.status import plan, state, status
from ensue.commands.texts import check, explain, fmt, import_sql, list_queries, schema

COMMANDS: Mapping[str, Callable[..., None]] = {
    "check": check,
    "fmt": fmt,
    "explain": explain,
    "list": list_queries,
    "replay": replay,
    "why": why,
    "funnel": funnel,
    "backtest": backtest,
    "sweep": sweep,
    "match": match,
    "run": run,
    "plan": plan,
    "status": status,
    "compact": compact,
    "control": control,
    "deploy": deploy,
    "replace": replace,
    "undeploy": undeploy,
    "shadow": shadow,
    "diff": diff,
    "remove": remove,
    "state": state,
    "forget": forget,
    "backup": backup,
    "restore": restore,
    "rebucket": rebucket,
    "move": move,
    "reprocess": reprocess,
    "schema": schema,
    "verify": verify,
    "set": set_,
    "import": import_sql,
    "compile": compile_ahead,
    "package": package,
}
"""By name the function of each; its arguments and its docstring are what users give and read."""
