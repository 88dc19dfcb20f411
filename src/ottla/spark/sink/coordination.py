"""What the sink asks of transaction coordinators, over the blocking client: to begin, to end, to look, to fence.

The rules of transactions are those of the cluster's `transaction.version`: from level 2 on (KIP-890) a partition joins
a transaction by its first batch and every end brings a new epoch; below it partitions are added by request. Both are
spoken here, and `end` may be repeated under both, also by another process and after the level was changed in between:
what an answer leaves open is looked up (DescribeTransactions), and a pair of producer id and epoch stands for one
transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from ottla.client.blocking import BlockingClient, CoordinatorKind, Pending
from ottla.client.peer import PeerLost
from ottla.errors import ErrorCode, KafkaError
from ottla.model import NO_PRODUCER_EPOCH, TopicPartition
from ottla.spark.crash_points import reached
from ottla.spark.sink.two_phase import Claim, Staged
from ottla.wire.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from ottla.wire.messages.describe_transactions_response import DescribeTransactionsResponse, TransactionState
from ottla.wire.messages.end_txn_request import EndTxnRequest
from ottla.wire.messages.end_txn_response import EndTxnResponse
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.wire.messages.list_transactions_response import ListTransactionsResponse

FEATURE = "transaction.version"
BUMPS_EPOCH = 2
"""The level from which every transaction has an epoch of its own."""

_END_TXN_MAX = {False: 4, True: 5}
_PRODUCE_MAX = {False: 11, True: 12}
_EPOCH_LAST = 32_766
_TRANSACTION = CoordinatorKind.TRANSACTION
_OPEN = "Ongoing"
_COMMITTED = ("PrepareCommit", "CompleteCommit")
_ABORTED = ("PrepareAbort", "CompleteAbort")
_FENCING = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)


def is_fencing(error: KafkaError) -> bool:
    """Does it say that somebody else has taken over the transactional id, or ended its transaction?"""
    return error.code in _FENCING


class Coordination:
    def __init__(self, client: BlockingClient) -> None:
        self.client = client

    @cached_property
    def bumps_epoch(self) -> bool:
        """Are the rules those of level 2?"""
        from ottla import __version__

        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
        answer = self.client.persist(lambda: self.client.ask_any(request, ApiVersionsResponse))
        levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        return levels.get(FEATURE, 0) >= BUMPS_EPOCH

    @property
    def produce_version_max(self) -> int:
        return _PRODUCE_MAX[self.bumps_epoch]

    # Beginning.

    def init(self, transactional_id: str | None, timeout_ms: int, expected: Claim | None = None) -> Claim:
        """A producer id and an epoch. Under a transactional id, whoever had an older epoch is fenced, and what it left
        open is aborted before this returns; with `expected`, PRODUCER_FENCED if that is not the newest."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        if expected is not None:
            request.producer_id, request.producer_epoch = expected
        if transactional_id is None:
            answer = self.client.persist(lambda: _checked(self.client.ask_any(request, InitProducerIdResponse)))
        else:
            answer = self.client.to_coordinator(_TRANSACTION, transactional_id, request, InitProducerIdResponse)
        return Claim(answer.producer_id, answer.producer_epoch)

    def coordinator(self, transactional_id: str) -> int:
        return self.client.coordinator(_TRANSACTION, transactional_id)

    def add_partitions(self, staged: Staged, partitions: Iterable[TopicPartition]) -> None:
        topics: dict[str, list[int]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=staged.transactional_id,
            v3_and_below_producer_id=staged.producer_id,
            v3_and_below_producer_epoch=staged.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        self.client.to_coordinator(
            _TRANSACTION,
            staged.transactional_id,
            request,
            AddPartitionsToTxnResponse,
            errors=lambda answer: [
                result.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            ],
            max_version=3,
        )

    # Ending.

    def end(self, staged: Staged, commit: bool) -> bool:
        """Ends a transaction, or finds that it has ended. False if it ended the other way, or is not known at all."""
        try:
            self.client.to_coordinator(
                _TRANSACTION,
                staged.transactional_id,
                _end_request(staged, commit),
                EndTxnResponse,
                max_version=_END_TXN_MAX[self.bumps_epoch],
            )
        except KafkaError as error:
            if not is_fencing(error):
                raise
            found = self.client.persist(lambda: self._describe([staged])).get(staged.transactional_id)
            return found is not None and _is_of(found, staged) and _ended_as(found) is commit
        return True

    def end_all(self, staged: Sequence[Staged], commit: bool) -> list[Staged]:
        """Ends them all, asking each one's coordinator without waiting for the other answers. Returns those for which
        `end` would say False."""
        started: list[Pending[EndTxnResponse] | None] = []
        version_max = _END_TXN_MAX[self.bumps_epoch]
        for each in staged:
            try:
                request = _end_request(each, commit)
                pending = self.client.start(each.coordinator, request, EndTxnResponse, max_version=version_max)
            except PeerLost:
                started.append(None)
            else:
                started.append(pending)
            reached(f"end-sent-{len(started)}")
        otherwise: list[Staged] = []
        for number, (each, waiting) in enumerate(zip(staged, started, strict=True), 1):
            if not self._has_ended(waiting) and not self.end(each, commit):
                otherwise.append(each)
            reached(f"ended-{number}")
        return otherwise

    def _has_ended(self, pending: Pending[EndTxnResponse] | None) -> bool:
        try:
            return pending is not None and not self.client.finish(pending).error_code
        except PeerLost:
            return False

    # Looking.

    def not_open(self, staged: Sequence[Staged]) -> list[Staged]:
        """Those that are not open any more. None where the cluster is too old to tell (Kafka before 3.0)."""
        try:
            found = self.client.persist(lambda: self._describe(staged))
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return []
            raise
        missing = []
        for each in staged:
            state = found.get(each.transactional_id)
            if (
                state is None
                or state.transaction_state != _OPEN
                or (state.producer_id, state.producer_epoch) != (each.producer_id, each.producer_epoch)
            ):
                missing.append(each)
        return missing

    def _describe(self, staged: Sequence[Staged]) -> Mapping[str, TransactionState]:
        """What is known of each. Raises a `KafkaError` that passes where a coordinator moves."""
        by_node: dict[int, list[str]] = {}
        for each in staged:
            by_node.setdefault(self._coordinator_of(each), []).append(each.transactional_id)
        found: dict[str, TransactionState] = {}
        for node, ids in by_node.items():
            try:
                answer = self.client.ask(
                    node, DescribeTransactionsRequest(transactional_ids=ids), DescribeTransactionsResponse
                )
            except PeerLost:
                self._moved.update(ids)
                raise
            for state in answer.transaction_states:
                code = ErrorCode(state.error_code)
                if code is ErrorCode.NONE:
                    found[state.transactional_id] = state
                elif code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    self._moved.add(state.transactional_id)
                    raise KafkaError(code, f"The transaction {state.transactional_id} cannot be looked at.")
        return found

    @cached_property
    def _moved(self) -> set[str]:
        """Whose coordinator is not where it was when they were staged."""
        return set()

    def _coordinator_of(self, staged: Staged) -> int:
        if staged.coordinator < 0 or staged.transactional_id in self._moved:
            return self.coordinator(staged.transactional_id)
        return staged.coordinator

    # Orphans.

    def open_under(self, prefix: str, patience_ms: int | None = None) -> list[Staged]:
        """The open transactions under ids that begin so, as far as the cluster lets us see them. All brokers are waited
        for, unless there is a limit to our patience: then those that cannot be asked just now are passed over."""

        def attempt() -> list[Staged]:
            listed: list[Staged] = []
            for node in self.client.nodes():
                try:
                    listed += self._listed_by(node, patience_ms)
                except KafkaError as error:
                    if patience_ms is None or not error.code.retriable:
                        raise
            wanted = {each.transactional_id: each for each in listed if each.transactional_id.startswith(prefix)}
            found = self._describe(list(wanted.values()))  # A list does not tell epochs.
            return [
                Staged(name, state.producer_id, state.producer_epoch, wanted[name].coordinator)
                for name, state in found.items()
                if state.transaction_state == _OPEN
            ]

        try:
            return self.client.persist(attempt, timeout_ms=patience_ms)
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return []  # Kafka before 3.0.
            raise

    def _listed_by(self, node: int, patience_ms: int | None) -> list[Staged]:
        request = ListTransactionsRequest(state_filters=[_OPEN])
        answer = self.client.ask(node, request, ListTransactionsResponse, timeout_ms=patience_ms)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), f"Broker {node} cannot list its transactions.")
        return [
            Staged(state.transactional_id, state.producer_id, NO_PRODUCER_EPOCH, node)
            for state in answer.transaction_states
        ]

    def is_newest(self, transactional_id: str, claim: Claim) -> bool:
        """Has nobody claimed the id since? Of a claim that has decided nothing yet: the end of a decision's transaction
        raises the epoch, too."""
        asked = Staged(transactional_id, *claim)
        state = self.client.persist(lambda: self._describe([asked])).get(transactional_id)
        return state is not None and (state.producer_id, state.producer_epoch) == claim

    def abort_orphans(self, orphans: Sequence[Staged], timeout_ms: int) -> None:
        """Aborts these transactions and no later ones of their ids; who has written in them cannot go on."""
        if self.bumps_epoch:
            self.end_all(orphans, commit=False)
            return
        for each in orphans:
            # An end would leave the epoch as it is, and who still writes under it might leave records open for good.
            # This raises it, but compares no epoch while a transaction is open: should our claim be gone by now, and a
            # task of the next one write under this very id, it is that task's that is aborted. Its driver looks before
            # it decides, and would fail the batch whole.
            try:
                self.init(each.transactional_id, timeout_ms, Claim(each.producer_id, each.producer_epoch))
            except KafkaError as error:
                if not is_fencing(error):
                    raise


def _end_request(staged: Staged, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=staged.transactional_id,
        producer_id=staged.producer_id,
        producer_epoch=staged.producer_epoch,
        committed=commit,
    )


def _is_of(state: TransactionState, staged: Staged) -> bool:
    """Is it the transaction that was staged, ended or not? An end by level 2 has raised the epoch by one, and where
    there was none left, brought another producer id."""
    if state.producer_id == staged.producer_id:
        return state.producer_epoch in (staged.producer_epoch, staged.producer_epoch + 1)
    return staged.producer_epoch == _EPOCH_LAST and state.producer_epoch == 0


def _ended_as(state: TransactionState) -> bool | None:
    if state.transaction_state in _COMMITTED:
        return True
    return False if state.transaction_state in _ABORTED else None


def _checked(answer: InitProducerIdResponse) -> InitProducerIdResponse:
    if answer.error_code:
        raise KafkaError(ErrorCode(answer.error_code), "No producer id could be had.")
    return answer
