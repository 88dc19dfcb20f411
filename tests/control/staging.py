"""A control plane on a real directory, with a disk that can count, stall and fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ottla.broker.control.control_plane import ControlPlane, metadata_log_config
from ottla.broker.control.format import FormatOptions, format_node
from ottla.client.network_peer import NetworkPeers
from ottla.config.node import NodeConfig
from ottla.errors import ErrorCode
from ottla.log import LogConfig, LogManager
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.images import Endpoint, MetadataImage
from ottla.runtime.disk import Handle, SystemDisk, SystemFile
from ottla.runtime.seams import Buffer, DiskError
from ottla.runtime.system import system_runtime
from ottla.runtime.timers import TimerWheel
from ottla.wire.message import Message
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse

M = TypeVar("M", bound=Message)


class StagedFile(SystemFile):
    __slots__ = ("_disk",)

    def __init__(self, path: str, handle: Handle, disk: StagedDisk) -> None:
        super().__init__(path, handle)
        self._disk = disk

    def write(self, position: int, data: Buffer) -> None:
        self._disk.check("write", self.path)
        super().write(position, data)

    def sync(self) -> None:
        self._disk.on_sync(self.path)
        super().sync()


class StagedDisk(SystemDisk):
    def __init__(self) -> None:
        self.syncs: list[str] = []
        self.fails: Callable[[str, str], bool] = lambda action, path: False
        self.gate = threading.Event()
        """Syncs of log files wait while it is not set."""

        self.gate.set()

    def check(self, action: str, path: str) -> None:
        if self.fails(action, path):
            raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot {action} {path}: staged")

    def on_sync(self, path: str) -> None:
        self.syncs.append(path.rsplit("/", 1)[-1])
        if path.endswith(".log"):
            assert self.gate.wait(10)
        self.check("sync", path)

    def open(self, path: str, *, create: bool = False) -> StagedFile:
        return StagedFile(path, super().open(path, create=create).handle, self)

    def sync_dir(self, path: str) -> None:
        self.syncs.append(f"{path.rsplit('/', 1)[-1]}/")
        super().sync_dir(path)

    def write_atomically(self, path: str, data: bytes) -> None:
        self.check("write", path)
        self.syncs.append(path.rsplit("/", 1)[-1])
        super().write_atomically(path, data)


def node_config(directory: Path, **properties: str) -> NodeConfig:
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory),
    }
    for key, value in properties.items():
        settings[key.replace("_", ".")] = value
    return NodeConfig({key: value for key, value in settings.items() if value})


class StagedNode:
    """One run of a node on `directory`, which is formatted if it is not yet."""

    def __init__(
        self,
        directory: Path,
        *,
        format_as: FormatOptions | None = None,
        log_config: LogConfig | None = None,
        properties: Mapping[str, str] | None = None,
        previous_broker_epoch: int = -1,
    ) -> None:
        self.directory = directory
        self._previous_broker_epoch = previous_broker_epoch
        self.disk = StagedDisk()
        self.runtime = replace(system_runtime(), disk=self.disk)
        self.config = node_config(directory, **(properties or {}))
        now_ms = self.runtime.clock.wall_ms()
        if not (directory / "meta.properties").exists():
            options = format_as or FormatOptions(standalone=True)
            format_node(self.disk, self.config, options, random=self.runtime.random, now_ms=now_ms)
        self.manager = LogManager(self.disk, [str(directory)], random=self.runtime.random)
        self.manager.lock()
        (identity,) = self.manager.read_identities()
        assert identity is not None
        self.manager.load(lambda topic: LogConfig(), now_ms)
        self.log = self.manager.load_metadata_log(
            str(directory), log_config or metadata_log_config(self.config), now_ms
        )
        self.timers = TimerWheel(self.runtime.clock)
        self.plane = ControlPlane(
            runtime=self.runtime,
            timers=self.timers,
            config=self.config,
            cluster_id=identity.cluster_id,
            log=self.log,
            log_dir_ids=[identity.directory_id],
            metadata_dir_id=identity.directory_id,
            peers=NetworkPeers(self.runtime.network, self.timers, "ottla-1"),
            controller_endpoints=[
                Endpoint(e.name, e.host, e.port, 0) for e in self.config.advertised_controller_listeners
            ],
        )
        self.published: list[tuple[MetadataImage, MetadataDelta, int]] = []
        self.plane.add_publisher(lambda image, delta, offset: self.published.append((image, delta, offset)))

    @property
    def image(self) -> MetadataImage:
        return self.plane.image

    async def start(self) -> StagedNode:
        self.plane.load()
        await self.plane.start()
        await self.join()
        return self

    async def join(self) -> None:
        await self.plane.join(
            [Endpoint("PLAINTEXT", "127.0.0.1", 9092, 0)], previous_broker_epoch=self._previous_broker_epoch
        )

    async def stop(self) -> None:
        await self.plane.stop()
        self.manager.close(self.runtime.clock.wall_ms(), self.plane.broker_epoch)
        self._end()

    async def crash(self) -> None:
        """As kill -9: what was written stays, nothing more is."""
        self.disk.fails = lambda action, path: True
        self.disk.gate.set()
        await self.plane.abandon()
        self.log.abandon()
        for directory in self.manager.directories.values():
            directory.unlock()
        self._end()

    def _end(self) -> None:
        self.timers.close()
        self.runtime.offload.close()

    async def send(self, request: Message, response: type[M]) -> M:
        return await self.plane.channel.send(request, response)

    async def create(self, *names: str, partitions: int = 1) -> list[int]:
        response = await self.send(creation(*names, partitions=partitions), CreateTopicsResponse)
        return [topic.error_code for topic in response.topics]


def creation(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    )
