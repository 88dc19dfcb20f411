"""Every API with every right: the table of rights, cell by cell, over the wire.

Each right there is has an address of its own, from which nothing else may be done. From every address every request is
sent that asks for a right; it is served if what the address may do is what the request asks for, or implies it, and is
refused with Kafka's code for it if not. The requests are those of `test_authorisation`, and a few more; that none of
the table's rights is left out is a test too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.errors import ErrorCode
from ottla.metadata.acls import CLUSTER_NAME, Operation, PatternType, ResourceType
from ottla.model import Uuid
from ottla.runtime.system import free_ports
from ottla.security.rights import BROKER_RIGHTS, CONTROLLER_RIGHTS, Asked, Right
from ottla.wire.apis import APIS
from ottla.wire.message import Message
from ottla.wire.messages import alter_configs_request
from ottla.wire.messages.add_raft_voter_request import AddRaftVoterRequest
from ottla.wire.messages.create_acls_request import AclCreation
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.describe_acls_request import DescribeAclsRequest
from ottla.wire.messages.describe_acls_response import DescribeAclsResponse
from ottla.wire.messages.elect_leaders_response import ElectLeadersResponse
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
from tests.behaviour.client import Client, Topic, eventually
from tests.behaviour.conftest import StartNode
from tests.behaviour.groups import Groups
from tests.behaviour.test_authorisation import (
    ADMINISTRATOR,
    ANY,
    CASES,
    CLUSTER_FAILED,
    FAILED,
    GROUP_FAILED,
    SETTINGS,
    TOPIC_FAILED,
    Administrator,
    Case,
    Grant,
    asked,
    creation,
    on_cluster,
    on_group,
    on_topic,
    start_guarded,
)
from tests.wire_client import last_version

pytestmark = pytest.mark.slow

ALL, DESCRIBE, CREATE = Operation.ALL, Operation.DESCRIBE, Operation.CREATE
_OF_TOPICS = "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS ALL"
_OF_CLUSTERS = "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE ALL"
EVERY_RIGHT = [
    Right(Operation[name], kind)
    for kind, names in {
        ResourceType.TOPIC: _OF_TOPICS,
        ResourceType.GROUP: "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS ALL",
        ResourceType.CLUSTER: _OF_CLUSTERS,
        ResourceType.TRANSACTIONAL_ID: "WRITE DESCRIBE TWO_PHASE_COMMIT ALL",
        ResourceType.DELEGATION_TOKEN: "DESCRIBE ALL",
        ResourceType.USER: "CREATE_TOKENS DESCRIBE_TOKENS ALL",
    }.items()
    for name in names.split()
]
IMPLIED_BY = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def _auto_create(topic: Topic) -> Message:
    wanted = [MetadataRequestTopic(name=f"{topic.name}-new")]
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=True)


def _alter_as_of_old(kind: int, name: str) -> Message:
    resource = alter_configs_request.AlterConfigsResource(kind, name, [])
    return alter_configs_request.AlterConfigsRequest(resources=[resource], validate_only=True)


MORE_CASES = [
    Case(
        "alter a broker as of old",
        lambda t: _alter_as_of_old(4, "1"),
        CLUSTER_FAILED,
        on_cluster(Operation.ALTER_CONFIGS),
    ),
    Case(
        "alter a group as of old",
        lambda t: _alter_as_of_old(32, t.name),
        GROUP_FAILED,
        on_group(Operation.ALTER_CONFIGS),
    ),
    Case("metadata that creates", _auto_create, TOPIC_FAILED, on_topic(CREATE), (on_topic(DESCRIBE),)),
    Case("metadata that creates anywhere", _auto_create, TOPIC_FAILED, on_cluster(CREATE), (on_topic(DESCRIBE),)),
    Case(
        "add a voter",
        lambda t: AddRaftVoterRequest(cluster_id="another", voter_id=9),
        CLUSTER_FAILED,
        on_cluster(Operation.ALTER),
    ),
]
EVERY_CASE = [*CASES, *MORE_CASES]
ALTERNATIVES = {case: on_cluster(Operation.DELETE) for case in ("delete topics", "delete topics by id")}
"""What does as well, and is no operation that Kafka's tools give: whoever may do ALL has it."""

