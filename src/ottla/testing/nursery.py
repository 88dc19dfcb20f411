"""A process in which everything that a node needs is loaded, and from which nodes are forked.

It has no thread and no event loop, so that to fork it is safe; loading is paid for once by a test process, and not by
each node. It obeys the test process alone, over a socket that it inherited (`starting`): fork a node, end a node. When
the other end of that is gone, however the test process ended, it kills what is left and removes the directories.
While nobody asks anything it goes on to load what only some clients ask for.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from importlib import import_module

ORDER_BYTES_MAX = 1 << 18


def main() -> None:
    """`python -c "from ottla.testing.nursery import main; main()" DESCRIPTOR`"""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        _Nursery(orders).run()


class _Nursery:
    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._directories: dict[int, str] = {}
        """Of the nodes that were forked and not yet reaped, by process id."""

    def run(self) -> None:
        from ottla.testing.node_process import live

        self._live: Callable[..., None] = live
        _load_what_all_need()
        later: Iterator[object] | None = _what_some_need()
        gc.collect()
        gc.freeze()
        while True:
            while later is not None and not select.select([self._orders], [], [], 0)[0]:
                if next(later, None) is None:
                    later = None
                    gc.collect()
                    gc.freeze()
            data, descriptors, _, _ = socket.recv_fds(self._orders, ORDER_BYTES_MAX, 1)
            if not data:
                break
            order = json.loads(data)
            if "kill" in order:
                self._kill(order["kill"])
                self._orders.send(b"{}")
            else:
                self._fork(order, descriptors[0])
        directories = set(self._directories.values())
        for pid in list(self._directories):
            self._kill(pid)
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)

    def _fork(self, order: dict[str, str], control: int) -> None:
        pid = os.fork()
        if pid == 0:
            self._orders.close()
            self._live(order, socket.socket(fileno=control))
        os.close(control)
        self._directories[pid] = order["directory"]
        self._orders.send(json.dumps({"pid": pid}).encode())

    def _kill(self, pid: int) -> None:
        """Returns when the process is gone, and its ports with it. One that was reaped is not asked for again."""
        if self._directories.pop(pid, None) is not None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _load_what_all_need() -> None:
    """What every node loads while it starts."""
    import uvloop  # noqa: F401

    import ottla.broker.api.on_controller
    import ottla.broker.coordinators.marker_sender
    import ottla.broker.forwarding
    import ottla.broker.replication.fetchers
    import ottla.broker.transactions.verification
    import ottla.client.network_peer
    import ottla.coordinator.group_shard
    import ottla.coordinator.transaction.settings
    import ottla.coordinator.transaction.shard  # noqa: F401
    from ottla.config.key import Scope
    from ottla.config.table import keys

    for scope in Scope:
        keys(scope)


def _what_some_need() -> Iterator[object]:
    """Loads at each step what a node would load, or compile, when it is first needed: by itself, then by clients."""
    from ottla.broker import api as handlers
    from ottla.wire.apis import APIS
    from ottla.wire.decoding import compile_decoder
    from ottla.wire.encoding import compile_encoder
    from ottla.wire.messages import message_class, message_names

    for name in message_names():
        if not name.endswith(("Request", "Response")):
            stored = message_class(name)
            for version in stored.VERSIONS:
                yield compile_encoder(stored, version)
                yield compile_decoder(stored, version)
    for module in (*handlers.CONTROLLER_HANDLERS.values(), *handlers.HANDLERS.values()):
        yield import_module(f"{handlers.__name__}.{module}")
    apis = [APIS[key] for key in {**handlers.HANDLERS, **handlers.CONTROLLER_HANDLERS}]
    # Clients mostly speak the newest versions that they and we know: those come first.
    for older in range(max(api.last_version - api.first_version for api in apis) + 1):
        for api in apis:
            if (version := api.last_version - older) >= api.first_version:
                yield compile_decoder(api.request, version)
                yield compile_encoder(api.response, version)
