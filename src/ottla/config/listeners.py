"""Listeners: from `PLAINTEXT://host:9092` to a name, an address and a security protocol.

Pure functions from the text of a few keys to values; `node` decides which of them a node needs and what must hold
between them. An empty host stands for all addresses of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.config.key import InvalidConfig, invalid_value

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
NONROUTABLE = "0.0.0.0"

# Patterns are compiled when they are first used, which spares a node that is starting those that it does not use.
_ENDPOINT = r"(?P<name>[^:/]*)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]+)"
_ADDRESS = r"(?:[0-9a-zA-Z\-%._]*://)?\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)"
_HOST = r"[0-9a-zA-Z\-%._:]*"


class Listener(NamedTuple):
    """One listener: its name (in capitals), where it is, and the security protocol spoken there."""

    name: str
    host: str
    port: int
    security_protocol: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class Voter(NamedTuple):
    """A member of a static quorum."""

    id: int
    host: str
    port: int


def parse_listeners(
    key: str, entries: Sequence[str], protocols: Mapping[str, str], *, distinct_ports: bool
) -> tuple[Listener, ...]:
    """The listeners that the entries of `key` describe, each with its protocol from the map."""
    listeners = tuple(_parse_listener(key, entry, protocols) for entry in entries)
    shown = f"[{', '.join(entries)}]"
    if len({listener.name for listener in listeners}) < len(listeners):
        raise InvalidConfig(f"{key}: each listener must have a different name, listeners: {shown}")
    if distinct_ports:
        _check_ports(key, listeners, shown)
    return listeners


def listener_name(key: str, entry: str) -> str:
    """The name in front of `://`, in capitals as Kafka compares them."""
    name, separator, _ = entry.partition("://")
    if not separator:
        raise InvalidConfig(f"{key}: unable to parse a listener name from {entry}")
    return name.upper()


def _parse_listener(key: str, entry: str, protocols: Mapping[str, str]) -> Listener:
    name = listener_name(key, entry)
    found = re.fullmatch(_ENDPOINT, entry)
    if found is None:
        raise InvalidConfig(f"{key}: unable to parse {entry} to an endpoint of the form NAME://host:port")
    port = int(found["port"])
    if not 0 <= port <= 65535:
        raise InvalidConfig(f"{key}: the port of {entry} is not between 0 and 65535")
    protocol = protocols.get(name)
    if protocol is None:
        raise InvalidConfig(
            f"{key}: no security protocol defined for listener {name} in listener.security.protocol.map"
        )
    return Listener(name, found["host"], port, protocol)


def _check_ports(key: str, listeners: Iterable[Listener], shown: str) -> None:
    """Two listeners may share a port only where one address is IPv4 and the other IPv6. Port 0 is always free."""
    by_port: dict[int, list[str]] = {}
    for listener in listeners:
        if listener.port:
            by_port.setdefault(listener.port, []).append(listener.host)
    for port, hosts in by_port.items():
        if len(hosts) > 1 and (len(hosts) != 2 or sorted(map(_address_family, hosts)) != [4, 6]):
            raise InvalidConfig(
                f"{key}: each listener must have a different port unless exactly one has an IPv4 address and the "
                f"other an IPv6 address, listeners: {shown}, port: {port}"
            )


def _address_family(host: str) -> int:
    if ":" in host:
        return 6
    parts = host.split(".")
    return 4 if len(parts) == 4 and all(part.isdigit() and int(part) < 256 for part in parts) else 0


def parse_map(key: str, text: str) -> dict[str, str]:
    """Pairs as `name:value`, split at the last colon; later pairs win."""
    pairs: dict[str, str] = {}
    for entry in filter(None, re.split(r"\s*,\s*", text.strip())):
        name, colon, value = entry.rpartition(":")
        if not colon:
            raise InvalidConfig(f"Error parsing configuration property '{key}': {entry} is not of the form name:value")
        pairs[name.strip()] = value.strip()
    return pairs


def parse_protocol_map(key: str, text: str) -> dict[str, str]:
    protocols: dict[str, str] = {}
    for name, protocol in parse_map(key, text).items():
        if protocol.upper() not in SECURITY_PROTOCOLS:
            raise InvalidConfig(f"Invalid security protocol `{protocol}` defined in {key}")
        protocols[name.upper()] = protocol.upper()
    return protocols


def parse_connection_limits(key: str, text: str) -> dict[str, int]:
    """Limits a host, as `host:count`."""
    limits: dict[str, int] = {}
    for host, count in parse_map(key, text).items():
        if not re.fullmatch(_HOST, host):
            raise InvalidConfig(f"{key} contains invalid addresses : {host}")
        if not re.fullmatch("[+-]?[0-9]{1,9}", count):
            raise invalid_value(key, text, f"{count} is not a number of connections")
        limits[host] = int(count)
    return limits


def parse_voters(key: str, entries: Sequence[str]) -> tuple[Voter, ...]:
    """Voters as `id@host:port`."""
    voters: dict[int, Voter] = {}
    form = "Each entry should be in the form `{id}@{host}:{port}`."
    for entry in entries:
        node, at, address = entry.partition("@")
        if not at:
            raise InvalidConfig(f"Invalid configuration value for {key}. {form}")
        if not re.fullmatch("-?[0-9]{1,10}", node):
            raise InvalidConfig(f"{key}: failed to parse voter ID as an integer from {node}")
        found = re.fullmatch(_ADDRESS, address)
        if found is None:
            raise InvalidConfig(f"Failed to parse host name from entry {entry} for the configuration {key}. {form}")
        voters[int(node)] = Voter(int(node), found[1], _port(key, entry, found[2]))
    return tuple(voters.values())


def parse_addresses(key: str, entries: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Addresses as `host:port`."""
    addresses: list[tuple[str, int]] = []
    for entry in entries:
        found = re.fullmatch(_ADDRESS, entry)
        if found is None:
            raise InvalidConfig(
                f"Failed to parse host name from {entry} for the configuration {key}. "
                'Each entry should be in the form "{host}:{port}"'
            )
        addresses.append((found[1], _port(key, entry, found[2])))
    return tuple(addresses)


def _port(key: str, entry: str, text: str) -> int:
    port = int(text[:10])
    if port > 65535:
        raise InvalidConfig(f"{key}: the port of {entry} is not between 0 and 65535")
    return port
