"""What Ottla's nodes tell over HTTP on the port for clients: how a replica stands, and their metrics.

A node of another make does not speak HTTP there: it hangs up, is remembered for it, and not asked again soon. Called
from threads; what is remembered is replaced whole, so that no two of them can harm it.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Mapping
from urllib.parse import quote

from ottla.admin.cluster import Broker
from ottla.runtime.blocking import monotonic_s

TIMEOUT_S = 1.0
ASK_AGAIN_S = 600.0
BODY_BYTES_MAX = 8 * 1024 * 1024
_LINE = re.compile(r'(\w+)(?:\{((?:\w+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Nodes:
    def __init__(self, *, served: bool) -> None:
        """`served` is false where clients log in or speak TLS: nodes tell nothing over HTTP there."""
        self._served = served
        self._strangers: Mapping[tuple[str, int], float] = {}
        self._friends: frozenset[tuple[str, int]] = frozenset()
        """Who has answered once is one of ours, though it may be killed over a request."""

    def replica(self, broker: Broker, topic: str, partition: int) -> Mapping[str, object] | None:
        """As `broker/monitoring/replica_view` tells it; none if the node does not answer, or has no such replica."""
        body = self._get(broker, f"/replicas/{quote(topic, safe='')}/{partition}")
        if body is None:
            return None
        try:
            view = json.loads(body)
        except ValueError:
            return None
        return view if isinstance(view, dict) else None

    def metrics(self, broker: Broker) -> dict[str, float]:
        """By name, or by name and first label's value, as in `…_total{Produce}`; empty if the node does not answer."""
        body = self._get(broker, "/metrics")
        return {} if body is None else parse_metrics(body)

    def is_stranger(self, broker: Broker) -> bool:
        """Is it known not to speak HTTP?"""
        since = self._strangers.get((broker.host, broker.port))
        return not self._served or (since is not None and monotonic_s() - since < ASK_AGAIN_S)

    def _get(self, broker: Broker, path: str) -> str | None:
        if self.is_stranger(broker):
            return None
        connection = http.client.HTTPConnection(broker.host, broker.port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read(BODY_BYTES_MAX)
            self._friends |= {(broker.host, broker.port)}
            return body.decode("utf-8", "replace") if answer.status == 200 else None
        except (http.client.HTTPException, ConnectionResetError):
            # It took the connection and said something else, or nothing: it is none of ours.
            if (broker.host, broker.port) not in self._friends:
                self._strangers = {**self._strangers, (broker.host, broker.port): monotonic_s()}
            return None
        except OSError:
            return None
        finally:
            connection.close()


def parse_metrics(text: str) -> dict[str, float]:
    """Prometheus' text: a line is kept under its name and the values of its labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#") or (matched := _LINE.fullmatch(line)) is None:
            continue
        labels = ",".join(value for _, value in _LABEL.findall(matched[2] or ""))
        name = f"{matched[1]}{{{labels}}}" if labels else matched[1]
        try:
            found[name] = float(matched[3])
        except ValueError:
            continue
    return found
