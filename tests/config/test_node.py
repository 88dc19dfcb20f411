"""A node's properties: what Kafka takes we take, what Kafka refuses we refuse, in a sentence that names the key."""

from __future__ import annotations

import pytest

from ottla.config.dynamic import replay_broker
from ottla.config.key import InvalidConfig
from ottla.config.listeners import Listener, Voter
from ottla.config.node import NodeConfig

from .recorded import MINIMAL, node, refusals

STRICTER = {
    # Ports that no socket has; Kafka finds out when it binds.
    '{"listeners": "PLAINTEXT://h:70000,CONTROLLER://h:2"}',
    '{"listeners": "PLAINTEXT://h:-1,CONTROLLER://h:0"}',
    # A class that cannot be loaded; Kafka finds out when it loads it.
    '{"authorizer.class.name": "nope"}',
}
LOOSER = {
    # Class names are kept as they are: nothing is loaded by name.
    '{"principal.builder.class": "java.lang.String"}',
    '{"principal.builder.class": "nope"}',
}


def test_properties_end_as_in_kafka() -> None:
    same_sentence = 0
    for overrides, answer in refusals()["properties"]:
        shown = str(overrides).replace("'", '"')
        try:
            node(overrides)
            ours = "OK"
        except InvalidConfig as refused:
            ours = refused.message or ""
            assert any(key in ours for key in (*overrides, "log.retention.ms", "listeners", "broker.id")), ours
            assert "\n" not in ours
        if shown in STRICTER:
            assert ours != "OK"
        elif shown in LOOSER:
            assert ours == "OK"
        else:
            assert (ours == "OK") == (answer == "OK"), (overrides, answer, ours)
            same_sentence += answer.replace("requirement failed: ", "").endswith(ours)
    assert same_sentence > 110


def test_defaults_are_kafkas() -> None:
    config = node()
    assert config.get_int("num.partitions") == 1
    assert config.get_bool("auto.create.topics.enable")
    assert config.get_float("log.cleaner.min.cleanable.ratio") == 0.5
    assert config.get_list("log.cleanup.policy") == ("delete",)
    assert config.find_text("broker.rack") is None
    assert config.find_int("log.retention.ms") is None
    assert config["compression.type"] == "producer"
    assert config.log_dirs == ("/tmp/kafka-logs",)
    with pytest.raises(KeyError):
        config["nope"]


def test_unknown_keys_are_kept_and_warned_about() -> None:
    config = node({"my.plugin.key": "x"})
    assert config.unknown == ("my.plugin.key",)
    assert list(config.warnings()) == ["The configuration 'my.plugin.key' is not known and has no effect."]
    assert list(node().warnings()) == []


def test_set_wins_over_the_file() -> None:
    text = "\n".join(f"{name}={value}" for name, value in MINIMAL.items()) + "\nnum.partitions=3\n"
    assert NodeConfig.from_text(text).get_int("num.partitions") == 3
    assert NodeConfig.from_text(text, {"num.partitions": "7"}).get_int("num.partitions") == 7


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.ms": "-7"}, -1),
    ],
)
def test_retention_takes_the_finest_unit(properties: dict[str, str], retention_ms: int) -> None:
    assert node(properties).log_retention_ms == retention_ms


def test_roll_and_flush_have_synonyms_too() -> None:
    assert node({"log.roll.hours": "2"}).log_roll_ms == 7_200_000
    assert node({"log.roll.hours": "2", "log.roll.ms": "5"}).log_roll_ms == 5
    assert node({"log.roll.jitter.hours": "2"}).log_roll_jitter_ms == 7_200_000
    assert node().log_flush_interval_ms == 2**63 - 1
    assert node({"log.flush.scheduler.interval.ms": "9"}).log_flush_interval_ms == 9
    assert node({"log.flush.interval.ms": "8"}).log_flush_interval_ms == 8