ELSEWHERE = {
    (11, Right(DESCRIBE, ResourceType.TOPIC)): "of a classic member that leads a consumer group with patterns",
    (16, Right(DESCRIBE, ResourceType.CLUSTER)): "test_groups_are_listed_to_whom_they_concern",
    (16, Right(DESCRIBE, ResourceType.GROUP)): "test_groups_are_listed_to_whom_they_concern",
    (19, Right(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)): "test_configs_of_a_new_topic_are_told_to_whom_may_see",
    (20, Right(DESCRIBE, ResourceType.TOPIC)): "implied by DELETE",
    (20, Right(Operation.DELETE, ResourceType.CLUSTER)): "ALTERNATIVES",
    (22, Right(Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID)): "of a version that is not stable yet",
    (38, Right(Operation.CREATE_TOKENS, ResourceType.USER)): "test_delegation_tokens.py",
    (41, Right(Operation.DESCRIBE_TOKENS, ResourceType.USER)): "test_delegation_tokens.py",
    (41, Right(DESCRIBE, ResourceType.DELEGATION_TOKEN)): "test_delegation_tokens.py",
    (44, Right(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)): "of a controller's own loggers",
    (58, Right(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)): "tests/broker/test_gateway_speaking.py",
    (60, Right(DESCRIBE, ResourceType.CLUSTER)): "test_the_operations_that_a_client_may_carry_out",
    (65, Right(DESCRIBE, ResourceType.TOPIC)): "of the topics of a transaction, which others are not told of",
    (66, Right(DESCRIBE, ResourceType.TRANSACTIONAL_ID)): "test_transactions_are_listed_to_whom_they_concern",
    (69, Right(DESCRIBE, ResourceType.TOPIC)): "of the topics of a group's members",
}
"""Rights that no single request is refused for, or that need more than a request: where they are tried, or what of."""


def key_of(case: Case) -> int:
    key = case.request(Topic("any")).API_KEY
    assert key is not None
    return key


def rights_of(key: int) -> set[Right]:
    """The API's, on the listener of clients and where it is handed on to."""
    found: set[Right] = set()
    for row in (BROKER_RIGHTS[key], CONTROLLER_RIGHTS.get(key) if BROKER_RIGHTS[key] is Asked.BY_CONTROLLER else None):
        if isinstance(row, Operation):
            found.add(Right(row, ResourceType.CLUSTER))
        elif isinstance(row, tuple):
            found.update(row)
    if key == 44:  # Loggers are the broker's own affair, and everything else the controller's.
        found.update(row for row in CONTROLLER_RIGHTS[key] if isinstance(row, Right))  # type: ignore[union-attr]
    return found


def needed_right(case: Case) -> Right:
    """What the table says that the case is about: itself, or what it implies."""
    operation, kind, _ = case.needed
    rights = rights_of(key_of(case))
    if Right(operation, kind) in rights:
        return Right(operation, kind)
    (implied,) = [right for right in rights if right.kind is kind and operation in IMPLIED_BY.get(right.operation, ())]
    return implied


def test_no_right_of_the_table_is_left_out() -> None:
    tried = {(key_of(case), needed_right(case)) for case in EVERY_CASE}
    in_table = {(key, right) for key in BROKER_RIGHTS for right in rights_of(key)}
    assert tried <= in_table
    assert in_table - tried == ELSEWHERE.keys()


# The whole table.


def suffices(right: Right, needed: Right) -> bool:
    operations = {ALL, needed.operation} | IMPLIED_BY.get(needed.operation, set())
    return right.kind is needed.kind and right.operation in operations


