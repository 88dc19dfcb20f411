"""The whole life of a node that a test has started, in its process: forked by `nursery`, told what to do by `handles`.

The two sides speak in lines of JSON over a socket. The first that comes from here says that the node serves, or why it
cannot; then each order is answered by one line, `{"ok": …}` or `{"error": "a sentence"}`. When the other end is closed,
however the test ended, the process ends at once: what it wrote is of no use to anybody.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from ottla.broker.control.format import FormatOptions, format_node
from ottla.broker.node import Node
from ottla.config.key import InvalidConfig
from ottla.config.node import NodeConfig
from ottla.errors import ErrorCode, KafkaError, StartupError
from ottla.log.checkpoints import read_meta_properties
from ottla.runtime import Runtime
from ottla.runtime.system import run, system_runtime
from ottla.testing.clocks import AgeingClock, MovedClock
from ottla.testing.faults import BadScript, FaultTable, Rule, ScriptedDispatcher
from ottla.testing.layout import CLIENTS

_log = logging.getLogger(__name__)


def live(order: Mapping[str, Any], control: socket.socket) -> NoReturn:
    """From the fork to the end. `order` is what `layout.Place.order` makes."""
    status = 1
    try:
        _write_into(order["log"])
        try:
            _NodeProcess(order, control).run()
            status = 0
        except (StartupError, KafkaError, InvalidConfig, OSError) as error:
            _tell(control, {"error": error.message if isinstance(error, KafkaError) else str(error)})
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _write_into(path: str) -> None:
    """Whatever is said from now on, by whomever, stands in a file beside the node's directory."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", force=True
    )


def _tell(control: socket.socket, answer: Mapping[str, object]) -> None:
    control.sendall(json.dumps(answer).encode() + b"\n")


class _NodeProcess:
    def __init__(self, order: Mapping[str, Any], control: socket.socket) -> None:
        self._control = control
        self._order = order
        self._heard = b""
        self._faults = FaultTable()
        self._clock = MovedClock(order["ahead_ms"])
        self._work: set[asyncio.Task[None]] = set()
        self._node: Node

    def run(self) -> None:
        config = NodeConfig(self._order["properties"])
        runtime = replace(system_runtime(durable=False), clock=self._clock, ageing=AgeingClock(self._clock))
        for warning in config.warnings():
            _log.warning("%s", warning)
        self._format(runtime, config)
        self._node = Node(config, runtime, partial(ScriptedDispatcher, self._faults, CLIENTS))
        try:
            run(self._serve())
        finally:
            runtime.offload.close()

    def _format(self, runtime: Runtime, config: NodeConfig) -> None:
        if read_meta_properties(runtime.disk, config.log_dirs[0]) is None:
            options = FormatOptions(
                cluster_id=self._order["cluster_id"],
                initial_controllers=self._order["voters"],
                scram=tuple(self._order["scram"]),
            )
            format_node(runtime.disk, config, options, random=runtime.random, now_ms=runtime.clock.wall_ms())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        node = self._node
        self._ended = asyncio.Event()
        node.on_fatal = self._ended.set
        loop.set_exception_handler(node.on_unhandled)
        self._control.setblocking(False)
        loop.add_reader(self._control, self._on_readable)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        await node.start()
        self._answer({"ok": None})
        await self._ended.wait()
        if node.failure is not None:
            raise node.failure

    # Orders.

    def _on_readable(self) -> None:
        try:
            data = self._control.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            os._exit(0)
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            task = asyncio.ensure_future(self._obey(json.loads(line)))
            self._work.add(task)
            task.add_done_callback(self._work.discard)

    async def _obey(self, order: dict[str, Any]) -> None:
        try:
            result = await self._carry_out(order.pop("do"), order)
        except BadScript as error:
            self._answer({"error": str(error)})
        except Exception as error:  # Whoever asked waits for an answer, whatever it is.
            _log.exception("an order could not be carried out")
            self._answer({"error": f"The node could not do it: {error!r}."})
        else:
            self._answer({"ok": result})

    async def _carry_out(self, what: str, order: dict[str, Any]) -> object:
        if what == "fault":
            code = order.pop("error")
            error = None if code is None else ErrorCode(code)
            return self._faults.add(order.pop("api"), Rule(error=error, **order))
        if what == "seen":
            return self._faults.seen(order["number"])
        if what == "clear":
            self._faults.clear()
            return None
        if what == "advance":
            self._clock.ahead_ms += order["ms"]
            await self._node.on_clock_moved()
            return self._clock.ahead_ms
        assert what == "stop", what
        await self._node.stop()
        self._ended.set()
        return None

    def _answer(self, answer: Mapping[str, object]) -> None:
        # An answer is short, and whoever asked waits for it: there is always room.
        self._control.setblocking(True)
        _tell(self._control, answer)
        self._control.setblocking(False)
