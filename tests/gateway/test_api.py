"""The registry's API, request by request, with Confluent's codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.gateway.registry.stored import Reference, StoredSchema, schema_entry
from ottla.schemas.kinds import SchemaType
from tests.gateway.stage import Client, MemoryLog, play


def record(*fields: object, name: str = "r") -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: object = "int", **more: object) -> dict[str, object]:
    return {"name": name, "type": kind, **more}


A = record(field("a"))
AB = record(field("a"), field("b", default=0))


async def refused(client: Client, method: str, path: str, code: int, body: object = None) -> str:
    answer = await client.ask(method, path, body)
    assert answer.body["error_code"] == code, answer
    assert answer.status == (code if code < 1000 else code // 100)
    message: str = answer.body["message"]
    return message


def test_a_schema_gets_an_id_and_versions_count_by_subject() -> None:
    async def story(client: Client) -> None:
        assert (await client.register("x", A)).body["id"] == 1
        assert (await client.register("x", AB)).body["id"] == 2
        assert (await client.register("y", AB)).body["id"] == 2
        assert (await client.register("x", A)).body == (await client.register("x", json.dumps(A, indent=3))).body
        assert await client.get("/subjects") == ["x", "y"]
        assert await client.get("/subjects/x/versions") == [1, 2]
        latest = await client.get("/subjects/x/versions/latest")
        assert (latest["version"], latest["id"], latest["subject"]) == (2, 2, "x")
        assert json.loads(latest["schema"]) == AB
        assert "schemaType" not in latest
        by_id = await client.get("/schemas/ids/2")
        assert by_id["schema"] == latest["schema"]
        assert await client.get("/schemas/ids/2/schema") == AB
        assert await client.get("/schemas/ids/2/subjects") == ["x", "y"]
        assert await client.get("/schemas/ids/2/versions") == [
            {"subject": "x", "version": 2},
            {"subject": "y", "version": 1},
        ]
        assert await client.get("/subjects/x/versions/1/schema") == A
        assert (await client.get(f"/schemas/guids/{latest['guid']}"))["schema"] == latest["schema"]
        assert (await client.get("/schemas/ids/1?fetchMaxId=true"))["maxId"] == 2
        assert [each["id"] for each in await client.get("/schemas?latestOnly=true")] == [2, 2]
        assert len(await client.get("/schemas?subjectPrefix=x")) == 2

    play(story)


def test_what_is_not_there_is_said_with_its_code() -> None:
    async def story(client: Client) -> None:
        await client.register("x", A)
        assert await refused(client, "GET", "/subjects/none/versions", 40401) == "Subject 'none' not found."
        assert await refused(client, "GET", "/subjects/none/versions/1", 40401) == "Subject 'none' not found."
        assert await refused(client, "GET", "/subjects/x/versions/9", 40402) == "Version 9 not found."
        assert await refused(client, "GET", "/schemas/ids/77", 40403) == "Schema 77 not found"
        await refused(client, "GET", "/schemas/ids/77/subjects", 40403)
        await refused(client, "GET", "/schemas/ids/77/versions", 40403)
        await refused(client, "GET", "/schemas/guids/nonsense", 40403)
        await refused(client, "POST", "/subjects/none", 40401, {"schema": '"int"'})
        assert await refused(client, "POST", "/subjects/x", 40403, {"schema": '"int"'}) == "Schema not found"
        for version in ("0", "-2", "x", str(1 << 31)):
            await refused(client, "GET", f"/subjects/x/versions/{version}", 42202)
        await refused(client, "GET", "/config/x", 40408)
        await refused(client, "GET", "/mode/x", 40409)
        await refused(client, "DELETE", "/config/x", 40401)
        await refused(client, "DELETE", "/mode/x", 40401)
        await refused(client, "DELETE", "/subjects/none", 40401)
        await refused(client, "DELETE", "/subjects/none/versions/1", 40401)
        await refused(client, "DELETE", "/subjects/x/versions/9", 40402)
        await refused(client, "GET", "/nothing/here", 404)
        await refused(client, "GET", "/schemas/ids/x", 404)
        await refused(client, "PATCH", "/subjects", 405)

    play(story)


def test_a_schema_that_cannot_follow_is_refused() -> None:
    async def story(client: Client) -> None:
        await client.register("x", A)
        bad = record(field("a"), field("b"))
        answer = await client.register("x", bad)
        assert (answer.status, answer.body["error_code"]) == (409, 40901)
        assert "READER_FIELD_MISSING_DEFAULT_VALUE" in answer.body["message"]
        check = await client.ask("POST", "/compatibility/subjects/x/versions/latest", {"schema": json.dumps(bad)})
        assert check.body == {"is_compatible": False}
        told = await client.ask("POST", "/compatibility/subjects/x/versions?verbose=true", {"schema": json.dumps(bad)})
        assert told.body["is_compatible"] is False
        assert "oldSchemaVersion: 1" in str(told.body["messages"])
        fits = await client.ask("POST", "/compatibility/subjects/x/versions/1", {"schema": json.dumps(AB)})
        assert fits.body == {"is_compatible": True}
        new = await client.ask("POST", "/compatibility/subjects/new/versions/latest", {"schema": json.dumps(A)})
        assert new.body == {"is_compatible": True}
        await refused(client, "POST", "/compatibility/subjects/x/versions/7", 40402, {"schema": json.dumps(A)})
        await client.ask("PUT", "/config/x", {"compatibility": "none"})
        assert (await client.register("x", bad)).status == 200

    play(story)


def test_levels_of_subjects_and_of_all() -> None:
    async def story(client: Client) -> None:
        assert await client.get("/config") == {"compatibilityLevel": "BACKWARD"}
        assert (await client.ask("PUT", "/config", {"compatibility": "FULL"})).body == {"compatibility": "FULL"}
        assert await client.get("/config/x?defaultToGlobal=true") == {"compatibilityLevel": "FULL"}
        await client.ask("PUT", "/config/x", {"compatibility": "forward_transitive", "normalize": True})
        assert await client.get("/config/x") == {"compatibilityLevel": "FORWARD_TRANSITIVE", "normalize": True}
        await client.ask("PUT", "/config/x", {"normalize": None})
        deleted = await client.ask("DELETE", "/config/x")
        assert deleted.body == {"compatibilityLevel": "FORWARD_TRANSITIVE"}
        assert (await client.ask("DELETE", "/config")).body == {"compatibilityLevel": "FULL"}
        assert await client.get("/config") == {"compatibilityLevel": "BACKWARD"}
        await refused(client, "PUT", "/config", 42203, {"compatibility": "SIDEWAYS"})
        await refused(client, "PUT", "/config/x", 42203, {"compatibility": 7})

    play(story)


def test_modes_forbid_what_they_say() -> None:
    async def story(client: Client) -> None:
        await client.register("x", A)
        assert await client.get("/mode") == {"mode": "READWRITE"}
        assert (await client.ask("PUT", "/mode/x", {"mode": "READONLY"})).body == {"mode": "READONLY"}
        assert await client.get("/mode/x") == {"mode": "READONLY"}
        assert await client.get("/mode/y?defaultToGlobal=true") == {"mode": "READWRITE"}
        await refused(client, "POST", "/subjects/x/versions", 42205, {"schema": json.dumps(AB)})
        await refused(client, "DELETE", "/subjects/x", 42205)
        await refused(client, "DELETE", "/subjects/x/versions/1", 42205)
        await refused(client, "PUT", "/config/x", 42205, {"compatibility": "NONE"})
        assert (await client.ask("DELETE", "/mode/x")).body == {"mode": "READONLY"}
        await refused(client, "PUT", "/mode", 42204, {"mode": "SIDEWAYS"})
        await refused(client, "PUT", "/mode/x", 42205, {"mode": "IMPORT"})
        await refused(client, "POST", "/subjects/y/versions", 42205, {"schema": '"int"', "id": 7})

    play(story)


def test_an_import_brings_ids_and_versions_along() -> None:
    async def story(client: Client) -> None:
        await client.ask("PUT", "/mode/y", {"mode": "IMPORT"})
        answer = await client.ask("POST", "/subjects/y/versions", {"schema": '"int"', "id": 70, "version": 5})
        assert (answer.body["id"], answer.body["version"]) == (70, 5)
        await refused(client, "POST", "/subjects/y/versions", 42207, {"schema": '"long"', "id": 70})
        await refused(client, "POST", "/subjects/y/versions", 42205, {"schema": '"long"'})
        assert (await client.register("z", A)).body["id"] == 71

    play(story)


def test_soft_and_hard_deletes() -> None:
    async def story(client: Client) -> None:
        for schema in (A, AB):
            await client.register("x", schema)
        await refused(client, "DELETE", "/subjects/x/versions/1?permanent=true", 40407)
        await refused(client, "DELETE", "/subjects/x?permanent=true", 40405)
        assert (await client.ask("DELETE", "/subjects/x/versions/1")).body == 1
        await refused(client, "DELETE", "/subjects/x/versions/1", 40406)
        await refused(client, "GET", "/subjects/x/versions/1", 40402)
        assert (await client.get("/subjects/x/versions/1?deleted=true"))["deleted"] is True
        assert await client.get("/subjects/x/versions") == [2]
        assert await client.get("/subjects/x/versions?deleted=true") == [1, 2]
        assert await client.get("/subjects/x/versions?deletedOnly=true") == [1]
        assert json.loads((await client.get("/schemas/ids/1"))["schema"]) == A
        assert (await client.ask("DELETE", "/subjects/x")).body == [2]
        await refused(client, "DELETE", "/subjects/x", 40404)
        assert await client.get("/subjects") == []
        assert await client.get("/subjects?deleted=true") == ["x"]
        assert await client.get("/subjects?deletedOnly=true") == ["x"]
        assert await client.get("/schemas/ids/1/subjects?deleted=true") == ["x"]
        await refused(client, "GET", "/subjects/x/versions", 40401)
        assert (await client.ask("DELETE", "/subjects/x/versions/1?permanent=true")).body == 1
        assert (await client.ask("DELETE", "/subjects/x?permanent=true")).body == [2]
        await refused(client, "GET", "/subjects/x/versions?deleted=true", 40401)
        await refused(client, "GET", "/schemas/ids/1", 40403)

    play(story)


def test_a_deleted_schema_comes_back_with_its_id_and_a_new_version() -> None:
    async def story(client: Client) -> None:
        await client.register("x", A)
        await client.ask("DELETE", "/subjects/x")
        again = (await client.register("x", A)).body
        assert (again["id"], again["version"]) == (1, 2)
        assert await client.get("/subjects/x/versions?deleted=true") == [2]

    play(story)


def test_references_hold_what_they_refer_to() -> None:
    async def story(client: Client) -> None:
        address = record(field("street", "string"), name="Address")
        person = record(field("home", "Address"), name="Person")
        reference = {"name": "Address", "subject": "address", "version": 1}
        missing = await client.register("person", person, references=[reference])
        assert missing.body["error_code"] == 42201
        await client.register("address", address)
        assert (await client.register("person", person)).body["error_code"] == 42201
        made = (await client.register("person", person, references=[reference])).body
        assert made["references"] == [reference]
        assert (await client.get(f"/schemas/ids/{made['id']}"))["references"] == [reference]
        assert await client.get("/subjects/address/versions/1/referencedby") == [made["id"]]
        said = await refused(client, "DELETE", "/subjects/address", 42206)
        assert "subject=address,version=1" in said
        await refused(client, "DELETE", "/subjects/address/versions/1", 42206)
        await client.ask("DELETE", "/subjects/person")
        assert (await client.ask("DELETE", "/subjects/address")).body == [1]
        await refused(client, "DELETE", "/subjects/address?permanent=true", 42206)
        await client.ask("DELETE", "/subjects/person?permanent=true")
        assert (await client.ask("DELETE", "/subjects/address?permanent=true")).body == [1]

    play(story)


def log_of(references: dict[str, list[Reference]]) -> MemoryLog:
    """As if another registry had written it: a subject each, with one version."""
    log = MemoryLog()
    for at, (subject, referred) in enumerate(references.items()):
        schema = StoredSchema(
            subject=subject, version=1, id=at + 1, kind=SchemaType.AVRO, text='"int"', references=tuple(referred)
        )
        log.append(*schema_entry(schema))
    return log


def test_a_long_chain_of_references_is_followed_or_refused() -> None:
    log = log_of({f"s{at}": [Reference("n", f"s{at - 1}", 1)] if at else [] for at in range(1001)})

    async def story(client: Client) -> None:
        reference = {"name": "n", "subject": "s999", "version": 1}
        assert (await client.register("fits", '"long"', references=[reference])).status == 200
        refusal = await client.register("too-long", '"long"', references=[{**reference, "subject": "s1000"}])
        assert (refusal.body["error_code"], "more than 1000 others" in refusal.body["message"]) == (42201, True)

    play(story, log)


def test_a_circle_of_references_is_no_failure() -> None:
    log = log_of({"a": [Reference("b", "b", -1)], "b": [Reference("a", "a", -1)]})

    async def story(client: Client) -> None:
        reference = {"name": "a", "subject": "a", "version": -1}
        assert (await client.register("c", '"int"', references=[reference])).status == 200
        assert (await client.register("a", '"long"')).body["version"] == 2

    play(story, log)


def test_lookups_normalise_when_asked() -> None:
    async def story(client: Client) -> None:
        await client.register("x", '{"type":"int","b":1,"a":2}')
        other = {"schema": '{"type":"int","a":2,"b":1}'}
        await refused(client, "POST", "/subjects/x?normalize=false", 40403, other)
        await client.ask("POST", "/subjects/y/versions?normalize=true", {"schema": '{"type":"int","b":1,"a":2}'})
        assert (await client.ask("POST", "/subjects/y?normalize=True", other)).body["version"] == 1

    play(story)


def test_json_and_protobuf_are_kept_and_served() -> None:
    async def story(client: Client) -> None:
        assert await client.get("/schemas/types") == ["JSON", "PROTOBUF", "AVRO"]
        shape = {"type": "object", "properties": {"a": {"type": "integer"}}}
        made = await client.register("j", shape, schemaType="JSON")
        served = await client.get(f"/schemas/ids/{made.body['id']}")
        assert (served["schemaType"], json.loads(served["schema"])) == ("JSON", shape)
        proto = 'syntax = "proto3"; message M { int32 a = 1; }'
        made = await client.register("p", proto, schemaType="PROTOBUF")
        assert (await client.get(f"/schemas/ids/{made.body['id']}"))["schema"] == proto
        assert (await client.register("j", "nonsense", schemaType="JSON")).body["error_code"] == 42201
        assert (await client.register("j", "{}", schemaType="XML")).body["error_code"] == 42201

    play(story)


def test_metadata_and_rules_are_part_of_a_schema() -> None:
    async def story(client: Client) -> None:
        metadata = {"properties": {"owner": "me"}}
        plain = (await client.register("x", A)).body["id"]
        marked = (await client.register("x", A, metadata=metadata)).body
        assert marked["id"] != plain
        assert marked["metadata"] == metadata
        found = await client.get("/subjects/x/metadata?key=owner&value=me")
        assert (found["version"], found["metadata"]) == (2, metadata)
        await refused(client, "GET", "/subjects/x/metadata?key=owner&value=you", 40403)

    play(story)


def test_contexts_have_their_own_ids() -> None:
    async def story(client: Client) -> None:
        await client.register("x", A)
        await client.register("x", AB)
        assert (await client.register(":.lab:x", AB)).body["id"] == 1
        assert await client.get("/contexts") == [".", ".lab"]
        assert await client.get("/subjects") == [":.lab:x", "x"]
        assert await client.get("/subjects?subjectPrefix=:.lab:") == [":.lab:x"]
        assert json.loads((await client.get("/schemas/ids/1?subject=:.lab:"))["schema"]) == AB
        assert await client.get("/subjects/:.:x/versions") == [1, 2]

    play(story)


@pytest.mark.parametrize("name", ["a%2Fb", "%C3%A4", "a%20b", "..", "%2e%2e%2fetc%2fpasswd", "<script>"])
def test_a_subject_may_have_any_printable_name(name: str) -> None:
    async def story(client: Client) -> None:
        assert (await client.register(name, A)).status == 200
        assert await client.get(f"/subjects/{name}/versions") == [1]

    play(story)


@pytest.mark.parametrize("name", ["%00", "a%0ab", "x" * 2000, "__GLOBAL", ":.lab:"])
def test_other_names_are_refused(name: str) -> None:
    async def story(client: Client) -> None:
        assert (await client.register(name, A)).body["error_code"] == 42208

    play(story)


BODIES: list[Any] = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"[" * 200_000,
    {},
    {"schema": 7},
    {"schema": ""},
    {"schema": "   "},
    {"schema": '"int"', "schemaType": ["AVRO"]},
    {"schema": '"int"', "references": "x"},
    {"schema": '"int"', "references": [{}]},
    {"schema": '"int"', "references": [{"name": "a", "subject": "b"}]},
    {"schema": '"int"', "references": [{"name": "a", "subject": "b", "version": 1}] * 2000},
    {"schema": '"int"', "version": "1"},
    {"schema": '"int"', "version": 1 << 40},
    {"schema": '"int"', "metadata": []},
    {"schema": "[" * 100_000},
    b'{"schema": "\\"int\\"", "metadata": ' + b'{"a":' * 200 + b"1" + b"}" * 201,
    b'{"schema": "\\"int\\"", "metadata": {"a": 1e999}}',
    {"schema": '{"a": 1e999}', "schemaType": "JSON"},
    {"schema": '{"a":' * 900 + "1" + "}" * 900, "schemaType": "JSON"},
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: str(body)[:40])
def test_bodies_that_are_none_are_refused(body: Any) -> None:
    async def story(client: Client) -> None:
        answer = await client.ask("POST", "/subjects/x/versions", body)
        assert 400 <= answer.status < 500
        assert await client.get("/subjects") == []

    play(story)
