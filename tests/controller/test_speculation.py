"""State that runs ahead of the log, and steps back when an append fails."""

from __future__ import annotations

from random import Random

import pytest

from ottla.metadata.snapshot import image_records
from ottla.metadata.state import MetadataState
from ottla.wire.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest
from tests.controller.acting import Acting


def create(acting: Acting, name: str) -> int:
    request = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=2, replication_factor=1)])
    return acting.generate(lambda c, now: c.create_topics(request, now)).topics[0].error_code


def delete(acting: Acting, name: str) -> int:
    request = DeleteTopicsRequest(topic_names=[name])
    return acting.generate(lambda c, now: c.delete_topics(request, now)).responses[0].error_code


def test_the_next_request_sees_what_the_last_one_did_before_it_is_committed() -> None:
    acting = Acting()
    acting.unfenced(1)
    assert create(acting, "orders") == 0
    assert create(acting, "orders") == 36
    assert acting.committed.image.topic("orders") is None
    assert delete(acting, "orders") == 0
    assert create(acting, "orders") == 0, "a topic of the same name, once more"
    acting.commit()
    assert acting.committed.image.topic("orders") is not None


def test_a_commit_publishes_batch_by_batch_up_to_the_high_watermark() -> None:
    acting = Acting()
    acting.unfenced(1)
    create(acting, "a")
    middle = acting.controller.next_offset
    create(acting, "b")
    ((first, _),) = acting.controller.on_committed(middle)
    assert [t.name for t in first.image.topics.by_name.values()] == ["a"]
    assert acting.controller.on_committed(middle + 1) == [], "half a batch is none"
    ((second, state),) = acting.controller.on_committed(acting.controller.next_offset)
    assert [t.name for t in second.delta.topics_changed.values()] == ["b"]
    assert state.image == acting.image


def test_what_was_not_committed_never_happened() -> None:
    acting = Acting()
    acting.unfenced(1)
    create(acting, "kept")
    acting.commit()
    offset = acting.controller.next_offset
    before = list(image_records(acting.image))
    create(acting, "lost")
    delete(acting, "kept")
    broker = acting.image.broker(1)
    assert broker is not None
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=broker.epoch)
    acting.generate(lambda c, now: c.allocate_producer_ids(request, now))
    acting.controller.revert()
    assert acting.controller.next_offset == offset
    assert list(image_records(acting.image)) == before
    assert acting.image is acting.committed.image
    assert create(acting, "lost") == 0
    assert acting.generate(lambda c, now: c.allocate_producer_ids(request, now)).producer_id_start == 0


@pytest.mark.parametrize("seed", range(20))
def test_reverting_at_any_point_is_as_if_the_rest_had_not_been_asked(seed: int) -> None:
    """Two controllers hear the same; one of them hears more, and goes back."""
    random = Random(seed)
    plain, tried = Acting(seed=seed), Acting(seed=seed)
    for acting in (plain, tried):
        acting.unfenced(1, 2, 3)
    for step in range(12):
        name = f"t{random.randrange(6)}"
        wanted = random.choice((create, delete))
        if random.random() < 0.5:
            for acting in (plain, tried):
                acting.commit()
            state = tried.random.getstate()
            for _ in range(random.randrange(1, 4)):
                random.choice((create, delete))(tried, f"t{random.randrange(6)}")
            tried.controller.revert()
            tried.random.setstate(state)
        for acting in (plain, tried):
            wanted(acting, name)
            if step % 3 == 2:
                acting.commit()
    for acting in (plain, tried):
        acting.commit()
    assert plain.image == tried.image
    assert plain.committed.image == tried.committed.image


def test_the_log_replayed_from_the_start_is_what_the_controller_holds() -> None:
    """B21: what was believed while generating is what everybody else reads."""
    acting = Acting()
    acting.unfenced(1, 2, 3)
    for n in range(10):
        create(acting, f"t{n}")
        if n % 3 == 0:
            delete(acting, f"t{n}")
    acting.heartbeat(2, fence=True)
    acting.heartbeat(3, shut_down=True)
    acting.commit()
    state = MetadataState()
    for batch in acting.log:
        state, _ = state.replay(batch)
    assert state.image == acting.image
