"""Several registries on one log: one writer at a time, one id a schema, and nothing given away twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import pairwise

from ottla.gateway.registry.state import RegistryState
from ottla.model import Uuid
from tests.gateway.stage import Client, MemoryLog, play, registry_on


def schema(name: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": []})


def play_two(story: Callable[[Client, Client, MemoryLog], Awaitable[None]]) -> None:
    async def run() -> None:
        log = MemoryLog()
        async with registry_on(log) as one, registry_on(log) as other:
            await story(one, other, log)

    asyncio.run(run())


def test_what_one_has_written_the_other_answers() -> None:
    async def story(one: Client, other: Client, log: MemoryLog) -> None:
        for turn, (writer, reader) in enumerate([(one, other), (other, one)] * 5, 1):
            assert (await writer.register(f"s{turn}", schema(f"n{turn}"))).body["id"] == turn
            # The other may not have read it yet; it does not say so before it has looked.
            assert (await reader.get(f"/schemas/ids/{turn}"))["subject"] == f"s{turn}"

    play_two(story)


def test_the_same_schema_at_once_is_one_id() -> None:
    async def story(one: Client, other: Client, log: MemoryLog) -> None:
        asked = [client.register(f"s{n % 4}", schema("same")) for n in range(24) for client in (one, other)]
        assert {answer.body["id"] for answer in await asyncio.gather(*asked)} == {1}
        assert [each["version"] for each in await one.get("/schemas")] == [1, 1, 1, 1]

    play_two(story)


def test_different_schemas_at_once_are_different_ids() -> None:
    async def story(one: Client, other: Client, log: MemoryLog) -> None:
        asked = [client.register(f"s{n}", schema(f"n{n}")) for n in range(15) for client in (one, other)]
        answers = await asyncio.gather(*asked)
        by_subject = [{a.body["id"], b.body["id"]} for a, b in zip(answers[::2], answers[1::2], strict=True)]
        assert all(len(ids) == 1 for ids in by_subject)
        assert len(set.union(*by_subject)) == 15

    play_two(story)


def test_a_writer_that_was_overtaken_decides_again() -> None:
    """Between decision and append another registry takes over and gives the very id away."""

    async def story(client: Client) -> None:
        def overtake() -> None:
            log.before_append = lambda: None
            with log.changed:
                log.epoch += 1
            value = {"subject": "theirs", "version": 1, "id": 1, "schema": '"long"', "deleted": False}
            key = {"keytype": "SCHEMA", "subject": "theirs", "version": 1, "magic": 1}
            log.append(json.dumps(key).encode(), json.dumps(value).encode())

        log.before_append = overtake
        assert (await client.register("ours", '"int"')).body["id"] == 2

    log = MemoryLog()
    play(story, log)


def test_a_commit_whose_answer_was_lost_is_looked_up_in_the_log() -> None:
    async def story(client: Client) -> None:
        await client.register("x", '"int"')
        log.lose_commit = True
        assert (await client.ask("DELETE", "/subjects/x")).body == [1]
        log.lose_commit = False
        assert (await client.ask("DELETE", "/subjects/x?permanent=true")).body == [1]
        assert await client.get("/subjects?deleted=true") == []

    log = MemoryLog()
    play(story, log)


def test_no_id_is_given_twice_even_after_compaction() -> None:
    async def before(client: Client) -> None:
        await client.register("x", '"int"')
        await client.register("y", '"long"')
        await client.ask("DELETE", "/subjects/y")
        await client.ask("DELETE", "/subjects/y?permanent=true")

    async def after(client: Client) -> None:
        assert (await client.register("z", '"float"')).body["id"] == 3

    log = MemoryLog()
    play(before, log)
    compacted = log.compacted()
    assert b'"id":2' not in b"".join(each.value or b"" for each in compacted.records)
    play(after, compacted)


def test_a_topic_made_anew_is_read_anew() -> None:
    async def story(client: Client) -> None:
        await client.register("x", '"int"')
        with log.changed:
            log.records.clear()
            log.topic_id = Uuid(b"another-topic-id")
        for _ in range(500):
            if (await client.ask("GET", "/subjects")).body == []:
                break
            await asyncio.sleep(0.02)
        assert (await client.register("y", '"long"')).body["id"] == 1

    log = MemoryLog()
    play(story, log)


def test_records_that_are_none_are_passed_over() -> None:
    log = MemoryLog()
    for key, value in [
        (b"", b""),
        (b"nonsense", b"{}"),
        (b"[]", b"{}"),
        (b'{"keytype":"SCHEMA"}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"x","version":1,"magic":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"x","version":"y","magic":1}', b"{}"),
        (b'{"keytype":"MODE","subject":"x","magic":0}', b'{"mode":"SIDEWAYS"}'),
        (b'{"keytype":"FUTURE","magic":9}', b"{}"),
        (b'{"keytype":"NOOP","magic":0}', None),
        (b"[" * 100_000, b"{}"),
    ]:
        log.append(key, value)

    async def story(client: Client) -> None:
        assert await client.get("/subjects?deleted=true") == []
        assert (await client.register("x", '"int"')).body["id"] == 1

    play(story, log)


def test_the_records_are_those_of_confluents_registry() -> None:
    async def story(client: Client) -> None:
        await client.register("x", '"int"')
        await client.ask("PUT", "/config/x", {"compatibility": "FULL"})
        await client.ask("PUT", "/config", {"compatibility": "NONE"})
        await client.ask("PUT", "/mode/x", {"mode": "READONLY"})
        await client.ask("DELETE", "/mode/x")
        await client.ask("DELETE", "/subjects/x")
        await client.ask("DELETE", "/subjects/x?permanent=true")

    log = MemoryLog()
    play(story, log)
    assert [
        ((each.key or b"").decode(), None if each.value is None else each.value.decode()) for each in log.records
    ] == [
        (
            '{"keytype":"SCHEMA","subject":"x","version":1,"magic":1}',
            '{"subject":"x","version":1,"id":1,"schema":"\\"int\\"","deleted":false}',
        ),
        ('{"keytype":"CONFIG","subject":"x","magic":0}', '{"subject":"x","compatibilityLevel":"FULL"}'),
        ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"NONE"}'),
        ('{"keytype":"MODE","subject":"x","magic":0}', '{"subject":"x","mode":"READONLY"}'),
        ('{"keytype":"MODE","subject":"x","magic":0}', None),
        ('{"keytype":"DELETE_SUBJECT","subject":"x","magic":0}', '{"subject":"x","version":1}'),
        ('{"keytype":"SCHEMA","subject":"x","version":1,"magic":1}', None),
        ('{"keytype":"CONFIG","subject":"x","magic":0}', None),
        ('{"keytype":"NOOP","magic":0}', '{"ottlaHighestIds":{".":1}}'),
    ]


def test_a_log_of_confluents_registry_is_understood() -> None:
    """Keys in another order, a level without a subject, values with more than we write."""
    log = MemoryLog()
    for key, value in [
        ('{"keytype":"NOOP","magic":0}', None),
        ('{"keytype":"CONFIG","magic":0}', '{"compatibilityLevel":"FULL"}'),
        (
            '{"keytype":"SCHEMA","subject":"x-value","version":1,"magic":1}',
            '{"subject":"x-value","version":1,"id":3,"md5":"abc=","schema":"\\"int\\"","deleted":false}',
        ),
        (
            '{"keytype":"SCHEMA","subject":"j","version":1,"magic":1}',
            '{"subject":"j","version":1,"id":4,"schemaType":"JSON","references":[{"name":"n","subject":"x-value",'
            '"version":1}],"schema":"{}","deleted":false}',
        ),
        ('{"keytype":"DELETE_SUBJECT","subject":"x-value","magic":0}', '{"subject":"x-value","version":1}'),
    ]:
        log.append(key.encode(), None if value is None else value.encode())

    async def story(client: Client) -> None:
        assert await client.get("/config") == {"compatibilityLevel": "FULL"}
        assert await client.get("/subjects") == ["j"]
        assert await client.get("/subjects?deleted=true") == ["j", "x-value"]
        assert (await client.get("/schemas/ids/4"))["references"][0]["subject"] == "x-value"
        assert (await client.register("new", '"long"')).body["id"] == 5

    play(story, log)


def test_replaying_a_log_twice_gives_the_same_state() -> None:
    async def story(client: Client) -> None:
        for number in range(6):
            await client.register(f"s{number % 2}", schema("same") if number < 2 else f'{{"type":"int","n":{number}}}')
        await client.ask("DELETE", "/subjects/s0/versions/1")

    log = MemoryLog()
    play(story, log)
    states = [RegistryState(), RegistryState()]
    for state in states:
        for each in log.records:
            state.replay(each.key, each.value, each.timestamp_ms)
    one, other = ([each for s in state.subjects() for each in state.versions(s, deleted=True)] for state in states)
    assert one == other
    assert all(a.id != b.id or a.identity == b.identity for a, b in pairwise(sorted(one, key=lambda each: each.id)))
