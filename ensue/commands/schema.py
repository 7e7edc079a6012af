"""`ensue schema`: print the JSON schema of deployment files."""

from __future__ import annotations

from pathlib import Path

from ensue.commands.output import print_content


def schema() -> None:
    """Print the JSON schema of deployment files, for editors."""
    import job_engine

    folder = Path(job_engine.__file__).parent
    print_content((folder / "settings" / "deployment.schema.json").read_text("utf-8"))
