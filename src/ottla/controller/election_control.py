"""Elections that are asked for (ElectLeaders), and those that the controller holds by the clock.

By the clock it gives leaderships back to preferred replicas, and leaders to partitions that may have an unclean one.
Both go in steps: a step makes a bounded number of records, and whoever drives it comes again until there are none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.controller.generated import Generated, check_size
from ottla.controller.leadership import Entry, Leadership, TopicRules
from ottla.controller.partition_change import Election, Wanted, change_partition
from ottla.controller.speculation import Speculation
from ottla.errors import ErrorCode, KafkaError
from ottla.metadata.images import NO_LEADER
from ottla.metadata.records import MetadataRecord

if TYPE_CHECKING:
    from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest
    from ottla.wire.messages.elect_leaders_response import ElectLeadersResponse, PartitionResult

ELECTION_PREFERRED = 0
ELECTION_UNCLEAN = 1

ELECTIONS_PER_STEP_MAX = 1_000


class ElectionControl:
    def __init__(self, state: Speculation, leadership: Leadership) -> None:
        self._state = state
        self._leadership = leadership

    # Asked for.

    def elect_leaders(self, request: ElectLeadersRequest) -> Generated[ElectLeadersResponse]:
        from ottla.wire.messages.elect_leaders_response import ElectLeadersResponse, ReplicaElectionResult

        if request.election_type not in (ELECTION_PREFERRED, ELECTION_UNCLEAN):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no election of type {request.election_type}.")
        election = Election.PREFERRED if request.election_type == ELECTION_PREFERRED else Election.UNCLEAN
        records: list[MetadataRecord] = []
        response = ElectLeadersResponse()
        every = request.topic_partitions is None
        if request.topic_partitions is None:
            topics = self._state.image.topics.by_name.values()
            asked = [(topic.name, list(topic.partitions)) for topic in topics]
        else:
            asked = [(topic.topic, list(dict.fromkeys(topic.partitions))) for topic in request.topic_partitions]
        for name, partition_ids in asked:
            results = [self._elect_one(name, partition_id, election, records) for partition_id in partition_ids]
            if every:
                # Of all partitions, those that need no election are not worth a word.
                results = [result for result in results if result.error_code != ErrorCode.ELECTION_NOT_NEEDED]
            if results or not every:
                response.replica_election_results.append(ReplicaElectionResult(topic=name, partition_result=results))
            check_size(records)
        return Generated(records, response)

    def _elect_one(
        self, name: str, partition_id: int, election: Election, records: list[MetadataRecord]
    ) -> PartitionResult:
        from ottla.wire.messages.elect_leaders_response import PartitionResult

        code, message = ErrorCode.NONE, None
        topic = self._state.image.topic(name)
        partition = None if topic is None else topic.partitions.get(partition_id)
        if topic is None or partition is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            message = f"No such topic as {name}" if topic is None else f"No such partition as {name}-{partition_id}"
        elif (
            partition.leader == partition.preferred_leader
            if election is Election.PREFERRED
            else partition.leader != NO_LEADER
        ):
            code = ErrorCode.ELECTION_NOT_NEEDED
        else:
            entry = Entry(topic, partition_id, partition)
            record = self._elect(entry, self._leadership.topic_rules(name), election)
            if record is not None:
                records.append(record)
            elif election is Election.PREFERRED:
                code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            else:
                code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        return PartitionResult(partition_id=partition_id, error_code=code, error_message=message)

    def _elect(self, entry: Entry, rules: TopicRules, election: Election) -> MetadataRecord | None:
        topic, partition_id, partition = entry
        return change_partition(
            topic.topic_id, partition_id, partition, self._leadership.rules(partition, rules), Wanted(election=election)
        )

    # By the clock.

    def balance_step(self) -> list[MetadataRecord]:
        """Preferred replicas lead again, wherever they can."""
        displaced = (
            entry
            for entry in self._leadership.partitions()
            if entry.partition.leader != entry.partition.preferred_leader
        )
        return self._step(displaced, Election.PREFERRED)

    def unclean_step(self) -> list[MetadataRecord]:
        """Partitions without a leader whose topics would rather lose records than wait."""
        leaderless = (entry for entry in self._leadership.partitions() if entry.partition.leader == NO_LEADER)
        return self._step(leaderless, Election.UNCLEAN)

    def _step(self, entries: Iterable[Entry], election: Election) -> list[MetadataRecord]:
        records: list[MetadataRecord] = []
        known: dict[str, TopicRules] = {}
        for entry in entries:
            name = entry.topic.name
            rules = known.get(name)
            if rules is None:
                rules = known[name] = self._leadership.topic_rules(name)
            if election is Election.UNCLEAN and not rules.unclean:
                continue
            record = self._elect(entry, rules, election)
            if record is not None:
                records.append(record)
                if len(records) == ELECTIONS_PER_STEP_MAX:
                    break
        return records
