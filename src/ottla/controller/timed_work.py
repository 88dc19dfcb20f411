"""What the controller does by the clock, rather than when it is asked.

Brokers that are not heard of are fenced; preferred replicas are given their leaderships back; partitions that may lose
records rather than wait get a leader; delegation tokens that have expired are let go of; and a log that others read
grows by a record that says nothing, so that they can tell a quiet controller from a dead one. `step` does one of these
at a time and is called again until it has nothing more to say: each step must see what the one before it did.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.controller.cluster_control import ClusterControl
from ottla.controller.election_control import ElectionControl
from ottla.controller.settings import ControllerSettings
from ottla.controller.token_control import TokenControl
from ottla.metadata.records import MetadataRecord

_CONFIG_RECORD = 4
_UNCLEAN_KEY = "unclean.leader.election.enable"


class TimedWork:
    def __init__(
        self,
        settings: ControllerSettings,
        cluster: ClusterControl,
        elections: ElectionControl,
        tokens: TokenControl,
        now_ms: int,
    ) -> None:
        self._settings = settings
        self._cluster = cluster
        self._elections = elections
        self._tokens = tokens
        self._tokens_ms = now_ms + settings.token_check_interval_ms
        self._unclean_ms = now_ms + settings.unclean_election_interval_ms
        self._balance_ms = now_ms + settings.balance_interval_ms
        self._no_op_ms = now_ms + settings.idle_interval_ms
        self._unclean_allowed = False
        self.has_listeners = False

    def on_appended(self, records: Sequence[MetadataRecord]) -> None:
        """A config that newly allows unclean elections does not wait for the clock."""
        if any(r.message.API_KEY == _CONFIG_RECORD and _names(r, _UNCLEAN_KEY) for r in records):
            self._unclean_allowed = True

    def next_ms(self) -> int:
        if self._unclean_allowed:
            return 0
        times = [self._unclean_ms]
        if self._settings.token_secret is not None:
            times.append(self._tokens_ms)
        if self._settings.balances_leaders:
            times.append(self._balance_ms)
        if self._writes_no_ops:
            times.append(self._no_op_ms)
        session_ms = self._cluster.next_session_check_ms()
        if session_ms is not None:
            times.append(session_ms)
        return min(times)

    def step(self, now_ms: int, wall_ms: int) -> list[MetadataRecord]:
        return (
            self._fence(now_ms)
            or self._elect_uncleanly(now_ms)
            or self._balance(now_ms)
            or self._sweep_tokens(now_ms, wall_ms)
            or self._no_op(now_ms)
        )

    def _sweep_tokens(self, now_ms: int, wall_ms: int) -> list[MetadataRecord]:
        if self._settings.token_secret is None or now_ms < self._tokens_ms:
            return []
        records = self._tokens.sweep(wall_ms)
        if not records:
            self._tokens_ms = now_ms + self._settings.token_check_interval_ms
        return records

    def _fence(self, now_ms: int) -> list[MetadataRecord]:
        return self._cluster.fence_stale_broker(now_ms)

    def _elect_uncleanly(self, now_ms: int) -> list[MetadataRecord]:
        if not self._unclean_allowed and now_ms < self._unclean_ms:
            return []
        records = self._elections.unclean_step()
        if not records:
            self._unclean_allowed = False
            self._unclean_ms = now_ms + self._settings.unclean_election_interval_ms
        return records

    def _balance(self, now_ms: int) -> list[MetadataRecord]:
        if not self._settings.balances_leaders or now_ms < self._balance_ms:
            return []
        records = self._elections.balance_step()
        if not records:
            self._balance_ms = now_ms + self._settings.balance_interval_ms
        return records

    @property
    def _writes_no_ops(self) -> bool:
        return self.has_listeners and self._settings.idle_interval_ms > 0

    def _no_op(self, now_ms: int) -> list[MetadataRecord]:
        from ottla.wire.messages.no_op_record import NoOpRecord

        if not self._writes_no_ops or now_ms < self._no_op_ms:
            return []
        self._no_op_ms = now_ms + self._settings.idle_interval_ms
        return [MetadataRecord(NoOpRecord(), 0)]


def _names(record: MetadataRecord, key: str) -> bool:
    from ottla.wire.messages.config_record import ConfigRecord

    return isinstance(record.message, ConfigRecord) and record.message.name == key
