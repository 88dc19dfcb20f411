"""What is wrong with a cluster, and what to do about it: facts gathered once, then judged without asking again.

`examine` asks; each judge is a plain function of `Facts`. A finding says what it is about, what is wrong, and the next
step, in one sentence each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ottla.admin import groups, log_dirs, topics, transactions
from ottla.admin.asking import why
from ottla.admin.cluster import Cluster, Quorum, describe_cluster, describe_quorum
from ottla.admin.offsets import MAX_TIMESTAMP, FoundOffset, look_up
from ottla.client.blocking import BlockingClient
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition
from ottla.wire.messages.api_versions_request import ApiVersionsRequest

ERROR, WARNING = "error", "warning"

_PROBE = ApiVersionsRequest()
"""Whoever can say in which version it would take this has been reached."""

_ASK_AS_ANOTHER = "Ask as somebody who may describe the cluster."

_NEXT_STEPS = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _ASK_AS_ANOTHER,
    ErrorCode.REQUEST_TIMED_OUT: "Start the controllers that are down.",
    ErrorCode.NOT_CONTROLLER: "Start the controllers that are down.",
}
"""What to do where the cluster itself says why it does not answer."""

_SHOWN_MAX = 5
"""So many partitions are named; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From where on something is worth a word."""

    group_lag: int = 10_000
    clock_skew_ms: int = 5_000
    free_share_min: float = log_dirs.FREE_SHARE_MIN
    """Of a volume, and"""
    free_bytes_enough: float = log_dirs.FREE_BYTES_ENOUGH
    """on any."""
    hanging_ms: int = 900_000
    """A transaction may last as long as `transaction.max.timeout.ms`, which is a quarter of an hour by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    severity: str
    subject: str
    problem: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    now_ms: int
    cluster: Cluster
    unreachable: dict[int, str] = field(default_factory=dict)
    """Brokers that do not answer at the address that the cluster tells clients, and why."""
    quorum: Quorum | None = None
    clock_skew_ms: int = 0
    """How far the clock of the quorum's leader is ahead of ours, beyond what the asking took."""
    partitions: list[topics.Partition] = field(default_factory=list)
    directories: list[log_dirs.LogDirectory] = field(default_factory=list)
    lags: dict[str, int] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    open_transactions: list[transactions.Transaction] = field(default_factory=list)
    hanging: list[transactions.OpenProducer] = field(default_factory=list)
    newest_ms: dict[TopicPartition, int] = field(default_factory=dict)
    unanswered: list[KafkaError] = field(default_factory=list)
    """What could not be asked, with a sentence each."""


def examine(client: BlockingClient, *, clock: Callable[[], int], limits: Limits) -> list[Finding]:
    """Everything that is wrong, the worst first. A cluster that does not answer at all is `KafkaError`."""
    return judge(gather(client, clock=clock, limits=limits), limits)


def gather(client: BlockingClient, *, clock: Callable[[], int], limits: Limits) -> Facts:
    """`clock` tells milliseconds since 1970."""
    found = describe_cluster(client)
    facts = Facts(now_ms=clock(), cluster=found)
    for broker in found.brokers:
        if broker.is_fenced:
            continue
        try:
            client.version_of(broker.node, _PROBE)
        except KafkaError as error:
            facts.unreachable[broker.node] = why(error)
    all_topics = topics.list_topics(client)
    facts.partitions.extend(each for topic in all_topics for each in topic.partitions)
    keys = [TopicPartition(each.topic, each.partition) for each in facts.partitions if not each.is_offline]
    answering = [each.node for each in found.brokers if not each.is_fenced and each.node not in facts.unreachable]
    facts.directories.extend(log_dirs.describe_log_dirs(client, [], answering))
    if keys:
        client.topics({each.topic for each in keys})
        newest = look_up(client, dict.fromkeys(keys, MAX_TIMESTAMP))
        facts.newest_ms.update(
            {key: each.timestamp_ms for key, each in newest.items() if isinstance(each, FoundOffset)}
        )
    quorum: Quorum | None = None
    skew_ms = 0
    try:
        asked_ms = clock()
        quorum = describe_quorum(client)
        skew_ms = _skew_ms(quorum, asked_ms, clock())
    except KafkaError as error:
        facts.unanswered.append(error)
    if not facts.unreachable:
        _gather_clients(client, facts, keys, limits)
    return replace(facts, quorum=quorum, clock_skew_ms=skew_ms)


