"""How a broker speaks to the active controller, wherever that is.

Requests and responses are the wire's messages. `LocalChannel` reaches the controller in this process; one that forwards
over the network has the same face.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from ottla.broker.control.controller_driver import ControllerDriver, Operation
from ottla.controller.controller import Controller
from ottla.controller.generated import Generated
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.message import Message

if TYPE_CHECKING:
    from ottla.wire.messages.create_topics_request import CreateTopicsRequest

M = TypeVar("M", bound=Message)


def _any_topic(name: str) -> bool:
    return True


class ControllerChannel(Protocol):
    async def send(self, request: Message, response: type[M], *, timeout_ms: int = 30_000) -> M:
        """The controller's answer to `request`, a message of class `response`.

        Raises `KafkaError` where the controller refuses the request as a whole, or cannot be reached (NOT_CONTROLLER).
        """
        ...


_METHODS: dict[str, Callable[..., object]] = {
    "BrokerRegistrationRequest": Controller.register_broker,
    "BrokerHeartbeatRequest": Controller.broker_heartbeat,
    "UnregisterBrokerRequest": Controller.unregister_broker,
    "ControllerRegistrationRequest": Controller.register_controller,
    "DeleteTopicsRequest": Controller.delete_topics,
    "CreatePartitionsRequest": Controller.create_partitions,
    "AlterConfigsRequest": Controller.alter_configs,
    "IncrementalAlterConfigsRequest": Controller.incremental_alter_configs,
    "UpdateFeaturesRequest": Controller.update_features,
    "AllocateProducerIdsRequest": Controller.allocate_producer_ids,
}


class LocalChannel:
    def __init__(self, driver: ControllerDriver) -> None:
        self._driver = driver

    async def send(self, request: Message, response: type[M], *, timeout_ms: int = 30_000) -> M:
        answer = await self.submit(request)
        assert isinstance(answer, response), f"{type(request).__name__} is not answered by {response.__name__}"
        return answer

    def submit(self, request: Message, describable: Callable[[str], bool] = _any_topic) -> asyncio.Future[Message]:
        """Carry out `request` in this turn of the loop, so that what follows shares its flush."""
        name = type(request).__name__
        operation: Operation[Message]
        if name == "CreateTopicsRequest":
            create = cast("CreateTopicsRequest", request)

            def operation(controller: Controller, now_ms: int) -> Generated[Message]:
                return cast("Generated[Message]", controller.create_topics(create, now_ms, describable))

        else:
            method = _METHODS.get(name)
            if method is None:
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"The controller does not serve {name}.")

            def operation(controller: Controller, now_ms: int) -> Generated[Message]:
                return cast("Generated[Message]", method(controller, request, now_ms))

        return self._driver.submit(operation)
