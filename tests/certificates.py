"""A certificate authority of the tests' own, by the `openssl` command: small keys on a curve, made in milliseconds."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Issued(NamedTuple):
    key: Path
    certificate: Path
    store: Path
    """Both in one file, as `ssl.keystore.location` wants them."""


class Authority:
    """Keeps what it makes under `directory`; `certificate` is what others trust."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = directory / f"{name}.key"
        self.certificate = directory / f"{name}.pem"
        _openssl("req", "-x509", *_NEW_KEY, "-keyout", self._key, "-out", self.certificate, "-subj", f"/CN={name}",
                 "-days", "10")  # fmt: skip

    def issue(self, name: str, *, subject: str = "", names: str = "DNS:localhost,IP:127.0.0.1") -> Issued:
        """A certificate for `subject` (`/CN=name` unless said), good for the hosts in `names`."""
        key, request, certificate = (self._directory / f"{name}.{suffix}" for suffix in ("key", "csr", "crt"))
        extensions = self._directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n")
        _openssl("req", *_NEW_KEY, "-keyout", key, "-out", request, "-subj", subject or f"/CN={name}", "-utf8",
                 "-multivalue-rdn")  # fmt: skip
        _openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial",
                 "-out", certificate, "-days", "10", "-extfile", extensions)  # fmt: skip
        store = self._directory / f"{name}.store.pem"
        store.write_text(key.read_text() + certificate.read_text())
        return Issued(key, certificate, store)


def der(certificate: Path) -> bytes:
    return _openssl("x509", "-in", certificate, "-outform", "DER")


def _openssl(*arguments: str | Path) -> bytes:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