def _gather_clients(client: BlockingClient, facts: Facts, keys: list[TopicPartition], limits: Limits) -> None:
    """Groups and transactions: their coordinators must answer, all of them."""
    try:
        for each in groups.list_groups(client):
            if each.is_of_consumers and each.protocol in ("", groups.CONSUMER, groups.CLASSIC):
                described = groups.describe_group(client, each.group_id)
                facts.lags[each.group_id] = sum(lag.lag or 0 for lag in groups.lag_of(client, described))
                facts.states[each.group_id] = described.state
        for listed in transactions.list_transactions(client):
            if listed.state == "Ongoing":
                facts.open_transactions.append(transactions.describe_transaction(client, listed.transactional_id))
        facts.hanging.extend(transactions.find_hanging(client, keys, now_ms=facts.now_ms, silent_ms=limits.hanging_ms))
    except KafkaError as error:
        facts.unanswered.append(error)


def judge(facts: Facts, limits: Limits) -> list[Finding]:
    judges = (_brokers, _partitions, _quorum, _disks, _transactions, _groups, _clocks)
    found = [finding for each in judges for finding in each(facts, limits)]
    found += [
        Finding(
            severity=WARNING,
            subject="cluster",
            problem=error.message or error.code.name,
            advice=_NEXT_STEPS.get(error.code, "Look into that broker's log."),
        )
        for error in facts.unanswered
    ]
    return sorted(found, key=lambda finding: finding.severity != ERROR)


def _brokers(facts: Facts, limits: Limits) -> Iterator[Finding]:
    for broker in facts.cluster.brokers:
        address = f"{broker.host}:{broker.port}"
        if broker.is_fenced:
            yield Finding(
                severity=ERROR,
                subject=f"broker {broker.node}",
                problem=f"It is registered as {address}, and fenced: it does not report to the controller.",
                advice="Start it, or look into its log; if it is gone for good, move its replicas away.",
            )
        elif broker.node in facts.unreachable:
            yield Finding(
                severity=ERROR,
                subject=f"broker {broker.node}",
                problem=f"Clients are told to reach it at {address}, and it does not answer there: "
                f"{facts.unreachable[broker.node]}.",
                advice="Start it; if it runs, set advertised.listeners to an address that clients can reach.",
            )


def _partitions(facts: Facts, limits: Limits) -> Iterator[Finding]:
    offline = [each for each in facts.partitions if each.is_offline]
    if offline:
        yield Finding(
            severity=ERROR,
            subject=_some(offline),
            problem="No replica leads: nothing can be written or read.",
            advice="Start the brokers of its replicas; as the last resort, `ottla cluster elect "
            f"{offline[0].topic}:{offline[0].partition} --unclean`: what that replica lacks is lost.",
        )
    behind = [each for each in facts.partitions if each.is_under_replicated and not each.is_offline]
    if behind:
        missing = sorted({node for each in behind for node in each.replicas if node not in each.isr})
        yield Finding(
            severity=ERROR,
            subject=_some(behind),
            problem=f"Under-replicated: {_brokers_are(missing)} not in sync.",
            advice="Start what is down, or see whether disks and network keep up.",
        )


def _quorum(facts: Facts, limits: Limits) -> Iterator[Finding]:
    if facts.quorum is None:
        return
    for each in facts.quorum.voters:
        silent_ms = _leader_clock(facts.quorum) - each.last_caught_up_ms
        if each.node != facts.quorum.leader and each.lag and silent_ms > limits.clock_skew_ms:
            since = f"It is {each.lag} records behind the quorum's leader, and has been for {silent_ms // 1000} s."
            yield Finding(
                severity=ERROR,
                subject=f"controller {each.node}",
                problem=since if each.last_caught_up_ms > 0 else "The quorum's leader has not heard of it.",
                advice="Start it, or look into its log: the quorum needs a majority of its voters.",
            )


