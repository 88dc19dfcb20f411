"""The generator: from a definition with comments to a class."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from ottla.wire.message import Message
from tools.codegen.definitions import JARS, load, snake_case
from tools.codegen.emit import index_text, module_text

DEFINITION = """
// A licence.
{
  "apiKey": 7, "type": "request", "listeners": ["broker"], "name": "SampleRequest",
  // Version 2 is the first flexible one.
  "validVersions": "1-3", "flexibleVersions": "2+", "latestVersionUnstable": true,
  "fields": [
    { "name": "ClusterId", "type": "string", "versions": "1+", "nullableVersions": "1+", "default": "null",
      "about": "PROSE http://not.a/comment" },
    { "name": "MaxWaitMs", "type": "int32", "versions": "2+", "default": "0x7fffffff", "ignorable": true },
    { "name": "Topics", "type": "[]SampleTopic", "versions": "1+", "nullableVersions": "2+", "fields": [
      { "name": "Id", "type": "uuid", "versions": "1+" },
      { "name": "Leader", "type": "SampleLeader", "versions": "1+", "tag": 0, "taggedVersions": "2+" }
    ]}
  ],
  "commonStructs": [
    { "name": "SampleLeader", "versions": "1+", "fields": [
      { "name": "Epoch", "type": "int32", "versions": "1+", "default": "-1" } ]}
  ]
}
"""
GONE = '{"type": "request", "name": "GoneRequest", "validVersions": "none", "apiKey": 6}'


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    response = {"apiKey": 7, "type": "response", "name": "SampleResponse", "validVersions": "1-3"}
    for stem in JARS:
        with zipfile.ZipFile(tmp_path / f"{stem}-9.9.9.jar", "w") as jar:
            if stem == "kafka-clients":
                jar.writestr("common/message/SampleRequest.json", DEFINITION)
                jar.writestr("common/message/GoneRequest.json", GONE)
                jar.writestr("common/message/SampleResponse.json", json.dumps({**response, "flexibleVersions": "2+"}))
                jar.writestr("other/Thing.json", "not JSON")
    return tmp_path


def test_a_definition_becomes_a_class(jars: Path) -> None:
    release, definitions = load(jars)
    assert release == "9.9.9"
    assert [definition.name for definition in definitions] == ["SampleRequest", "SampleResponse"]
    text = module_text(definitions[0], release)
    assert "PROSE" not in text
    module = ModuleType("generated_sample")
    sys.modules[module.__name__] = module  # Structs are found in their message's module.
    try:
        exec(text, module.__dict__)
        owner: type[Message] = module.SampleRequest
        made = owner()
        assert repr(made) == "SampleRequest(cluster_id=None, max_wait_ms=2147483647, topics=[])"
        made = module.SampleRequest("c", topics=[module.SampleTopic(leader=module.SampleLeader(5))])
        for version in (2, 3):
            assert owner.decode(made.encode(version), version) == made
        assert made.encode(2).hex() == "0263" + "7fffffff" + "02" + "00" * 16 + "01" + "0005" + "00000005" + "00" + "00"
        assert owner.decode(made.encode(1), 1).encode(1).hex() == "000163" + "00000001" + "00" * 16 + "00000005"
    finally:
        del sys.modules[module.__name__]


def test_the_index_knows_stable_versions(jars: Path) -> None:
    _, definitions = load(jars)
    names: dict[str, dict[int, object]] = {}
    exec(index_text(definitions, "9.9.9"), names)
    assert names["APIS"] == {7: ("Sample", 1, 2, 3, 2, ("broker",))}


@pytest.mark.parametrize(
    ("name", "snake"),
    [
        ("TransactionalId", "transactional_id"),
        ("KRaftVersionRecord", "kraft_version_record"),
        ("RemoveAccessControlEntryRecord", "remove_access_control_entry_record"),
        ("TTLMs", "ttl_ms"),
    ],
)
def test_names(name: str, snake: str) -> None:
    assert snake_case(name) == snake
