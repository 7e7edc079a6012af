"""The Python that Spark's JVM starts: it asks the fork server for a process, and waits for its end.

Where there is no server, or it refuses, it becomes the Python that it stands for. It runs without
`site` and imports little, so that it starts in some milliseconds.
"""

from __future__ import annotations

import os
import sys

SERVED = "pyspark."
"""What the server runs: modules of Spark whose names begin so."""


def main() -> None:
    """`forked_python.py SOCKET PYTHON [arguments of Python]`."""
    server, python, *arguments = sys.argv[1:]
    if len(arguments) > 1 and arguments[0] == "-m" and arguments[1].startswith(SERVED):
        _ask(server, arguments[1:])
    os.execv(python, [python, *arguments])  # noqa: S606 # it is to take our place


def _ask(server: str, arguments: list[str]) -> None:
    """Return if there is no process to be had; end with the process if there is."""
    import json
    import socket

    request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109 # `pathlib` takes long to import
    body = json.dumps(request).encode()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(server)
        socket.send_fds(connection, [len(body).to_bytes(4, "big")], [0, 1, 2])
        connection.sendall(body)
        is_served = connection.recv(1) == b"1"
    except OSError:
        is_served = False
    if is_served:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        while connection.recv(1):
            pass
        os._exit(0)
    connection.close()


if __name__ == "__main__":
    main()