class Question:
    """One request, and every right that is enough for it beside what everybody is given."""

    def __init__(self, case: Case, topic: Topic) -> None:
        self.case = case
        self.topic = topic
        self.given = {Right(operation, kind) for operation, kind, _ in case.given if kind is not ResourceType.CLUSTER}
        version = last_version(case.request(Topic("any"))) if case.version is None else case.version
        same = (case.request(Topic("any")).encode(version), case.version, case.given)
        self.enough = {needed_right(case)} | {
            needed_right(other)
            for other in EVERY_CASE
            if key_of(other) == key_of(case)
            and other.version == case.version
            and (other.request(Topic("any")).encode(version), other.version, other.given) == same
        }
        if (alternative := ALTERNATIVES.get(case.name)) is not None:
            self.enough.add(Right(alternative[0], alternative[1]))

    def is_served_to(self, right: Right) -> bool:
        return any(suffices(right, needed) for needed in self.enough)

    def grants(self) -> list[Grant]:
        return [(right.operation, right.kind, self.topic.name) for right in self.given]


class Site:
    def __init__(self, host: str, port: int, controller_port: int) -> None:
        self.host, self.port, self.controller_port = host, port, controller_port
        self.questions: list[Question] = []
        self.addresses = {right: f"127.0.1.{number}" for number, right in enumerate(EVERY_RIGHT, 1)}


@pytest.fixture(scope="module")
def site(start_node: StartNode) -> Site:
    port, controller_port = free_ports("127.0.0.1", 2)
    listeners = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
    }
    node = start_guarded(start_node, {**SETTINGS, **listeners})
    site = Site(node.host, port, controller_port)
    with Administrator((node.host, port), host=ADMINISTRATOR) as admin:
        names = [f"case-{number:03}" for number in range(len(EVERY_CASE))]
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
        made = admin.call(CreateTopicsRequest(topics=topics, timeout_ms=60_000), CreateTopicsResponse)
        for case, topic in zip(EVERY_CASE, made.topics, strict=True):
            assert topic.error_code == 0
            site.questions.append(Question(case, Topic(topic.name, topic.topic_id)))
        for question in site.questions:
            wait_for_leader(admin, question.topic)
            if question.case.committed:
                assert Groups(admin).commit_one(question.topic.name, question.topic, 1) is ErrorCode.NONE
        give(
            admin,
            [
                creation((right.operation, right.kind, name_of(right)), address)
                for right, address in site.addresses.items()
            ],
        )
    return site


def give(admin: Administrator, creations: list[AclCreation]) -> None:
    """And wait until they count."""
    before = described(admin)
    admin.create(*creations)
    eventually(lambda: described(admin), lambda count: count == before + len(creations))


def name_of(right: Right) -> str:
    return CLUSTER_NAME if right.kind is ResourceType.CLUSTER else "*"


def wait_for_leader(admin: Client, topic: Topic) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)], allow_auto_topic_creation=False)

    def has_leader() -> bool:
        (found,) = admin.call(request, MetadataResponse).topics
        return found.error_code == 0 and all(each.leader_id >= 0 for each in found.partitions)

    eventually(has_leader, bool)


def described(admin: Client) -> int:
    everything = DescribeAclsRequest(ANY, None, ANY, None, None, ANY, ANY)
    return sum(len(resource.acls) for resource in admin.call(everything, DescribeAclsResponse).resources)


@pytest.fixture
def clients(site: Site) -> Iterator[dict[Right, Client]]:
    """One from each address."""
    opened = {right: Client((site.host, site.port), host=address) for right, address in site.addresses.items()}
    yield opened
    for client in opened.values():
        client.close()


def test_every_request_with_every_right(site: Site, clients: dict[Right, Client]) -> None:
    """First those for which one right is enough: whoever may write somewhere may have an identity."""
    simple = [question for question in site.questions if not question.given]
    others = [question for question in site.questions if question.given]
    wrong = [flaw for question in simple for flaw in flaws(question, clients)]
    with Administrator((site.host, site.port), host=ADMINISTRATOR) as admin:
        grants = {grant for question in others for grant in question.grants()}
        give(admin, [creation(grant, "*", pattern=PatternType.PREFIXED) for grant in sorted(grants)])
    wrong += [flaw for question in others for flaw in flaws(question, clients)]
    assert not wrong, "\n".join(wrong)
    assert len(simple) + len(others) == len(EVERY_CASE)


