"""What a test holds: a node, a cluster of them, and what can be done to either.

A `Cluster` owns the place of its nodes (`layout`) and their processes (`starting`), from its making to `close`. A node
alone is a cluster of one. Any thread may use them; calls block for as long as the node takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta

from ottla.errors import ErrorCode
from ottla.testing.conveniences import Conveniences, Record
from ottla.testing.layout import HOST, Layout
from ottla.testing.securing import Security
from ottla.testing.starting import Child, NodeGone

__all__ = ["BrokerClock", "Cluster", "Fault", "Faults", "Node", "Record"]

Seconds = float | timedelta


class Fault:
    """One fault that was scripted."""

    def __init__(self, node: Node, number: int) -> None:
        self._node = node
        self._number = number

    @property
    def seen(self) -> int:
        """How many requests have met it so far."""
        seen: int = self._node._order("seen", number=self._number)
        return seen


class Faults:
    """What is to go wrong with the next requests of clients to one node. Of several faults for one API the first that
    was scripted comes first. `times=None` is for ever, or until `clear`."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def fail(self, api: str, *, error: str | int | ErrorCode, times: int | None = 1) -> Fault:
        """Answer with an error, and carry nothing out. `error` is Kafka's name of it or its number."""
        return self._add(api, times, error=_code(error))

    def delay(self, api: str, seconds: Seconds, *, times: int | None = 1) -> Fault:
        """Carry out at once and answer so much later, as the later requests of that connection are then."""
        return self._add(api, times, delay_ms=1000 * _seconds(seconds))

    def drop_connection(self, api: str, *, times: int | None = 1, handled: bool = False) -> Fault:
        """Hang up instead of answering; `handled` says whether the request is carried out before."""
        return self._add(api, times, drops=True, handled=handled)

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._node._order("clear")

    def _add(self, api: str, times: int | None, error: int | None = None, **more: object) -> Fault:
        if times is not None and times < 1:
            raise ValueError(f"A fault that happens {times} times is none: give a number from 1 on, or None.")
        return Fault(self._node, self._node._order("fault", api=api, times=times, error=error, **more))


class BrokerClock:
    """The clock of one node, or of all nodes of a cluster: sessions, transactions and retention go by it."""

    def __init__(self, nodes: Mapping[int, Node]) -> None:
        self._nodes = nodes

    def advance(self, seconds: Seconds) -> None:
        """Set it ahead. What is due then happens once: when this returns retention has been enforced, and members and
        transactions whose time was up are about to be told."""
        ahead = _seconds(seconds)
        if ahead < 0:
            raise ValueError("A broker's clock is only ever set ahead.")
        for node in self._nodes.values():
            node._advance(round(1000 * ahead))


class Node(Conveniences):
    """One node of a test. `bootstrap` is for clients."""

    def __init__(self, layout: Layout, node_id: int, internal: str) -> None:
        super().__init__(internal, makes_topics=layout.makes_topics)
        self._layout = layout
        self._child: Child | None = None
        self._ahead_ms = 0
        self.node_id = node_id
        self.bootstrap = layout.address(node_id)
        self.faults = Faults(self)
        self.clock = BrokerClock({node_id: self})

    def client_config(self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """What a client needs to come in, under librdkafka's names: `bootstrap.servers`, and of a secured node what it
        asks for. Without `user` it is the first one; where certificates are shown, a user's is made."""
        return {"bootstrap.servers": self.bootstrap, **self._layout.client_config(user, mechanism)}

    @property
    def is_running(self) -> bool:
        """Until it is killed or stopped."""
        return self._child is not None

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._running().pid

    @property
    def log(self) -> str:
        """What the node has logged: warnings and errors."""
        try:
            with open(self._layout.log(self.node_id)) as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def _begin(self) -> Child:
        """Fork its process, which is not waited for."""
        assert self._child is None
        self._child = Child(self.node_id, self._layout.order(self.node_id, self._ahead_ms))
        return self._child

    def _end(self, *, cleanly: bool = False) -> None:
        child = self._child
        if child is not None:
            try:
                if cleanly:
                    child.order("stop")
            finally:
                self._child = None
                child.kill()

    def _running(self) -> Child:
        if self._child is None:
            raise NodeGone(f"Node {self.node_id} is not running: start it with restart({self.node_id}).")
        return self._child

    def _order(self, what: str, **order: object) -> int:
        answer: int = self._running().order(what, **order)
        return answer

    def _advance(self, ms: int) -> None:
        """Also of a node that is down: it will find that time has passed."""
        self._ahead_ms += ms
        if self._child is not None:
            self._order("advance", ms=ms)


class Cluster(Conveniences):
    """The nodes of a test, numbered from 1; each is broker and controller. `bootstrap` names all of them."""

    def __init__(self, nodes: int, settings: Mapping[str, str], security: Security) -> None:
        self._layout = Layout(nodes, settings, security)
        places = self._layout.places
        internal = ",".join(f"{HOST}:{place.internal_port}" for place in places.values())
        super().__init__(internal, makes_topics=self._layout.makes_topics)
        self.nodes = {node_id: Node(self._layout, node_id, internal) for node_id in places}
        self.bootstrap = ",".join(node.bootstrap for node in self.nodes.values())
        self.clock = BrokerClock(self.nodes)
        try:
            for child in [node._begin() for node in self.nodes.values()]:
                child.wait_until_ready()
        except BaseException:
            self.close()
            raise

    def client_config(self, user: str | None = None, *, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """As that of a node, with all nodes in `bootstrap.servers`."""
        return {"bootstrap.servers": self.bootstrap, **self._layout.client_config(user, mechanism)}

    def close(self) -> None:
        """Nothing is left: no process, no port, no file."""
        with ExitStack() as ending:
            ending.callback(self._layout.close)
            for node in self.nodes.values():
                ending.callback(node._end)

    def kill(self, node_id: int) -> None:
        """As a power cut would. The others notice within a few seconds."""
        self._node(node_id)._end()

    def stop(self, node_id: int) -> None:
        """As an operator would: the node hands over what it leads before it goes."""
        self._node(node_id)._end(cleanly=True)

    def restart(self, node_id: int) -> None:
        """Start a node again, on its directory and its ports; one that runs is killed first. Scripted faults are
        forgotten. Returns when it serves clients."""
        node = self._node(node_id)
        node._end()
        node._begin().wait_until_ready()

    def move_leader(self, topic: str, partition: int = 0, *, to: int) -> None:
        """Returns when node `to`, which has a copy, leads the partition. Raises `KafkaError` if it is not in sync."""
        self._node(to)
        self._move_leader(topic, partition, to)

    def _node(self, node_id: int) -> Node:
        if node_id not in self.nodes:
            raise ValueError(f"There is no node {node_id}: the cluster has {sorted(self.nodes)}.")
        return self.nodes[node_id]


def _seconds(time: Seconds) -> float:
    return time.total_seconds() if isinstance(time, timedelta) else time


def _code(error: str | int | ErrorCode) -> int:
    known = {code.name: code for code in ErrorCode}.get(error) if isinstance(error, str) else ErrorCode(error)
    if known is None or (isinstance(error, int) and known != error):
        raise ValueError(f"Kafka has no error {error}: use a name such as NOT_LEADER_OR_FOLLOWER.")
    return int(known)
