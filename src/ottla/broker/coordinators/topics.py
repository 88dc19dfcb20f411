"""The topics that coordinators live on: made when somebody first looks for a coordinator, as Kafka makes them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.config.node import NodeConfig
from ottla.errors import KafkaError
from ottla.model import GROUP_TOPIC, TRANSACTION_TOPIC

if TYPE_CHECKING:
    from ottla.broker.services import Services
    from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig

_log = logging.getLogger(__name__)


def creatable(config: NodeConfig, name: str) -> CreatableTopic:
    """The topic as it is to be made on first use: a coordinator's as the node's configuration has it, any other with
    the cluster's defaults."""
    from ottla.wire.messages.create_topics_request import CreatableTopic

    if name == GROUP_TOPIC:
        return CreatableTopic(
            name=name,
            num_partitions=config.get_int("offsets.topic.num.partitions"),
            replication_factor=config.get_int("offsets.topic.replication.factor"),
            configs=_configs(
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
                }
            ),
        )
    if name == TRANSACTION_TOPIC:
        return CreatableTopic(
            name=name,
            num_partitions=config.get_int("transaction.state.log.num.partitions"),
            replication_factor=config.get_int("transaction.state.log.replication.factor"),
            configs=_configs(
                {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "min.insync.replicas": str(config.get_int("transaction.state.log.min.isr")),
                    "segment.bytes": str(config.get_int("transaction.state.log.segment.bytes")),
                    "unclean.leader.election.enable": "false",
                }
            ),
        )
    return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)


def _configs(values: dict[str, str]) -> list[CreatableTopicConfig]:
    from ottla.wire.messages.create_topics_request import CreatableTopicConfig

    return [CreatableTopicConfig(name=name, value=value) for name, value in values.items()]


class CoordinatorTopics:
    """One instance a node. However many ask at once, a topic is asked for once."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._creating: dict[str, asyncio.Future[None]] = {}
        self._told: set[str] = set()

    async def ensure(self, name: str) -> None:
        """Returns when the topic is known here, or could not be made in time."""
        creating = self._creating.get(name)
        if creating is not None:
            await creating
            return
        creating = self._creating[name] = asyncio.get_running_loop().create_future()
        try:
            refused = await self._services.create_on_first_use([name])
            if name in refused and name not in self._told:
                self._told.add(name)
                _log.warning(
                    "%s cannot be made with %d replicas: %s",
                    name,
                    creatable(self._services.config, name).replication_factor,
                    KafkaError(refused[name]),
                )
        finally:
            del self._creating[name]
            creating.set_result(None)
