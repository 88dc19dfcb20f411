"""When the active controller last heard of each broker. Not metadata: a new controller starts the clocks anew."""

from __future__ import annotations

from collections.abc import Iterable

NO_SHUTDOWN_OFFSET = -1


class _Contact:
    __slots__ = ("heard", "last_ms", "metadata_offset", "shutdown_offset")

    def __init__(self, last_ms: int, *, heard: bool) -> None:
        self.last_ms = last_ms
        self.heard = heard
        self.metadata_offset = -1
        self.shutdown_offset = NO_SHUTDOWN_OFFSET


class Sessions:
    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._contacts: dict[int, _Contact] = {}

    def activate(self, broker_ids: Iterable[int], now_ms: int, *, own_broker: int) -> None:
        """A new controller gives every broker of `broker_ids`, the unfenced ones, a full timeout to be heard of.

        Until then each counts as alive, so that no other can take its id; but not the broker of this very node: if it
        comes back together with its controller, nobody knows better that its former self is dead.
        """
        self._contacts = {broker_id: _Contact(now_ms, heard=broker_id != own_broker) for broker_id in broker_ids}

    def touch(self, broker_id: int, now_ms: int, metadata_offset: int) -> None:
        contact = self._contacts.get(broker_id)
        if contact is None:
            contact = self._contacts[broker_id] = _Contact(now_ms, heard=True)
        contact.last_ms = now_ms
        contact.heard = True
        contact.metadata_offset = metadata_offset

    def remove(self, broker_id: int) -> None:
        self._contacts.pop(broker_id, None)

    def end(self, broker_id: int) -> None:
        """`broker_id` was told that it may stop: its next incarnation need not wait for this session."""
        contact = self._contacts.get(broker_id)
        if contact is not None:
            contact.heard = False

    def is_valid(self, broker_id: int, now_ms: int) -> bool:
        contact = self._contacts.get(broker_id)
        return contact is not None and contact.heard and contact.last_ms + self._timeout_ms >= now_ms

    def stale(self, broker_ids: Iterable[int], now_ms: int) -> int | None:
        """One of `broker_ids` that has not been heard of for too long."""
        for broker_id in broker_ids:
            contact = self._contacts.get(broker_id)
            if contact is None:
                # Registered by an earlier controller, and not known at activation: its clock starts now.
                self._contacts[broker_id] = _Contact(now_ms, heard=False)
            elif contact.last_ms + self._timeout_ms < now_ms:
                return broker_id
        return None

    def next_check_ms(self, broker_ids: Iterable[int]) -> int | None:
        times = [self._contacts[broker_id].last_ms for broker_id in broker_ids if broker_id in self._contacts]
        return min(times) + self._timeout_ms + 1 if times else None

    def forgive(self, now_ms: int) -> None:
        """The controller itself was paused, and could not have heard anybody."""
        for contact in self._contacts.values():
            contact.last_ms = now_ms

    def shutdown_offset(self, broker_id: int) -> int:
        contact = self._contacts.get(broker_id)
        return NO_SHUTDOWN_OFFSET if contact is None else contact.shutdown_offset

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        contact = self._contacts.get(broker_id)
        if contact is not None and contact.shutdown_offset == NO_SHUTDOWN_OFFSET:
            contact.shutdown_offset = offset

    def lowest_offset(self, broker_ids: Iterable[int]) -> int | None:
        """How far the slowest of `broker_ids` has read the metadata log."""
        offsets = [self._contacts[broker_id].metadata_offset for broker_id in broker_ids if broker_id in self._contacts]
        return min(offsets) if offsets else None
