"""What all pages share. One instance a process, owned by its event loop."""

from __future__ import annotations

from ottla.client.settings import ClientSettings
from ottla.console.decoding import Decoder, Schema
from ottla.console.nodes import Nodes
from ottla.console.poller import Poller
from ottla.console.registry import Registry
from ottla.console.replica_watch import ReplicaWatches
from ottla.console.workers import Workers
from ottla.errors import ErrorCode, KafkaError


class Console:
    def __init__(self, settings: ClientSettings, *, registry: Registry | None, may_change: bool) -> None:
        self.workers = Workers(settings)
        self.nodes = Nodes(served=settings.tls is None and settings.sasl is None)
        self.poller = Poller(self.workers, self.nodes)
        self.watches = ReplicaWatches(self.workers, self.nodes, self.poller)
        self.registry = registry
        self.may_change = may_change
        """Not where other machines can come in without a password."""

    def start(self) -> None:
        self.poller.start()

    async def stop(self) -> None:
        await self.watches.stop()
        await self.poller.stop()
        await self.workers.close()

    def check_may_change(self) -> None:
        """Every page that changes something asks again when it does: a button that is not shown can be pressed."""
        if not self.may_change:
            message = (
                "Nothing can be changed here: other machines can open this console, and it asks nobody who they are."
            )
            raise KafkaError(ErrorCode.SECURITY_DISABLED, message)

    def check_may_read(self) -> None:
        """Records are not for everybody, not even to read, as over HTTP (`gateway/app`)."""
        if not self.may_change:
            message = (
                "No records are shown here: other machines can open this console, and it asks nobody who they are. "
                "Start it with --users FILE."
            )
            raise KafkaError(ErrorCode.SECURITY_DISABLED, message)

    def decoder(self, mode: str) -> Decoder:
        return Decoder(self._schema_of, mode)

    def _schema_of(self, schema_id: int) -> Schema | None:
        return self.registry.schema(schema_id) if self.registry is not None else None
