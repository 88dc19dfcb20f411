"""Makes a controller known to the cluster (KIP-919), and again where the metadata log has lost sight of it.

Voters are found by the raft layer alone; this is for clients that are given controllers to talk to, and for the active
controller, which must know what features the others understand before it raises one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ottla.broker.control.channel import ControllerChannel
from ottla.errors import KafkaError
from ottla.metadata.features import SUPPORTED_FEATURES, has_controller_registration
from ottla.metadata.images import Endpoint, MetadataImage
from ottla.model import Uuid

_log = logging.getLogger(__name__)

_PAUSE_MS = 100
_PAUSE_MS_MAX = 10_000


class ControllerRegistrar:
    """Told of every image (`on_image`), from when the node has joined on."""

    def __init__(
        self, *, channel: ControllerChannel, node_id: int, incarnation_id: Uuid, endpoints: Sequence[Endpoint]
    ) -> None:
        self._channel = channel
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._endpoints = endpoints
        self._image: MetadataImage | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def on_image(self, image: MetadataImage) -> None:
        self._image = image
        if self._is_due and self._task is None and not self._stopped:
            self._task = asyncio.get_running_loop().create_task(self._register(), name="controller-registration")

    @property
    def _is_due(self) -> bool:
        if self._image is None or not has_controller_registration(self._image.features.metadata_version):
            return False
        known = self._image.cluster.controllers.get(self._node_id)
        return known is None or known.incarnation_id != self._incarnation_id

    async def _register(self) -> None:
        from ottla.wire.messages.controller_registration_request import (
            ControllerRegistrationRequest,
            Feature,
            Listener,
        )
        from ottla.wire.messages.controller_registration_response import ControllerRegistrationResponse

        request = ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in self._endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
                for name, levels in sorted(SUPPORTED_FEATURES.items())
            ],
        )
        pause_ms = _PAUSE_MS
        try:
            while self._is_due:
                try:
                    await self._channel.send(request, ControllerRegistrationResponse)
                except KafkaError as error:
                    _log.warning("this controller could not be registered, and tries again: %s", error)
                # Committed, but perhaps not yet read here.
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, _PAUSE_MS_MAX)
        finally:
            self._task = None

    async def stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
