"""`--add-scram`: users that a cluster knows from its first record on, as kafka-storage writes them (KIP-900).

SCRAM-SHA-256=[name=alice,password=secret,iterations=8192]
SCRAM-SHA-512=[name=alice,salt="base64",saltedpassword="base64",iterations=8192]
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING

from ottla.errors import StartupError
from ottla.metadata.records import MetadataRecord
from ottla.security.scram import ALGORITHMS, ITERATIONS_MAX, ITERATIONS_MIN, NUMBERS, credential_of, salted_password

if TYPE_CHECKING:
    from ottla.wire.messages.user_scram_credential_record import UserScramCredentialRecord

_ENTRY = re.compile(r"(SCRAM-SHA-(?:256|512))=\[(.*)\]", re.DOTALL)
_OPTION = re.compile(r'\s*([a-z]+)=(?:"((?:[^"])*)"|([^,"]*))\s*(?:,|$)')
_OPTIONS = {"name", "password", "salt", "saltedpassword", "iterations"}
_SALT_BYTES = 24


def scram_records(entries: Iterable[str], random: Random) -> list[MetadataRecord]:
    """What the flags say. Raises `StartupError`, which never repeats a password."""
    found: dict[tuple[str, int], MetadataRecord] = {}
    for entry in entries:
        record = _record(entry, random)
        if (record.name, record.mechanism) in found:
            raise StartupError(f"--add-scram names user {record.name} twice with one mechanism")
        found[record.name, record.mechanism] = MetadataRecord(record, 0)
    return list(found.values())


def _record(entry: str, random: Random) -> UserScramCredentialRecord:
    from ottla.wire.messages.user_scram_credential_record import UserScramCredentialRecord

    shape = _ENTRY.fullmatch(entry.strip())
    if shape is None:
        raise StartupError("--add-scram must be of the form SCRAM-SHA-256=[name=USER,password=PASSWORD]")
    mechanism = shape[1]
    options = _parse(shape[2])
    name = options.get("name", "")
    if not name:
        raise StartupError("--add-scram needs the name of the user: name=USER")
    if ("password" in options) == ("saltedpassword" in options):
        raise StartupError(f"--add-scram of user {name} needs either password or saltedpassword")
    if "saltedpassword" in options and "salt" not in options:
        raise StartupError(f"--add-scram of user {name} has a salted password, and needs its salt too")
    text = options.get("iterations", str(ITERATIONS_MIN))
    iterations = int(text) if text.isdecimal() and len(text) < 10 else 0
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise StartupError(f"--add-scram of user {name}: iterations must be from {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    salt = _decoded(name, options["salt"]) if "salt" in options else random.randbytes(_SALT_BYTES)
    algorithm = ALGORITHMS[mechanism]
    if "password" in options:
        salted = salted_password(options["password"], salt, iterations, algorithm)
    else:
        salted = _decoded(name, options["saltedpassword"])
    credential = credential_of(salted, salt, iterations, algorithm)
    return UserScramCredentialRecord(
        name=name,
        mechanism=NUMBERS[mechanism],
        salt=salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=iterations,
    )


def _parse(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    position = 0
    while position < len(text):
        found = _OPTION.match(text, position)
        if found is None or found[1] not in _OPTIONS or found[1] in options:
            raise StartupError(f"--add-scram takes {', '.join(sorted(_OPTIONS))}, each once, with commas between them")
        options[found[1]] = found[2] if found[2] is not None else found[3].strip()
        position = found.end()
    return options


def _decoded(name: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise StartupError(f"--add-scram of user {name}: salt and saltedpassword must be base64") from None
