"""Producers that insist.

A lane is one producer on one partition, one batch at a time, so that its answers have an order. Idempotent lanes send
again until they know; the others do so only if they are told that duplicates do not matter to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.errors import ErrorCode, Malformed
from ottla.model import TopicPartition
from ottla.records import BatchBuilder
from ottla.sim.client import Lost, SimClient
from ottla.sim.history import History, Identity, Outcome, Send
from ottla.sim.producing import fill, is_final, may_be_appended, produce
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse

_NEW_PRODUCER = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""What an idempotent producer may hear when something it was unsure of has come, or gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneOptions:
    acks: int
    idempotent: bool
    retry_uncertain: bool
    """Send again what may have been appended, at the risk of a duplicate?"""
    request_timeout_s: float = 2.0
    delivery_timeout_s: float = 10.0
    resend_old: float = 0.0
    """How often an idempotent producer sends its last batch but one again, after its successor."""
    keys: bool = False
    """Is it for a compacted topic?"""


class Lane:
    """One producer on one partition."""

    def __init__(
        self, client: SimClient, number: int, place: TopicPartition, options: LaneOptions, history: History
    ) -> None:
        self.client = client
        self.name = f"{client.name}/{number}"
        self.place = place
        self._options = options
        self._history = history
        self._count = 0
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequence = 0
        self._last: tuple[bytes, Send] | None = None
        self.busy = False

    async def send(self, size: int) -> None:
        """One batch of `size` values, to whatever end it comes."""
        client, options = self.client, self._options
        self.busy = True
        values = tuple(b"%s:%d" % (self.name.encode(), self._count + at) for at in range(size))
        self._count += size
        send = Send(
            client=self.name,
            place=self.place,
            values=values,
            acks=options.acks,
            idempotent=options.idempotent,
            invoked=client.now,
        )
        self._history.sends.append(send)
        try:
            await self._deliver(send, client.now + options.delivery_timeout_s)
        finally:
            send.completed = client.now
            self.busy = False

    async def _deliver(self, send: Send, deadline: float) -> None:
        client, options = self.client, self._options
        if options.idempotent and self._producer_id < 0 and not await self._init_producer(deadline):
            send.outcome = Outcome.FAILED
            return
        batch = self._batch(send.values)
        pause_s = 0.02
        while True:
            code = await self._attempt(batch, send)
            if code == 0:
                send.outcome = Outcome.OK
                if options.idempotent:
                    self._sequence += len(send.values)
                    await self._maybe_resend_old(batch, send)
                return
            if code is not None and is_final(code):
                send.error = code
                self._give_up(send)
                if not (options.idempotent and code in _NEW_PRODUCER):
                    self._history.unexpected.append(f"produce to {self.place} was refused with {ErrorCode(code).name}")
                return
            if may_be_appended(code):
                send.uncertain_attempts += 1
                if not options.idempotent and not options.retry_uncertain:
                    self._give_up(send)
                    return
            if client.now >= deadline:
                send.error = code or 0
                self._give_up(send)
                return
            await client.sleep(pause_s * (0.5 + client.random.random()))
            pause_s = min(pause_s * 2, 0.5)
            await client.refresh([self.place.topic])

    def _give_up(self, send: Send) -> None:
        send.outcome = Outcome.INFO if send.uncertain_attempts else Outcome.FAILED
        # Whether the sequence was used is not known: a new producer begins.
        self._producer_id = -1

    async def _attempt(self, batch: bytes, send: Send) -> int | None:
        """As `produce`, with the offset noted."""
        options = self._options
        code, offset = await produce(
            self.client,
            self.place,
            batch,
            purpose=self.name,
            acks=options.acks,
            timeout_s=options.request_timeout_s,
        )
        if code == 0:
            send.offset = offset
        return code

    async def _maybe_resend_old(self, batch: bytes, send: Send) -> None:
        """Misbehave: the batch before this one again, though its successor was acknowledged."""
        last, self._last = self._last, (batch, send)
        if last is None or self.client.random.random() >= self._options.resend_old:
            return
        echo = Send(client=self.name, place=self.place, values=(), acks=-1, idempotent=True, invoked=self.client.now)
        code = await self._attempt(last[0], echo)
        self._history.resent += code == 0
        if code == 0 and echo.offset != last[1].offset:
            self._history.unexpected.append(
                f"{self.name} sent {last[1].values[0]!r} to {self.place} again: it was at {last[1].offset}, and the "
                f"answer said {echo.offset}"
            )

    async def _init_producer(self, deadline: float) -> bool:
        client = self.client
        self._last = None
        while client.now < deadline:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            try:
                response = await client.anywhere(request, InitProducerIdResponse)
            except (Lost, Malformed):
                await client.sleep(0.1)
                continue
            if not response.error_code:
                self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
                self._sequence = 0
                self._history.identities.append(
                    Identity(f"{self.name}#{client.now}", response.producer_id, 0, client.now, client.now)
                )
                return True
            await client.sleep(0.1)
        return False

    def _batch(self, values: tuple[bytes, ...]) -> bytes:
        if self._options.idempotent:
            builder = BatchBuilder(
                producer_id=self._producer_id, producer_epoch=self._producer_epoch, base_sequence=self._sequence
            )
        else:
            builder = BatchBuilder()
        return fill(builder, self.client, values, keys=self._options.keys)
