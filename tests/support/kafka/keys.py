"""A key and its certificate for servers on loopback."""

from __future__ import annotations

import subprocess
from pathlib import Path


def made_keys(folder: Path) -> tuple[Path, Path]:
    """The certificate; and a file with the key, too."""
    key, certificate, both = (folder / f"{name}.pem" for name in ("key", "certificate", "both"))
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    both.write_text(key.read_text() + certificate.read_text())
    return certificate, both
