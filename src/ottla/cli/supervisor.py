"""Several nodes under one command: a process each, started together, heard of together, stopped together.

The nodes are forked from a process that has everything loaded and has started no thread and no loop, so that loading is
paid for once. Each says over a pipe that it serves, or why it cannot. A node that dies while the others serve is
reported, and the others go on. Each holds the reading end of a pipe that only the parent could write to: when it is
closed, because all are to stop or because the parent is gone, they stop together, and hand nothing over to each other.
Ctrl-C reaches the parent alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from typing import NoReturn

from ottla.broker.node import Node
from ottla.cli.gateway import ServicePort
from ottla.cli.serve import serve
from ottla.cli.settings import configure_logging
from ottla.config.node import NodeConfig
from ottla.errors import KafkaError, StartupError
from ottla.runtime import Runtime
from ottla.runtime.system import system_runtime

Settle = Callable[[Runtime, NodeConfig], None]

_READY = "ready"
_FAILED = "failed"
_TEXT_CHARS_MAX = 1000
"""A message must fit into one write to a pipe."""


class Supervisor:
    """States: starting → serving → stopping. Lives in the parent, on an event loop of its own."""

    def __init__(self, data: str, on_ready: Callable[[list[str]], None], console: ServicePort | None = None) -> None:
        """`on_ready` gets the addresses of all nodes when the last of them serves. The console belongs to the parent:
        it shows how nodes die."""
        self._data = data
        self._on_ready = on_ready
        self._console = console
        self._nodes: dict[int, int] = {}
        """Node ids of the children that run, by process id."""
        self._count = 0
        self._addresses: dict[int, str] = {}
        self._reasons: dict[int, str] = {}
        self._serving = False
        self._stopping = False
        self._status = 0
        self._heard = b""
        self._ended = asyncio.Event()

    def start(
        self,
        configs: Mapping[int, NodeConfig],
        settle: Settle,
        *,
        durable: bool,
        log_level: str,
        registries: Mapping[int, ServicePort],
    ) -> None:
        """Fork the nodes. Before the event loop runs. Each calls `settle` first, beside the others."""
        self._count = len(configs)
        leash, self._leash_end = os.pipe()
        self._reports, report_end = os.pipe()
        gc.collect()
        gc.freeze()
        for node_id, config in configs.items():
            pid = os.fork()
            if pid == 0:
                os.close(self._leash_end)
                os.close(self._reports)
                for other, port in registries.items():
                    if other != node_id:
                        port.close()
                if self._console is not None:
                    self._console.close()
                registry = registries.get(node_id)
                _run_child(config, settle, leash, report_end, durable=durable, log_level=log_level, registry=registry)
            self._nodes[pid] = node_id
            with contextlib.suppress(OSError), open(self._pid_file(node_id), "w") as file:
                file.write(f"{pid}\n")
        os.close(leash)
        os.close(report_end)
        for port in registries.values():
            port.close()

    async def watch(self) -> int:
        """Until all nodes have ended; the status to exit with."""
        loop = asyncio.get_running_loop()
        os.set_blocking(self._reports, False)
        loop.add_reader(self._reports, self._on_report)
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        self._reap()  # Whoever ended before anybody listened.
        await self._ended.wait()
        loop.remove_reader(self._reports)
        if self._console is not None:
            await self._console.stop()
        return self._status

    def stop(self) -> None:
        """Let all of them go; asked a second time, they do not wait for anything."""
        if self._stopping:
            self._status = 130
        else:
            os.close(self._leash_end)
        for pid in self._nodes:
            with contextlib.suppress(ProcessLookupError):
                if self._stopping:
                    os.kill(pid, signal.SIGTERM)
                os.kill(pid, signal.SIGCONT)  # One that was paused would never hear of it.
        self._stopping = True

    def _on_report(self) -> None:
        try:
            self._heard += os.read(self._reports, 1 << 16)
        except BlockingIOError:
            return
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            kind, node_id, text = line.decode().split(" ", 2)
            if kind == _FAILED:
                self._reasons[int(node_id)] = text
            else:
                self._addresses[int(node_id)] = text
        if len(self._addresses) == self._count and not self._serving and not self._stopping:
            self._serving = True
            addresses = [address for _, address in sorted(self._addresses.items())]
            self._on_ready(addresses)
            if self._console is not None:
                self._console.start(",".join(addresses))

    def _reap(self) -> None:
        self._on_report()
        for pid, node_id in list(self._nodes.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._nodes[pid]
                self._remove_pid_file(node_id, pid)
                self._on_end(node_id, os.waitstatus_to_exitcode(status))
        if not self._nodes:
            self._ended.set()

    def _on_end(self, node_id: int, code: int) -> None:
        if self._stopping:
            if code and not self._status:
                self._status = 1
                self._say(node_id, code, "")
        elif self._serving:
            self._status = 0 if self._nodes else 1
            self._say(node_id, code, self._advice(node_id))
        else:
            # Without all of them there is no cluster to serve: the first reason is the one that counts.
            self._status = 1
            self._say(node_id, code, "")
            self.stop()

    def _advice(self, node_id: int) -> str:
        if not self._nodes:
            return " None is left."
        return f" The others go on; `ottla node {self._data}/node-{node_id}.properties` starts it again."

    def _say(self, node_id: int, code: int, advice: str) -> None:
        if (reason := self._reasons.get(node_id)) is None:
            reason = f"was killed by {signal.Signals(-code).name}." if code < 0 else f"ended with status {code}."
            print(f"ottla: node {node_id} {reason}{advice}", file=sys.stderr, flush=True)
        else:
            print(f"ottla: node {node_id}: {reason}{advice}", file=sys.stderr, flush=True)

    def _remove_pid_file(self, node_id: int, pid: int) -> None:
        """Unless another process has written its own there since."""
        path = self._pid_file(node_id)
        with contextlib.suppress(OSError):
            with open(path) as file:
                is_ours = file.read() == f"{pid}\n"
            if is_ours:
                os.unlink(path)

    def _pid_file(self, node_id: int) -> str:
        return f"{self._data}/node-{node_id}.pid"


def _run_child(
    config: NodeConfig,
    settle: Settle,
    leash: int,
    reports: int,
    *,
    durable: bool,
    log_level: str,
    registry: ServicePort | None,
) -> NoReturn:
    """The whole life of a node's process."""
    node_id = config.node_id
    status = 1
    try:
        os.setpgid(0, 0)
        _take_name(f"ottla-node-{node_id}")
        configure_logging(log_level, f"node-{node_id}")

        def on_ready(node: Node) -> None:
            _report(reports, _READY, node_id, node.bootstrap)

        runtime = system_runtime(durable=durable)
        try:
            settle(runtime, config)
            serve(config, runtime, on_ready, leash=leash, beside=[] if registry is None else [registry])
            status = 0
        finally:
            runtime.offload.close()
    except (StartupError, KafkaError, OSError) as error:
        reason = error.message if isinstance(error, KafkaError) else str(error)
        _report(reports, _FAILED, node_id, reason or "")
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _report(reports: int, kind: str, node_id: int, text: str) -> None:
    sentence = " ".join(text.split())[:_TEXT_CHARS_MAX]
    with contextlib.suppress(BrokenPipeError):
        os.write(reports, f"{kind} {node_id} {sentence}\n".encode())


def _take_name(name: str) -> None:
    """What `ps` and `pkill` call this process, where the system lets it choose."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write(name)
