"""A listener's `ssl.*` keys, and the files that they name, turned into what `runtime/tls` works with.

Everything is PEM. Java's own key stores are refused, with the command that converts them.
"""

from __future__ import annotations

import re

from ottla.config.node import NodeConfig
from ottla.errors import KafkaError, StartupError
from ottla.runtime import Disk
from ottla.runtime.tls import TlsMaterial
from ottla.security.certificates import identity_change
from ottla.security.sasl import AuthenticationFailed

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE_CHARS = 64
_PEM_END = "-----END CERTIFICATE-----"


def material_of(config: NodeConfig, listener: str, disk: Disk, *, server_side: bool) -> TlsMaterial:
    """What the listener's keys say. Raises `StartupError`."""

    def text(key: str) -> str:
        value = config.listener_value(listener, key)
        return value if isinstance(value, str) else ""

    def entries(key: str) -> tuple[str, ...]:
        value = config.listener_value(listener, key)
        return value if isinstance(value, tuple) else ()

    store = ""
    if location := text("ssl.keystore.location"):
        _require_pem("ssl.keystore", text("ssl.keystore.type"), location)
        if text("ssl.keystore.key") or text("ssl.keystore.certificate.chain"):
            raise StartupError(
                "ssl.keystore.location and ssl.keystore.key are both set: remove one, a key comes from one place."
            )
        store = _read(disk, "ssl.keystore.location", location)
    elif text("ssl.keystore.key"):
        _require_pem("ssl.keystore", text("ssl.keystore.type"), "")
        store = f"{text('ssl.keystore.key')}\n{text('ssl.keystore.certificate.chain')}"
    trusted = text("ssl.truststore.certificates")
    if location := text("ssl.truststore.location"):
        _require_pem("ssl.truststore", text("ssl.truststore.type"), location)
        trusted = _read(disk, "ssl.truststore.location", location)
    elif trusted:
        _require_pem("ssl.truststore", text("ssl.truststore.type"), "")
    blocks = _blocks(store)
    keys = [block for kind, block in blocks if kind.endswith("PRIVATE KEY")]
    chain = [block for kind, block in blocks if kind == "CERTIFICATE"]
    if store and (len(keys) != 1 or not chain):
        raise StartupError(
            f"The key store of listener {listener} has {len(keys)} private keys and {len(chain)} certificates: it must "
            f"have one key, and the certificate chain that belongs to it, both as PEM."
        )
    if server_side and not store:
        raise StartupError(
            f"Listener {listener} asks for TLS but has no certificate: set ssl.keystore.type=PEM and "
            f"ssl.keystore.location to a file with the private key and the certificate chain."
        )
    return TlsMaterial(
        certificate_chain="\n".join(chain),
        private_key="\n".join(keys),
        key_password=text("ssl.key.password"),
        trusted="\n".join(block for kind, block in _blocks(trusted) if kind == "CERTIFICATE"),
        peer_certificate=_client_auth(config, listener) if server_side else "required",
        protocols=entries("ssl.enabled.protocols"),
        cipher_suites=entries("ssl.cipher.suites"),
        checks_host=text("ssl.endpoint.identification.algorithm").lower() == "https",
    )


def _client_auth(config: NodeConfig, listener: str) -> str:
    """Must clients show a certificate? Those who log in by SASL need none, unless their own listener says so
    (KIP-684)."""
    logs_in = config.security_protocols[listener] == "SASL_SSL"
    key = f"listener.name.{listener.lower()}.ssl.client.auth"
    value = config.listener_value(listener, "ssl.client.auth")
    return str(value) if not logs_in or key in config.properties else "none"


def check_replacement(config: NodeConfig, listener: str, old: TlsMaterial, new: TlsMaterial) -> None:
    """May `new` take the place of `old` while the node runs? Clients know a node by the names in its certificate, so
    those stay unless a key says otherwise. Raises `StartupError`."""
    from ssl import PEM_cert_to_DER_cert

    if bool(old.certificate_chain) != bool(new.certificate_chain):
        verb = "given" if new.certificate_chain else "left without"
        raise StartupError(f"Listener {listener} cannot be {verb} a certificate while the node runs: restart it.")
    if new.trusted and not old.trusted:
        raise StartupError(f"Listener {listener} cannot be given a trust store while the node runs: restart it.")
    if new.certificate_chain == old.certificate_chain:
        return
    try:
        ours, theirs = (
            PEM_cert_to_DER_cert(each.certificate_chain.partition(_PEM_END)[0] + _PEM_END) for each in (old, new)
        )
        refusal = identity_change(
            ours,
            theirs,
            allow_dn=bool(config.listener_value(listener, "ssl.allow.dn.changes")),
            allow_san=bool(config.listener_value(listener, "ssl.allow.san.changes")),
        )
    except (ValueError, AuthenticationFailed):
        raise StartupError(f"The new certificate of listener {listener} cannot be read.") from None
    if refusal is not None:
        raise StartupError(f"The new certificate of listener {listener} is another's: {refusal}.")


def _require_pem(prefix: str, kind: str, location: str) -> None:
    if kind.upper() == "PEM":
        return
    source = location or "store.p12"
    pem = f"{source.rpartition('.')[0] or source}.pem"
    first = (
        "" if kind.upper() == "PKCS12" else f"`keytool -importkeystore -srckeystore {source} -destkeystore store.p12 "
    )
    if first:
        first += "-deststoretype PKCS12`, then "
        source = "store.p12"
    wanted = "-nodes" if prefix == "ssl.keystore" else "-nokeys"
    raise StartupError(
        f"{prefix}.type is {kind}, and only PEM is read: convert it with {first}`openssl pkcs12 -in {source} {wanted} "
        f"-out {pem}`, and set {prefix}.type=PEM."
    )


def _read(disk: Disk, key: str, path: str) -> str:
    try:
        return disk.read_file(path).decode("ascii", errors="replace")
    except (OSError, KafkaError):
        raise StartupError(
            f"{key} names {path}, which cannot be read: is it there, and readable by this user?"
        ) from None


def _blocks(text: str) -> list[tuple[str, str]]:
    """The PEM blocks of `text`, by kind. Values of properties may have lost their line ends; they get them back."""
    found: list[tuple[str, str]] = []
    for block in _BLOCK.finditer(text):
        kind, body = block[1], block[2]
        if ":" not in body:  # Else it has headers, which need their lines, and surely has them.
            packed = "".join(body.split())
            body = "\n".join(packed[at : at + _LINE_CHARS] for at in range(0, len(packed), _LINE_CHARS))
        found.append((kind, f"-----BEGIN {kind}-----\n{body.strip()}\n-----END {kind}-----"))
    return found