def flaws(question: Question, clients: dict[Right, Client]) -> Iterator[str]:
    """Where the answer is not what the rights say. Those who are served come last: they may delete what it is about."""
    case = question.case
    for right in sorted(EVERY_RIGHT, key=question.is_served_to):
        found = asked(clients[right], case.request(question.topic), case.version) & FAILED
        if found != (set() if question.is_served_to(right) else {case.code}):
            names = [ErrorCode(code).name for code in found]
            yield f"{case.name}, with {right.operation.name} on {right.kind.name}: {names or 'served'}"


# What those learn who may do nothing.

EXISTS, MISSING = "there-is-one", "there-is-not"
assert len(EXISTS) == len(MISSING)
NOWHERE = "127.0.2.1"


def by_name(case: Case) -> Message | None:
    """The request, if it names things and does not know them by ids, which nobody could guess."""
    version = last_version(case.request(Topic("any"))) if case.version is None else case.version
    one, other = (case.request(Topic(EXISTS, Uuid(bytes([number]) * 16))) for number in (1, 2))
    return one if one.encode(version) == other.encode(version) and EXISTS.encode() in one.encode(version) else None


def test_a_refusal_does_not_tell_what_exists(site: Site, on_apache: bool) -> None:
    """The same words about what is there and about what is not: a topic, a group, a transactional id."""
    named = [case for case in EVERY_CASE if by_name(case) is not None]
    assert {key_of(case) for case in named} >= {2, 3, 9, 10, 15, 20, 21, 24, 26, 28, 32, 37, 42, 44, 47, 61, 65, 68, 75}
    with Administrator((site.host, site.port), host=ADMINISTRATOR) as admin:
        topic = admin.create_topic(EXISTS)
        wait_for_leader(admin, topic)
        assert Groups(admin).commit_one(EXISTS, topic, 1) is ErrorCode.NONE
        identity = InitProducerIdRequest(transactional_id=EXISTS, transaction_timeout_ms=1000)
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[EXISTS])
        eventually(lambda: asked(admin, find, None) | asked(admin, identity, None), lambda found: not found)
    told: list[str] = []
    with Client((site.host, site.port), host=NOWHERE) as stranger:
        for case in named:
            answers: list[bytes] = []
            for name in (EXISTS, MISSING):
                request = case.request(Topic(name))
                version = last_version(request) if case.version is None else case.version
                response = stranger.call(request, APIS[key_of(case)].response, version)
                if on_apache and isinstance(response, ElectLeadersResponse):
                    for each in response.replica_election_results[0].partition_result:
                        each.error_message = None  # It has the addresses of objects in it.
                answers.append(response.encode(version).replace(name.encode(), b"?" * len(name)))
            if answers[0] != answers[1]:
                told.append(f"{case.name}: {answers[0]!r} and {answers[1]!r}")
    assert not told, "\n".join(told)


# Controllers. Who may do what nodes do would do it, so only the others are tried.

_WHOLE = [key for key, row in CONTROLLER_RIGHTS.items() if isinstance(row, Operation)]
_TOLD = [key for key in _WHOLE if "error_code" in APIS[key].response().__slots__]
"""Those whose refusal has a place of its own, also where the request asks for nothing."""


@pytest.mark.ottla_only
def test_a_controller_does_nothing_for_those_who_lack_its_right(site: Site) -> None:
    """Apache Kafka's hangs up on some of these requests, which ask for nothing, before it looks at rights."""
    wrong: list[str] = []
    for right, address in site.addresses.items():
        with Client((site.host, site.controller_port), host=address) as client:
            for key in _TOLD:
                row = CONTROLLER_RIGHTS[key]
                assert isinstance(row, Operation)
                if not suffices(right, Right(row, ResourceType.CLUSTER)):
                    found = asked(client, APIS[key].request(), None)
                    if found != {CLUSTER_FAILED}:
                        wrong.append(f"{APIS[key].name} with {right.operation.name} on {right.kind.name}: {found}")
    assert not wrong, "\n".join(wrong)
    assert len(_TOLD) >= 20
