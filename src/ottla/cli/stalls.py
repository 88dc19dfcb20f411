"""What a producer waits for that hears nothing: said after a few seconds, and again when it has become something else.

librdkafka tries for minutes to reach a leader that is gone, and says nothing of it. Here the cluster itself is asked,
over a client of our own with little patience.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.cli.output import plural, visible
from ottla.cli.session import Session
from ottla.client.blocking import BlockingClient
from ottla.client.peer import PeerLost
from ottla.errors import ErrorCode, KafkaError
from ottla.model import TopicPartition

if TYPE_CHECKING:
    from ottla.admin.topics import Partition

QUIET_S = 3.0
"""Who has heard nothing for so long wants to know why."""
AGAIN_S = 10.0
_ANSWER_MS = 2_000
_NAMED_MAX = 5


class Stall:
    """Watches one producer's progress. `look` is called again and again while something is waited for."""

    def __init__(self, session: Session, topic: str, *, now: Callable[[], float]) -> None:
        self._session = session
        self._topic = topic
        self._now = now
        self._look_at_s = now() + QUIET_S
        self._said = ""

    def on_progress(self) -> None:
        """Something was acknowledged, or is waited for only from now on."""
        self._look_at_s = self._now() + QUIET_S

    def look(self, waiting: int) -> None:
        """Says why so many records wait, if they have for a while."""
        if self._now() < self._look_at_s:
            return
        said = f"{plural(waiting, 'record')} not acknowledged yet: {reason(self._session, self._topic)}"
        if said != self._said:
            self._session.out.note(visible(said))
            self._said = said
        self._look_at_s = self._now() + AGAIN_S


def reason(session: Session, topic: str) -> str:
    """Why a topic may not take records now, in a sentence."""
    settings = replace(
        session.settings, request_timeout_ms=_ANSWER_MS, connect_timeout_ms=_ANSWER_MS, api_timeout_ms=_ANSWER_MS
    )
    try:
        with BlockingClient(settings) as client:
            return _reason(client, topic)
    except PeerLost as error:
        return f"the cluster at {session.bootstrap} does not answer ({error.message})."
    except KafkaError as error:
        return error.message or f"{error.code.name.lower().replace('_', ' ')}."


def _reason(client: BlockingClient, name: str) -> str:
    from ottla.admin import topics
    from ottla.admin.offsets import LATEST, FoundOffset, look_up

    (topic,) = topics.list_topics(client, [name])
    places = {TopicPartition(name, each.partition): each for each in topic.partitions}
    client.topics([name])
    silent = {
        place: answer
        for place, answer in look_up(client, dict.fromkeys(places, LATEST)).items()
        if not isinstance(answer, FoundOffset)
    }
    if silent:
        told = [_why(place, places[place], silent[place]) for place in sorted(silent)[:_NAMED_MAX]]
        more = f", and {len(silent) - _NAMED_MAX} more like these" if len(silent) > _NAMED_MAX else ""
        return f"{'; '.join(told)}{more}. They are sent when that has passed; Ctrl-C gives up."
    thin = [place for place in sorted(places) if places[place].is_under_replicated]
    if thin:
        in_sync = ", ".join(
            f"{place} ({len(places[place].isr)} of {len(places[place].replicas)})" for place in thin[:_NAMED_MAX]
        )
        return f"not all replicas are in sync: {in_sync}; see `ottla doctor`. Ctrl-C gives up."
    return "every leader answers, so it may just be slow. Ctrl-C gives up."


def _why(place: TopicPartition, partition: Partition, error: KafkaError) -> str:
    if partition.leader is None or error.code == ErrorCode.LEADER_NOT_AVAILABLE:
        return f"{place} has no leader (replicas: {', '.join(map(str, partition.replicas))})"
    return f"the leader of {place}, broker {partition.leader}, does not answer ({(error.message or '').rstrip('.')})"
