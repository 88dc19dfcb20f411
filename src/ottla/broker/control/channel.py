"""How a broker speaks to the active controller, wherever that is.

Requests and responses are the wire's messages. `LocalChannel` reaches the controller in this process; one that forwards
over the network has the same face.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from ottla.broker.control.controller_driver import ControllerDriver
from ottla.controller.controller import METHODS, Controller
from ottla.controller.generated import Generated
from ottla.errors import ErrorCode, KafkaError
from ottla.wire.message import Message

M = TypeVar("M", bound=Message)


def _any_topic(name: str) -> bool:
    return True


class ControllerChannel(Protocol):
    async def send(self, request: Message, response: type[M], *, describable: Callable[[str], bool] = _any_topic) -> M:
        """The controller's answer to `request`, a message of class `response`.

        `describable` says of which topics the one who asks may see the configs. Raises `KafkaError` where the
        controller refuses the request as a whole, or cannot be reached (NOT_CONTROLLER).
        """
        ...


@dataclass(frozen=True, slots=True)
class _Requester:
    describable: Callable[[str], bool]
    principal: str = "User:ANONYMOUS"

    def may_describe_configs(self, topic: str) -> bool:
        return self.describable(topic)


class LocalChannel:
    def __init__(self, driver: ControllerDriver) -> None:
        self._driver = driver

    async def send(self, request: Message, response: type[M], *, describable: Callable[[str], bool] = _any_topic) -> M:
        answer = await self.submit(request, describable)
        assert isinstance(answer, response), f"{type(request).__name__} is not answered by {response.__name__}"
        return answer

    def submit(self, request: Message, describable: Callable[[str], bool] = _any_topic) -> asyncio.Future[Message]:
        """Carry out `request` in this turn of the loop, so that what follows shares its flush."""
        name = METHODS.get(type(request).__name__)
        if name is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"The controller does not serve {type(request).__name__}.")
        requester = _Requester(describable)

        def operation(controller: Controller, now_ms: int) -> Generated[Message]:
            return cast("Generated[Message]", getattr(controller, name)(request, now_ms, requester))

        return self._driver.submit(operation)
