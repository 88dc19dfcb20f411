"""What people type: format strings, times, profiles. And what they must not see: other people's secrets."""

from __future__ import annotations

import json
import stat
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.admin import users
from ottla.cli import profiles
from ottla.cli.formats import Record, json_bytes, parse_format, record_json, unescape
from ottla.cli.output import cell, size, table
from ottla.cli.schemas import split_message
from ottla.cli.serialization import Decoder, Encoder, Undecodable
from ottla.cli.times import parse_duration, parse_moment, show_moment
from ottla.client.registry import FoundSchema, RegistryClient
from ottla.errors import ErrorCode, KafkaError, StartupError
from ottla.schemas.framing import prefix
from tests.cli.sessions import run_ottla

RECORD = Record(
    topic="orders",
    partition=3,
    offset=42,
    timestamp_ms=1_700_000_000_123,
    key=b"ann",
    value=b"\xff\x00",
    headers=(("a", b"1"), ("b", None)),
)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("%t-%p@%o", b"orders-3@42"),
        ("%k %K %S", b"ann 3 2"),
        ("%s", b"\xff\x00"),
        ("%h %T", b"a=1,b=NULL 1700000000123"),
        (r"\t\x41\n\\%%", b"\tA\n\\%"),
        ("", b""),
    ],
)
def test_a_format_prints_what_its_tokens_say(text: str, printed: bytes) -> None:
    assert parse_format(text)(RECORD) == printed


def test_a_record_is_told_as_json_and_what_is_no_text_beside_it_as_it_is() -> None:
    told = record_json(RECORD, "ann", "\ufffd\0")
    assert told["key"] == "ann"
    assert told["value"] == "\ufffd\0"
    assert (told.get("key_base64"), told["value_base64"]) == (None, "/wA=")
    assert told["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value": None}]
    binary = replace(RECORD, headers=(("h", b"\x80"),))
    assert record_json(binary, None, {"id": 1})["headers"] == [{"name": "h", "value": "\ufffd", "value_base64": "gA=="}]
    # What a schema has decoded is whole, whatever bytes it was.
    assert "value_base64" not in record_json(binary, None, {"id": 1})
    assert "value_base64" not in record_json(binary, None, "decoded")


def test_half_a_character_is_told_by_its_number() -> None:
    assert json_bytes({"é": "→"}) == '{"é": "→"}'.encode()
    assert json_bytes({"é": "\ud800"}, (",", ":")) == b'{"\\u00e9":"\\ud800"}'


class OneSchema(RegistryClient):
    """A registry with one schema, which has every id."""

    def __init__(self, kind: str, text: str) -> None:
        self._kind, self._text = kind, text

    def by_id(self, schema_id: int) -> FoundSchema:
        return FoundSchema(id=schema_id, kind=self._kind, text=self._text, references=())


ARRAY_OF_NULLS = '{"type": "array", "items": "null"}'
LIST = '{"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}'


@pytest.mark.parametrize(
    ("kind", "text", "body"),
    [
        ("JSON", "{}", b"[" * 100_000),
        ("JSON", "{}", b"{"),
        ("JSON", "{}", b"\xff"),
        ("AVRO", ARRAY_OF_NULLS, b"\xfe" + b"\xff" * 7 + b"\x7f\x00"),  # Of 2**62 nulls.
        ("AVRO", LIST, b"\x02" * 100_000),
        ("AVRO", '"string"', b"\x06ab"),
    ],
    ids=["deep JSON", "half JSON", "no JSON", "endless nulls", "deep Avro", "half Avro"],
)
def test_a_record_that_is_not_what_it_says_is_one_sentence(kind: str, text: str, body: bytes) -> None:
    said = f"says that it is {kind.replace('AVRO', 'Avro')} of schema 7, and is not: "
    with pytest.raises(Undecodable, match=said):
        Decoder(OneSchema(kind, text)).decode(prefix(7) + body)


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"n": ' * 300 + b"null" + b"}" * 300])
def test_what_is_too_deep_to_be_written_is_one_sentence(text: bytes) -> None:
    with pytest.raises(StartupError, match=r"is not JSON|has more than 100 levels"):
        Encoder(OneSchema("AVRO", LIST).by_id(1)).encode(text)


