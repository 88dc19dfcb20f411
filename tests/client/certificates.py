"""Certificates that sign themselves, for servers and clients on this machine."""

from __future__ import annotations

import subprocess
from pathlib import Path


def self_signed(directory: Path) -> Path:
    """A certificate for 127.0.0.1 and its key, in one PEM file."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True, timeout=60
    )
    whole = directory / "whole.pem"
    whole.write_text(certificate.read_text() + key.read_text())
    return whole
