"""Certificates for services with TLS."""

import subprocess
from pathlib import Path

COMMAND = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost"


def with_certificate(folder: Path) -> tuple[str, str]:
    """Write a key and its own certificate into a folder; return gunicorn's options for them."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    command = [*COMMAND.split(), "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return f"--certfile={certificate}", f"--keyfile={key}"