def test_avro_is_written_as_it_is_shown() -> None:
    schema = OneSchema(
        "AVRO",
        """{"type": "record", "name": "R", "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "raw", "type": "bytes"},
            {"name": "note", "type": ["null", "string"], "default": null}]}""",
    )
    written = Encoder(schema.by_id(1)).encode('{"at": 1700000000000, "raw": "\\u0000ÿ"}'.encode())
    shown = {"at": 1_700_000_000_000, "raw": "\0ÿ", "note": None}
    assert Decoder(schema).decode(written) == shown
    assert Encoder(schema.by_id(1)).encode(json.dumps(shown).encode()) == written


@pytest.mark.parametrize("text", ["%", "%z", "abc\\"])
def test_a_format_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(StartupError):
        parse_format(text)


def test_separators_are_bytes() -> None:
    assert [unescape(each) for each in (":", r"\t", r"\x00\xff", r"\\")] == [b":", b"\t", b"\x00\xff", b"\\"]
    assert unescape("→") == "→".encode()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
        ("-10m", 400_000),
        ("now", 1_000_000),
        # Before 1970 there is nothing, and -1 would mean the end to a broker.
        ("1969-12-31T23:59:59.999Z", 0),
        ("-9999w", 0),
        ("99999999999999999999", (1 << 63) - 1),
    ],
)
def test_a_moment_is_read(text: str, moment: int) -> None:
    assert parse_moment(text, now=1_000_000) == moment


@pytest.mark.parametrize("text", ["soon", "-10", "10 m", "2023-13-01", ""])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(StartupError):
        parse_moment(text)


def test_times_and_sizes_are_shown() -> None:
    assert show_moment(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert (show_moment(-1), show_moment(None)) == ("-", "-")
    # In microseconds, as some write it: no calendar has that year.
    assert show_moment(1_700_000_000_000_000) == "1700000000000000 ms"
    assert show_moment((1 << 63) - 1) == f"{(1 << 63) - 1} ms"

    assert parse_duration("2h") == 7_200_000
    assert [size(each) for each in (None, 0, 1023, 1536, 1 << 31, 1 << 50)] == [
        *("-", "0 B", "1023 B", "1.5 KiB", "2.0 GiB", "1024.0 TiB"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b'{"value": "x", "timestamp": 1e999}',
        b'{"value": "x", "timestamp": 9223372036854775808}',
        b'{"value": "x", "headers": [{"name": "\\ud800"}]}',
        b'{"value": "x", "key": "\\ud800"}',
        b"[" * 100_000,
    ],
    ids=["infinite", "too-late", "half-a-name", "half-a-key", "deep"],
)
def test_what_is_no_record_is_refused_in_a_sentence(
    line: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "none.toml"))
    status, _, said = run_ottla(["produce", "orders", "--from-json", "-b", "127.0.0.1:1"], line + b"\n")
    assert status == 1
    assert said.endswith("is no record as `ottla consume --json` writes it.\n")