def _disks(facts: Facts, limits: Limits) -> Iterator[Finding]:
    for each in facts.directories:
        subject = f"broker {each.node}"
        if each.error is not None:
            problem = f"{each.path or 'Its disks cannot be asked'}: {why(each.error)}."
            advice = "Replace the disk, then start the broker again." if each.path else "Look into its log."
            if each.error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                advice = _ASK_AS_ANOTHER
            yield Finding(severity=ERROR, subject=subject, problem=problem, advice=advice)
        elif each.is_nearly_full(free_share_min=limits.free_share_min, free_bytes_enough=limits.free_bytes_enough):
            percent = 100 * each.usable_bytes / each.total_bytes
            yield Finding(
                severity=WARNING,
                subject=subject,
                problem=f"The volume of {each.path} is nearly full: {percent:.1f} % are free.",
                advice="Shorten retention, trim topics, or add room before it is full.",
            )


def _transactions(facts: Facts, limits: Limits) -> Iterator[Finding]:
    for each in facts.open_transactions:
        age_ms = facts.now_ms - (facts.now_ms if each.started_ms is None else each.started_ms)
        if age_ms > each.timeout_ms + limits.clock_skew_ms + 60_000:
            yield Finding(
                severity=ERROR,
                subject=f"transaction {each.transactional_id}",
                problem=f"It has been open for {age_ms // 1000} s, longer than it may ({each.timeout_ms // 1000} s).",
                advice=f"End it with `ottla txn abort {each.transactional_id}`.",
            )
    for hanging in facts.hanging:
        yield Finding(
            severity=ERROR,
            subject=f"{hanging.topic}-{hanging.partition}",
            problem=f"It waits for a transaction of producer {hanging.producer_id} that nobody will end: readers of "
            "committed records stand still.",
            advice=f"End it with `ottla txn hanging {hanging.topic} --abort`.",
        )


def _groups(facts: Facts, limits: Limits) -> Iterator[Finding]:
    for group_id, lag in sorted(facts.lags.items()):
        if lag > limits.group_lag:
            idle = facts.states[group_id] in ("Empty", "Dead")
            yield Finding(
                severity=WARNING,
                subject=f"group {group_id}",
                problem=f"It is {lag} records behind" + (", and has no members." if idle else "."),
                advice=f"Start its members, or drop it with `ottla group delete {group_id}`."
                if idle
                else "Add members, up to the number of partitions, or make them quicker.",
            )


def _clocks(facts: Facts, limits: Limits) -> Iterator[Finding]:
    if facts.quorum is not None:
        skew_ms = facts.clock_skew_ms
        if abs(skew_ms) > limits.clock_skew_ms:
            way = "ahead of" if skew_ms > 0 else "behind"
            yield Finding(
                severity=WARNING,
                subject=f"controller {facts.quorum.leader}",
                problem=f"Its clock is {abs(skew_ms) // 1000} s {way} this machine's.",
                advice="Let both keep time by NTP: retention and timestamps depend on it.",
            )
    for partition, newest_ms in sorted(facts.newest_ms.items()):
        if newest_ms - facts.now_ms > max(limits.clock_skew_ms, 60_000):
            yield Finding(
                severity=WARNING,
                subject=str(partition),
                problem=f"It has a record from {(newest_ms - facts.now_ms) // 1000} s in the future.",
                advice="Mend the clock of its producer: until then retention by time does not delete.",
            )


def _skew_ms(quorum: Quorum, asked_ms: int, heard_ms: int) -> int:
    """How far the leader's clock is outside of the time in which it answered; 0 if it is not, or does not tell."""
    leader_ms = _leader_clock(quorum)
    if leader_ms <= 0:
        return 0
    return max(leader_ms - heard_ms, 0) or min(leader_ms - asked_ms, 0)


def _leader_clock(quorum: Quorum) -> int:
    """What time it is for the quorum's leader, which counts itself as caught up just now."""
    return max((each.last_caught_up_ms for each in quorum.voters if each.node == quorum.leader), default=-1)


def _brokers_are(nodes: list[int]) -> str:
    return f"broker {nodes[0]} is" if len(nodes) == 1 else f"brokers {', '.join(map(str, nodes))} are"


def _some(partitions: list[topics.Partition]) -> str:
    names = [f"{each.topic}-{each.partition}" for each in partitions[:_SHOWN_MAX]]
    more = len(partitions) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
