"""Three controllers: the leader of the quorum dies, and another is elected."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from ottla.sim.cluster import CONTROLLER_PORT
from ottla.sim.network import Fabric
from ottla.sim.streams import Pipe
from ottla.wire.apis import APIS
from ottla.wire.frames import read_request_header, read_response_header
from ottla.wire.messages.begin_quorum_epoch_request import BeginQuorumEpochRequest
from ottla.wire.messages.vote_request import VoteRequest
from ottla.wire.messages.vote_response import VoteResponse
from tools.pictures.curves import Plot
from tools.pictures.lanes import Message, lane, messages, spans
from tools.pictures.recording import Moment, Recording
from tools.pictures.stage import stage
from tools.pictures.svg import Drawing

WIDTH = 860
_AROUND_S = 0.06
_ROOMY_S = 0.6
_LENGTH = Struct(">i").unpack_from
_KINDS = {
    "follower": "one-pale",
    "prospective": "two-pale",
    "candidate": "four-pale",
    "leader": "three-pale",
    "unattached": "gone",
    "resigned": "gone",
    "gone": "gone",
}


class Overheard:
    """What controllers say to each other about votes, taken from the bytes that they send."""

    def __init__(self, fabric: Fabric) -> None:
        self.messages: list[Message] = []
        self._unread: dict[Pipe, bytearray] = {}
        self._asked: dict[tuple[int, int], tuple[int, bool]] = {}
        """(connection, correlation id) of a vote → version, and whether it was asked in advance."""
        carry = fabric.send

        def send(pipe: Pipe, data: bytes | None) -> None:
            carry(pipe, data)
            if data is not None:
                self._hear(pipe, data)

        fabric.send = send  # type: ignore[method-assign]

    def _hear(self, pipe: Pipe, data: bytes) -> None:
        unread = self._unread.setdefault(pipe, bytearray())
        unread += data
        while len(unread) >= 4 and len(unread) >= 4 + _LENGTH(unread)[0]:
            size = _LENGTH(unread)[0]
            frame = bytes(unread[4 : 4 + size])
            del unread[: 4 + size]
            if pipe.source.peer[1] == CONTROLLER_PORT:
                self._hear_request(pipe, frame)
            else:
                self._hear_answer(pipe, frame)

    def _hear_request(self, pipe: Pipe, frame: bytes) -> None:
        head = read_request_header(frame)
        if head.api_key == VoteRequest.API_KEY:
            request = VoteRequest.read(frame, head.body_position, head.api_version)[0]
            asked = request.topics[0].partitions[0]
            self._asked[pipe.source.number, head.correlation_id] = (head.api_version, asked.pre_vote)
            if asked.pre_vote:
                self._note(pipe, "would you?", "two")
            else:
                self._note(pipe, f"vote in {asked.replica_epoch}?", "four")
        elif head.api_key == BeginQuorumEpochRequest.API_KEY:
            self._note(pipe, "I lead", "three")

    def _hear_answer(self, pipe: Pipe, frame: bytes) -> None:
        # The server's end of a connection is numbered after the client's.
        known = self._asked.pop((pipe.source.number - 1, _LENGTH(frame)[0]), None)
        if known is None:
            return
        version, in_advance = known
        assert VoteRequest.API_KEY is not None
        flexible = APIS[VoteRequest.API_KEY].response_header_version(version) == 1
        position = read_response_header(frame, flexible).body_position
        granted = VoteResponse.read(frame, position, version)[0].topics[0].partitions[0].vote_granted
        self._note(pipe, "yes" if granted else "no", "two" if in_advance else "four", answer=True)

    def _note(self, pipe: Pipe, words: str, kind: str, *, answer: bool = False) -> None:
        source, target = (int(name.removeprefix("n")) for name in (pipe.link.source, pipe.link.target))
        now = pipe.source.loop.scheduler.now
        self.messages.append(Message(now, pipe.last_arrival, source, target, words, kind, answer))


class Election(NamedTuple):
    recording: Recording
    messages: list[Message]
    dead: int
    old_epoch: int
    killed: float
    begin: float
    """Somebody asks for votes."""
    end: float
    """Both who live know the leader."""

    @property
    def rounds(self) -> int:
        """In so many epochs somebody was a candidate."""
        voters = [
            voter for moment in self.recording.moments if moment.at > self.killed for voter in moment.voters.values()
        ]
        return len({voter.epoch for voter in voters if voter.role == "candidate"})


def an_election() -> str:
    """The first that is decided at once."""
    return _draw(
        next(each for each in map(_elect, range(3, 30)) if each.rounds == 1),
        title="An election: first who would vote for me, then who does",
        description="Three controllers: one is dead, one asks for votes in advance, then for votes, and leads.",
    )


def a_split_vote() -> str:
    """The first in which two ask at the same time, and each has voted for itself."""
    return _draw(
        next(each for each in map(_elect, range(2, 60)) if each.rounds == 2),
        title="A split vote: two ask at once, nobody wins, and chance decides who is first the next time",
        description="Three controllers: one is dead, and the others ask for votes at the same time, twice.",
    )


def _elect(seed: int) -> Election:
    settings = {
        "controller.quorum.fetch.timeout.ms": "1000",
        "controller.quorum.election.timeout.ms": "600",
        "controller.quorum.request.timeout.ms": "1000",
    }
    with stage(seed=seed, latency_s=0.02, settings=settings) as shown:
        overheard = Overheard(shown.simulation.fabric)
        shown.passes(1.0)
        dead, killed = shown.controller, shown.now
        before = shown.recording.moments[-1].voters[dead.id].epoch
        dead.crash()

        def settled(moment: Moment) -> bool:
            alive = [voter for node, voter in moment.voters.items() if node != dead.id]
            roles = sorted(voter.role for voter in alive)
            return roles == ["follower", "leader"] and all(voter.epoch > before for voter in alive)

        shown.until(lambda: settled(shown.recording.moments[-1]))
        shown.passes(0.5)
        recording = shown.recording
    return Election(
        recording,
        overheard.messages,
        dead.id,
        before,
        killed,
        recording.when(lambda moment: any(each.role == "prospective" for each in moment.voters.values()), killed),
        recording.when(settled, killed),
    )


def _draw(seen: Election, *, title: str, description: str) -> str:
    begin, end = seen.begin - _AROUND_S, seen.end + _AROUND_S
    draw = Drawing(WIDTH, 400, title=title, description=description)
    plot = Plot(draw, left=90, top=76, right=836, bottom=330, begin=begin, end=end, low=0, high=1)
    plot.axes(zero=seen.killed, unit="ms", offsets=False)
    draw.text(90, 58, f"Node {seen.dead}, which led epoch {seen.old_epoch}, was killed at 0 ms.", kind="soft small")
    # The dead one below: nothing is said to it that it hears.
    order = [*sorted(node for node in seen.recording.at(seen.killed).voters if node != seen.dead), seen.dead]
    places = {node: 84.0 + 104 * at for at, node in enumerate(order)}
    for node, y in places.items():
        states = [(moment.at, _state(moment, node)) for moment in seen.recording.between(begin, end)]
        lane(draw, plot, y, f"node {node}", spans(states, end))
    heard = [
        # In a longer time there is less room: what is said is told by its colour alone.
        each if end - begin < _ROOMY_S else each._replace(words=each.words if each.answer else "")
        for each in seen.messages
        if begin <= each.sent <= end and each.arrives <= end and seen.dead not in (each.source, each.target)
    ]
    messages(draw, plot, places, heard)
    for at, (words, kind) in enumerate(
        (("would you vote for me?", "two"), ("vote for me", "four"), ("I lead", "three"))
    ):
        draw.line(90 + 190 * at, 382, 116 + 190 * at, 382, kind=f"arrow {kind}-line")
        draw.text(124 + 190 * at, 386, words, kind="small")
    draw.text(660, 386, "dashed: the answer", kind="soft small")
    return draw.render()


def _state(moment: Moment, node: int) -> tuple[str, str]:
    voter = moment.voters[node]
    words = "dead" if voter.role == "gone" else f"{voter.role}, epoch {voter.epoch}"
    return words, _KINDS[voter.role]