def test_a_name_that_is_no_text_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a shell passes on that is no UTF-8 comes as half characters."""
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "none.toml"))
    status, _, said = run_ottla(["produce", "orders\udcff", "-b", "127.0.0.1:1"], b"x\n")
    assert (status, said) == (1, "ottla: orders\\udcff is no text in UTF-8, as it has to be here.\n")
    status, _, said = run_ottla(["produce", "orders", "-H", "a\udcff=1", "-b", "127.0.0.1:1"], b"x\n")
    assert status == 2
    assert unescape("\udcff\\t") == b"\xff\t"
    assert parse_format("\udcff%o")(RECORD) == b"\xff42"


@pytest.mark.parametrize("damage", ["spoilt", "locked"])
def test_a_snapshot_that_cannot_be_unpacked_is_refused_in_a_sentence(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "saved.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("manifest.json", '{"format": 1, "topics": [], "groups": []}' + " " * 1_000)
    data = bytearray(path.read_bytes())
    if damage == "spoilt":
        data[43:53] = b"\xff" * 10  # The first bytes behind the name.
    else:
        for flags in (6, data.index(b"PK\x01\x02") + 8):
            data[flags] |= 1
    path.write_bytes(data)
    status, _, said = run_ottla(["snapshot", "show", str(path)])
    assert (status, said.startswith(f"ottla: {path} is no snapshot: ")) == (1, True)


def test_a_table_aligns_and_names_cannot_speak_to_the_terminal() -> None:
    text = table(["NAME", "N", "OK"], [["a\x1b[2J\nb", 5, True], ["longer", 12, None]])
    assert text.splitlines() == ["NAME            N  OK", "a\\x1b[2J\\x0ab   5  yes", "longer         12  -"]
    assert cell([1, 2]) == "1,2"


def test_nor_can_the_names_of_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setattr(users, "list_users", lambda client: [users.User(name="a\x1b[2J", credentials=())])
    assert run_ottla(["user", "list"]) == (0, b"a\\x1b[2J: \n", "")


def test_nor_can_what_a_cluster_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(client: object) -> list[users.User]:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "There is no group a\x1b[2J.")

    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setattr(users, "list_users", refuse)
    assert run_ottla(["user", "list"]) == (1, b"", "ottla: There is no group a\\x1b[2J; see `ottla group list`.\n")


def test_profiles_are_kept_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "config.toml"
    secret = {"bootstrap.servers": "a:1", "sasl.password": 'q"u\\o\nte\x7f→'}
    saved = profiles.Profiles().with_profile("one", secret).with_profile("two", {"bootstrap.servers": "b:2"})
    profiles.save(path, saved)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    read = profiles.load(path)
    assert read == saved
    assert read.current == "one"
    assert read.chosen(None) == secret
    assert profiles.hidden(secret)["sasl.password"] == "****"
    profiles.save(path, read.using("two").without("one"))
    assert profiles.load(path) == profiles.Profiles("two", {"two": {"bootstrap.servers": "b:2"}})


def test_who_names_a_profile_before_there_is_any_is_told_how_to_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_CONFIG", str(tmp_path / "none.toml"))
    said = "ottla: There is no profile shop: make it with `ottla profile add shop --bootstrap HOST:PORT`.\n"
    assert run_ottla(["topic", "list", "--profile", "shop"]) == (1, b"", said)


def test_a_profile_that_a_person_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[profiles.a]\nbootstrap.servers = "a:1"\nlinger.ms = 5\nenable.idempotence = true\n')
    found = profiles.load(path)
    assert found.current is None
    assert found.find("a") == {"bootstrap.servers": "a:1", "linger.ms": "5", "enable.idempotence": "true"}


@pytest.mark.parametrize("text", ["[profiles", "profiles = 3", "profiles = {a = 1}"])
def test_a_broken_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(StartupError, match="mend it, or remove it"):
        profiles.load(path)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"OTTLA_CONFIG": "/x/y.toml"}, "/x/y.toml"),
        ({"XDG_CONFIG_HOME": "/conf"}, "/conf/ottla/config.toml"),
    ],
)
def test_where_profiles_are(environment: dict[str, str], expected: str) -> None:
    assert str(profiles.config_path(environment)) == expected


def properties(**changes: str) -> dict[str, str]:
    return {"bootstrap.servers": "a:1", **{key.replace("_", "."): value for key, value in changes.items()}}


def test_javas_names_become_librdkafkas() -> None:
    from ottla.cli.librdkafka import librdkafka_config
    from ottla.client.settings import ClientSettings

    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="her secret";'
    given = properties(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=jaas,
        ssl_truststore_location="/ca.pem",
        ssl_truststore_type="PEM",
        linger_ms="50",
        schema_registry_url="http://x",
    )
    config = librdkafka_config(given, ClientSettings.parse(given))
    assert config == {
        "bootstrap.servers": "a:1",
        "client.id": "ottla",
        "enable.metrics.push": "false",
        "linger.ms": "50",
        "log_level": "2",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.password": "her secret",
        "sasl.username": "ann",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "https",
    }


@pytest.mark.parametrize(
    "manifest",
    [
        "{}",
        '{"format": 9, "topics": [], "groups": []}',
        '{"format": 1, "topics": [{"name": "a", "partitions": [{"partition": 1}], "configs": {}}], "groups": []}',
        '{"format": 1, "topics": [], "groups": [{"group": "g", "offsets": [{"topic": "a", "partition": 0}]}]}',
        '{"format": 1, "topics": 7, "groups": []}',
        "[]",
    ],
)
def test_a_manifest_that_lies_is_refused_before_anything_is_done(tmp_path: Path, manifest: str) -> None:
    from ottla.cli.snapshot_file import SnapshotFile

    path = tmp_path / "lies.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("manifest.json", manifest)
    with pytest.raises(StartupError, match=r"lies\.zip"):
        SnapshotFile(path)


def test_records_of_a_snapshot_that_are_spoilt_are_refused(tmp_path: Path) -> None:
    from ottla.cli.snapshot_file import SnapshotFile
    from ottla.records.builder import BatchBuilder

    builder = BatchBuilder()
    builder.append(0, b"key", b"value")
    batch = bytes(builder.build())
    path = tmp_path / "spoilt.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("manifest.json", '{"format": 1, "topics": [], "groups": []}')
        file.writestr("a/0", batch + batch)
        file.writestr("a/1", batch + batch[:-1])
        file.writestr("a/2", batch[:-1] + b"!")
        file.writestr("a/3", b"nonsense")
    with SnapshotFile(path) as snapshot:
        assert list(snapshot.batches("a", 0)) == [batch, batch]
        for partition in (1, 2, 3, 4):
            with pytest.raises(StartupError, match=f"damaged in a/{partition}"):
                list(snapshot.batches("a", partition))


def commands() -> list[list[str]]:
    """Every command there is, as it is typed."""
    import typer

    from ottla.cli.commands import TABLE, load

    found: list[list[str]] = []
    for name in TABLE:
        command = typer.main.get_command(load(name))
        inside = getattr(command, "commands", None)
        found += [[name]] if inside is None else [[name, each] for each in inside]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_explains_itself_with_an_example_and_knows_json(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    status, out, err = run_ottla([*command, "-h"])
    text = out.decode()
    assert (status, err) == (0, "")
    assert text.index(f"$ ottla {' '.join(command)}") < text.index("Options")
    assert "--json" in text or command == ["snapshot", "fork"]  # Which is a node, and answers with nothing.


def test_pipelines_are_told_as_json(tmp_path: Path) -> None:
    from ottla.spark.pipelines.home import Home, State, Status

    home = Home(tmp_path / "orders-table")
    home.path.mkdir()
    home.write_status(Status(state=State.FINISHED, batch=3, rows=10, lag={"orders-0": 7}))
    status, out, _ = run_ottla(["pipeline", "status", "--home", str(tmp_path), "--json"])
    told = json.loads(out)
    assert (status, told["pipeline"], told["state"], told["batch"], told["lag"]) == (
        0,
        "orders-table",
        "finished",
        3,
        7,
    )


@pytest.mark.parametrize(
    ("wanted", "schema", "message"),
    [
        ("latest", "latest", None),
        ("7", "7", None),
        ("latest:shop.Order", "latest", "shop.Order"),
        ("7:Order", "7", "Order"),
        ("@shop.proto:Order", "@shop.proto", "Order"),
        ("@a:b/order.avsc", "@a:b/order.avsc", None),
        ("@shop.proto", "@shop.proto", None),
    ],
)
def test_a_schema_may_name_a_message(wanted: str, schema: str, message: str | None) -> None:
    assert split_message(wanted) == (schema, message)


def test_directories_that_were_formatted_are_told_as_json(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        f"log.dirs={tmp_path / 'data'}\n"
    )
    command = ["format", str(properties), "--standalone", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "--json"]
    status, out, _ = run_ottla(command)
    told = {"directory": str(tmp_path / "data"), "node": 1, "cluster_id": "MkU3OEVBNTcwNTJENDM2Qk"}
    assert (status, json.loads(out)) == (0, told)
    assert run_ottla([*command, "--ignore-formatted"]) == (0, b"", "")