def test_listeners_are_split_by_role() -> None:
    config = node(
        {
            "listeners": "PLAINTEXT://:9092,internal://[::1]:9094,CONTROLLER://0.0.0.0:9093",
            "advertised.listeners": "PLAINTEXT://example.org:19092,INTERNAL://10.0.0.1:9094",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:plaintext,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "internal",
        }
    )
    assert config.broker_listeners == (
        Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),
        Listener("INTERNAL", "::1", 9094, "PLAINTEXT"),
    )
    assert [str(listener) for listener in config.advertised_broker_listeners] == [
        "PLAINTEXT://example.org:19092",
        "INTERNAL://10.0.0.1:9094",
    ]
    assert config.controller_listeners == (Listener("CONTROLLER", "0.0.0.0", 9093, "PLAINTEXT"),)
    assert config.advertised_controller_listeners == (Listener("CONTROLLER", "", 9093, "PLAINTEXT"),)
    assert config.inter_broker_listener_name == "INTERNAL"
    assert str(config.broker_listeners[1]) == "INTERNAL://[::1]:9094"


def test_a_listener_may_have_values_of_its_own() -> None:
    config = node({"max.connections": "10", "listener.name.plaintext.max.connections": "5"})
    assert config.listener_value("PLAINTEXT", "max.connections") == 5
    assert config.listener_value("CONTROLLER", "max.connections") == 10
    with pytest.raises(InvalidConfig, match=r"listener\.name\.plaintext\.max\.connections"):
        node({"listener.name.plaintext.max.connections": "many"})


def test_quorum_addresses_are_parsed() -> None:
    config = node({"controller.quorum.voters": "1@[::1]:9093,2@host-2:9094"})
    assert config.voters == (Voter(1, "::1", 9093), Voter(2, "host-2", 9094))
    assert config.bootstrap_controllers == (("127.0.0.1", 9093),)
    assert node({"max.connections.per.ip.overrides": "10.0.0.1:5, h:6"}).connection_limits == {"10.0.0.1": 5, "h": 6}


def test_directories_fall_back() -> None:
    config = node({"log.dirs": "/a, /b"})
    assert config.log_dirs == ("/a", "/b")
    assert config.metadata_log_dir == "/a"
    assert node({"log.dirs": "/a", "metadata.log.dir": "/m"}).metadata_log_dir == "/m"


def test_a_dynamic_config_hides_the_synonyms_below_it() -> None:
    config = node({"log.retention.hours": "24"}).with_dynamic({"log.retention.ms": "5"}, {})
    assert config.log_retention_ms == 5
    assert config["log.retention.hours"] == 168
    assert config.with_dynamic({}, {}).log_retention_ms == 86_400_000
    assert config.with_dynamic({"log.retention.ms": "5"}, {"log.retention.ms": "6"}).log_retention_ms == 6


def test_committed_configs_never_stop_a_node() -> None:
    config, ignored = replay_broker(
        node(),
        {"num.partitions": "9", "log.retention.ms": "soon", "log.segment.bytes": "2000000", "future.key": "x"},
        {"log.roll.ms": "7"},
    )
    assert config.get_int("num.partitions") == 1
    assert config.get_int("log.segment.bytes") == 2_000_000
    assert config.log_roll_ms == 7
    assert config.unknown == ("future.key",)
    assert [sentence.split(": ")[0] for sentence in ignored] == [
        "The dynamic config num.partitions is ignored",
        "The dynamic config log.retention.ms is ignored",
    ]


def test_committed_configs_that_do_not_fit_together_are_left_out() -> None:
    config, ignored = replay_broker(node(), {"log.segment.bytes": "2000000"}, {"log.roll.ms": "0"})
    assert config.get_int("log.segment.bytes") == 2_000_000
    assert config.log_roll_ms == 168 * 3_600_000
    assert ignored == [
        "Dynamic configs are ignored because they do not fit together: log.roll.ms must be greater than or equal to 1"
    ]
    config, ignored = replay_broker(node(), {"log.roll.ms": "0"}, {"log.retention.ms": "0"})
    assert config.log_retention_ms == 168 * 3_600_000
    assert len(ignored) == 3
