"""How clients come to the nodes of a test: in plain text, or by TLS, SASL, or both, with users and certificates of the
test's own.

The listener for clients is secured, and it alone: nodes, and the test's own conveniences, go on in plain text. The
certificates are made by the package cryptography, which is loaded where TLS is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.errors import StartupError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM)
DEFAULT_USERS = {"ottla": "ottla-secret"}

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_PASSWORD = re.compile(r"[^\"\\\s]{1,200}")
_DAYS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """`users` are passwords by name, known to PLAIN and SCRAM alike."""

    protocol: str = "PLAINTEXT"
    users: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, protocol: str, users: Mapping[str, str] | None) -> Security:
        """Raises `StartupError` for what cannot be."""
        if protocol not in PROTOCOLS:
            raise StartupError(f"security={protocol!r} is none of {', '.join(PROTOCOLS)}.")
        if not protocol.startswith("SASL_"):
            if users:
                raise StartupError("users log in by SASL: say security='SASL_PLAINTEXT' or 'SASL_SSL'.")
            return cls(protocol=protocol)
        known = dict(users or DEFAULT_USERS)
        for name, password in known.items():
            if not _NAME.fullmatch(name) or not _PASSWORD.fullmatch(password):
                raise StartupError(
                    f"The user {name!r} cannot be: use plain names, and passwords without spaces and quotes."
                )
        return cls(protocol=protocol, users=known)

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def scram(self) -> list[str]:
        """The users as `--add-scram` takes them."""
        return [
            f'{mechanism}=[name={name},password="{password}"]'
            for mechanism in SCRAM
            for name, password in self.users.items()
        ]

    def properties(
        self, listener: str, certificates: Certificates | None, settings: Mapping[str, str]
    ) -> dict[str, str]:
        """What a node is told besides."""
        found: dict[str, str] = {}
        if self.users:
            found["sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
            users = " ".join(f'user_{name}="{password}"' for name, password in self.users.items())
            found[f"listener.name.{listener.lower()}.plain.sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
            )
        if certificates is not None:
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": certificates.issue("node").store,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": certificates.authority,
            }
        asks_who = bool(self.users) or settings.get("ssl.client.auth") == "required"
        if "authorizer.class.name" in settings and asks_who:
            # Nodes and conveniences have no name; no client can come without one.
            known = [each for each in settings.get("super.users", "").split(";") if each]
            found["super.users"] = ";".join([*known, "User:ANONYMOUS"])
        return found

    def client_config(self, user: str | None, mechanism: str, certificates: Certificates | None) -> dict[str, str]:
        """What a client needs besides `bootstrap.servers`, under librdkafka's names. Raises `ValueError`."""
        if self.protocol == "PLAINTEXT":
            if user is not None:
                raise ValueError("Nobody logs in here: start the node with security='SASL_PLAINTEXT'.")
            return {}
        found = {"security.protocol": self.protocol}
        if certificates is not None:
            found["ssl.ca.location"] = certificates.authority
            if user is not None and not self.users:
                own = certificates.issue(user)
                found |= {"ssl.certificate.location": own.certificate, "ssl.key.location": own.key}
        if self.users:
            name = next(iter(self.users)) if user is None else user
            if name not in self.users:
                raise ValueError(f"There is no user {name}: there are {', '.join(self.users)}.")
            if mechanism not in MECHANISMS:
                raise ValueError(f"{mechanism} is none of {', '.join(MECHANISMS)}.")
            found |= {"sasl.mechanism": mechanism, "sasl.username": name, "sasl.password": self.users[name]}
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """Paths of files."""

    certificate: str
    key: str
    store: str
    """Both in one."""


class Certificates:
    """An authority of one test's own, and what it has issued. Raises `StartupError` without cryptography."""

    def __init__(self, directory: str) -> None:
        try:
            import cryptography  # noqa: F401
        except ImportError:
            message = "TLS in tests needs the package cryptography, which makes certificates: pip install cryptography."
            raise StartupError(message) from None
        self._directory = Path(directory)
        self._directory.mkdir(parents=True, exist_ok=True)
        self._issued: dict[str, Issued] = {}
        self._key: EllipticCurvePrivateKey = _new_key()
        self._certificate: Certificate = _certificate("Ottla's test authority", self._key.public_key(), self._key, None)
        self.authority = self._write("authority.pem", _pem(self._certificate))
        """The file with what clients are to trust."""

    def issue(self, name: str) -> Issued:
        """For the user or node of this name, on this machine. The same each time."""
        found = self._issued.get(name)
        if found is None:
            from cryptography.hazmat.primitives import serialization

            key = _new_key()
            certificate = _pem(_certificate(name, key.public_key(), self._key, self._certificate))
            private = key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            number = len(self._issued)
            found = self._issued[name] = Issued(
                certificate=self._write(f"{number}.crt", certificate),
                key=self._write(f"{number}.key", private),
                store=self._write(f"{number}.pem", private + certificate),
            )
        return found

    def _write(self, name: str, data: bytes) -> str:
        path = self._directory / name
        path.write_bytes(data)
        return str(path)


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _certificate(name: str, public: Any, signer: EllipticCurvePrivateKey, issuer: Certificate | None) -> Certificate:
    """Signed by `issuer`, or, if there is none, an authority's own."""
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer is not None:
        hosts = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _pem(certificate: Certificate) -> bytes:
    from cryptography.hazmat.primitives import serialization

    return certificate.public_bytes(serialization.Encoding.PEM)
