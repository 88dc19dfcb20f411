"""Who may come in over HTTP, asked before anything else: what the gateway and the console have in common.

On a loopback address everybody on this machine may, if they call it by a name of this machine: a page of another site
that points its own name here (DNS rebinding) is turned away, and so is one that asks for something in its visitor's
name. On other addresses people have a name and a password, or there is little to see and nothing to change.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.gateway.http import Refusal

_READING = frozenset({"GET", "HEAD"})
_OWN_SITE = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    loopback: bool
    users: Mapping[str, str] = field(default_factory=dict)
    """Passwords by name; with any, everybody must have one."""
    of: str = "port"
    """What people are told that they stand before."""

    @property
    def is_guarded(self) -> bool:
        """Is it known of everybody who comes in that he may? Records are for nobody else, nor is any change."""
        return self.loopback or bool(self.users)

    def check_site(self, method: str, headers: Mapping[str, str]) -> None:
        """Does the request come from where it should? `method` is empty for a web socket. Raises `Refusal`."""
        host = headers.get("host", "")
        if self.loopback and not _is_loopback(host):
            raise Refusal(403, f"This {self.of} serves its own machine: ask for it by the name localhost.")
        origin = headers.get("origin")
        is_foreign = origin is not None and origin.partition("://")[2] != host
        if method not in _READING:
            is_foreign = is_foreign or headers.get("sec-fetch-site", "same-origin") not in _OWN_SITE
        if is_foreign:
            raise Refusal(403, f"A page of another site may not use this {self.of}.")

    def user_of(self, headers: Mapping[str, str]) -> str:
        """Whose name and password the request brings; empty if they are nobody's."""
        kind, _, encoded = headers.get("authorization", "").partition(" ")
        try:
            name, _, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
        except ValueError:
            return ""
        known = self.users.get(name)
        same = hmac.compare_digest(password.encode(), (known or "").encode())
        return name if kind.lower() == "basic" and same and known is not None else ""

    def stranger(self) -> Refusal:
        return Refusal(401, f"This {self.of} asks for a name and a password.")


def _is_loopback(host: str) -> bool:
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
