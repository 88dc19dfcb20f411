"""The test process's side of the nursery and of the nodes that are forked from it.

A `Child` is a node's process, which the nursery forks; orders go to it and come back answered (`node_process`). The
nursery is started with the first of them and lives as long as this process does. Any thread may use all of it.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from ottla.errors import StartupError

PATIENCE_S = 60.0
"""For a node to start, or to do as it is told: machines are busy."""

_START = "from ottla.testing.nursery import main; main()"


class NodeGone(RuntimeError):
    """The node was asked something and has ended; the message says how to find out why."""


class _Nursery:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(PATIENCE_S)
        self._orders = ours
        with theirs:
            # Out of reach of the terminal's Ctrl-C, which is for the tests: when they end, it does.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )

    def ask(self, order: Mapping[str, object], descriptor: int | None = None) -> Any:
        data = json.dumps(order).encode()
        try:
            socket.send_fds(self._orders, [data], [] if descriptor is None else [descriptor])
            answer = self._orders.recv(1 << 16)
        except OSError:
            answer = b""
        if not answer:
            raise StartupError("The process that nodes are forked from has ended: look at its standard error.")
        return json.loads(answer)

    def close(self) -> None:
        """Whatever it has started ends with it."""
        self._orders.close()
        self._process.wait()

    def forget(self) -> None:
        """In a fork of the test process, to which nothing of this belongs."""
        self._orders.close()
        self._process.returncode = 0


_lock = threading.Lock()
_nursery: _Nursery | None = None


def _ask(order: Mapping[str, object], descriptor: int | None = None) -> Any:
    global _nursery
    with _lock:
        if _nursery is None:
            _nursery = _Nursery()
        try:
            return _nursery.ask(order, descriptor)
        except StartupError:
            _close()
            raise


def _close() -> None:
    global _nursery
    nursery, _nursery = _nursery, None
    if nursery is not None:
        nursery.close()


def _forget() -> None:
    global _nursery, _lock
    nursery, _nursery = _nursery, None
    _lock = threading.Lock()
    if nursery is not None:
        nursery.forget()


atexit.register(_close)
os.register_at_fork(after_in_child=_forget)


class Child:
    """A node's process. States: starting → serving (`wait_until_ready`) → gone (`kill`, or by itself)."""

    def __init__(self, node_id: int, order: Mapping[str, object]) -> None:
        self._node_id = node_id
        self._log = str(order["log"])
        self._lock = threading.Lock()
        self._heard = b""
        self._control, theirs = socket.socketpair()
        self._control.settimeout(PATIENCE_S)
        try:
            with theirs:
                self.pid: int = _ask(order, theirs.fileno())["pid"]
        except BaseException:
            self._control.close()
            raise
        self._is_gone = False

    def wait_until_ready(self) -> None:
        """Raises `StartupError` with the node's own sentence."""
        try:
            answer = self._receive()
        except (OSError, EOFError):
            raise StartupError(f"Node {self._node_id} did not start: {self._last_words()}") from None
        if "error" in answer:
            raise StartupError(f"Node {self._node_id} cannot start: {answer['error']}")

    def order(self, what: str, **order: object) -> Any:
        """Its answer. Raises `ValueError` for what the node does not understand, and `NodeGone`."""
        with self._lock:
            try:
                self._control.sendall(json.dumps({"do": what, **order}).encode() + b"\n")
                answer = self._receive()
            except (OSError, EOFError):
                raise NodeGone(f"Node {self._node_id} has ended: {self._last_words()}") from None
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["ok"]

    def kill(self) -> None:
        """At once, as a power cut would; returns when the process is gone."""
        with self._lock:
            self._control.close()
            if not self._is_gone:
                self._is_gone = True
                _ask({"kill": self.pid})

    def _receive(self) -> Any:
        while b"\n" not in self._heard:
            data = self._control.recv(1 << 16)
            if not data:
                raise EOFError
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)

    def _last_words(self) -> str:
        try:
            with open(self._log) as log:
                said = log.read().strip()
        except OSError:
            said = ""
        return f"its log ends so:\n{said[-2000:]}" if said else "its log says nothing."
