"""Where `ottla group seek` would go is where kafka-consumer-groups would, beside Ottla and beside Apache Kafka."""

from __future__ import annotations

import pytest

from ottla.admin import groups, seeking, topics
from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings
from ottla.model import TopicPartition
from tests.cli.sessions import run_ottla

from .conftest import At

pytestmark = pytest.mark.oracle

BEGIN_MS = 1_700_000_000_000

SCENARIOS: list[tuple[tuple[str, ...], seeking.Target]] = [
    (("--to-earliest",), seeking.ToEarliest()),
    (("--to-latest",), seeking.ToLatest()),
    (("--to-offset", "4"), seeking.ToOffset(4)),
    (("--to-offset", "0"), seeking.ToOffset(0)),
    (("--to-offset", "1000"), seeking.ToOffset(1000)),
    (("--shift-by", "1"), seeking.ShiftBy(1)),
    (("--shift-by", "-100"), seeking.ShiftBy(-100)),
    (("--shift-by", "100"), seeking.ShiftBy(100)),
    (("--to-datetime", "2023-11-14T22:13:25.000Z"), seeking.ToTime(BEGIN_MS + 5_000)),
    (("--to-datetime", "2000-01-01T00:00:00.000Z"), seeking.ToTime(946_684_800_000)),
    (("--to-datetime", "2100-01-01T00:00:00.000Z"), seeking.ToTime(4_102_444_800_000)),
]


@pytest.mark.parametrize("which", ["at_node", "at_apache"])
def test_seek_plans_are_those_of_kafka_consumer_groups(
    which: str, topic: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", "/nonexistent/config.toml")
    at: At = request.getfixturevalue(which)
    group = f"group-of-{topic}"
    with BlockingClient(ClientSettings.parse({"bootstrap.servers": at.bootstrap})) as client:
        topics.create_topic(client, topic, partitions=2, replication_factor=1, configs={"retention.ms": "-1"})
        # Ten records a second apart in one partition, six in the other; the first two of the first are gone.
        for partition, count in ((0, 10), (1, 6)):
            lines = "".join(f'{{"value": "{n}", "timestamp": {BEGIN_MS + 1000 * n}}}\n' for n in range(count))
            produce = ["produce", topic, "-p", str(partition), "--from-json", "-b", at.bootstrap]
            status, _, said = run_ottla(produce, lines.encode())
            assert status == 0, said
        first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
        assert topics.delete_records(client, {first: 2}) == {first: 2}
        groups.commit_offsets(client, group, {first: groups.position_at(5), second: groups.position_at(3)})
        for options, target in SCENARIOS:
            asked = ("--reset-offsets", "--group", group, "--topic", topic, *options, "--dry-run")
            printed = at("kafka-consumer-groups", *asked).lines
            theirs = {}
            for line in printed:
                words = line.split()
                if len(words) == 4 and words[:2] == [group, topic]:
                    theirs[int(words[2])] = int(words[3])
            plan = seeking.plan_seek(client, group, target, [first, second])
            assert {move.partition: move.after for move in plan.moves} == theirs, (options, printed)
            assert len(theirs) == 2
        seeking.apply_seek(client, seeking.plan_seek(client, group, seeking.ToTime(BEGIN_MS + 4_500)))
        printed = at("kafka-consumer-groups", "--describe", "--group", group).lines
        positions = {
            int(words[2]): (int(words[3]), int(words[5])) for words in map(str.split, printed) if topic in words
        }
        assert positions == {0: (5, 5), 1: (5, 1)}
        described = groups.describe_group(client, group)
        assert {each.partition: each.lag for each in groups.lag_of(client, described)} == {0: 5, 1: 1}
