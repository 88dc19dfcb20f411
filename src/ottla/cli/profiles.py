"""Clusters that are known by a name: their addresses and credentials, in a file that only its owner can read.

The file is TOML: `current` names the profile that is used if none is asked for, and each table under `profiles` has a
client's properties under Kafka's names. `OTTLA_CONFIG` says where it is, else it is `~/.config/ottla/config.toml`.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ottla.errors import StartupError

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_FILES = frozenset(
    {
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "ssl.keystore.location",
        "ssl.truststore.location",
    }
)
_SECRET = re.compile(r"password|secret|jaas|\.key$|key\.pem|user\.info|token")
_LOGIN = re.compile(r"(?<=://)[^/@,]*@")
"""Within an address."""


def config_path(environment: Mapping[str, str] = os.environ) -> Path:
    if given := environment.get("OTTLA_CONFIG"):
        return Path(given)
    home = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "ottla" / "config.toml"


@dataclass(frozen=True, slots=True)
class Profiles:
    current: str | None = None
    each: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def find(self, name: str) -> Mapping[str, str]:
        if name not in self.each:
            known = f"choose one of {', '.join(sorted(self.each))}, or " if self.each else ""
            raise StartupError(
                f"There is no profile {name}: {known}make it with `ottla profile add {name} --bootstrap HOST:PORT`."
            )
        return self.each[name]

    def chosen(self, name: str | None) -> Mapping[str, str]:
        """The profile of that name, or the current one, or nothing."""
        wanted = name or self.current
        return {} if wanted is None else self.find(wanted)

    def with_profile(self, name: str, properties: Mapping[str, str]) -> Profiles:
        if not _NAME.fullmatch(name):
            raise StartupError(f"{name!r} is no name for a profile: use letters, digits, dots, dashes and underscores.")
        return Profiles(self.current or name, {**self.each, name: dict(properties)})

    def without(self, name: str) -> Profiles:
        self.find(name)
        left = {each: properties for each, properties in self.each.items() if each != name}
        return Profiles(None if self.current == name else self.current, left)

    def using(self, name: str) -> Profiles:
        self.find(name)
        return replace(self, current=name)


def load(path: Path) -> Profiles:
    try:
        read = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return Profiles()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise StartupError(f"{path} cannot be read: {error}; mend it, or remove it.") from None
    tables = read.get("profiles", {})
    current = read.get("current")
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise StartupError(f"{path} cannot be read: `profiles` must be tables; mend it, or remove it.")
    each = {name: {key: str(value) for key, value in _flat(table).items()} for name, table in tables.items()}
    return Profiles(current if isinstance(current, str) and current in each else None, each)


def save(path: Path, profiles: Profiles) -> None:
    """Whoever may read it may log in: so nobody else may, from the first byte on."""
    lines = []
    if profiles.current is not None:
        lines.append(f"current = {_quoted(profiles.current)}")
    for name in sorted(profiles.each):
        lines += ["", f"[profiles.{_quoted(name)}]"]
        lines += [f"{_quoted(key)} = {_quoted(value)}" for key, value in sorted(profiles.each[name].items())]
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    new.replace(path)


def anywhere(properties: Mapping[str, str]) -> dict[str, str]:
    """As they are meant from wherever a command is called: files have their whole paths."""
    return {
        key: os.path.abspath(os.path.expanduser(value)) if key in _FILES and value else value
        for key, value in properties.items()
    }


def hidden(properties: Mapping[str, str]) -> dict[str, str]:
    """Fit to be shown: secrets are stars."""
    return {
        key: "****" if _SECRET.search(key) else _LOGIN.sub("****@", value) for key, value in sorted(properties.items())
    }


def _flat(table: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Keys with dots that somebody wrote without quotes are tables within tables."""
    found: dict[str, object] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found.update(_flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = "true" if value is True else "false" if value is False else value
    return found


def _quoted(text: str) -> str:
    """A basic string of TOML, which JSON's strings are too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
