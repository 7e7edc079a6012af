"""`python -m ensue`: the command line."""

from __future__ import annotations

from ensue.cli import main

if __name__ == "__main__":
    main()
