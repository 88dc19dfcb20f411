"""When a replica that knows that it lacks committed records may lead, and when it has them again (E16)."""

from __future__ import annotations

from dataclasses import replace

from ottla.partition import Standing

LEADERLESS = Standing(
    alone=False,
    led_by_another=False,
    in_isr=False,
    in_elr=False,
    others_in_isr=False,
    known_to_lack=False,
    can_be_told=True,
    isr_may_be_empty=True,
)
"""It led last, is back, and lacks something: nobody knows that yet."""


def test_it_does_not_lead_before_the_controller_knows() -> None:
    assert LEADERLESS.is_to_be_told
    assert not LEADERLESS.may_lead_lacking
    known = replace(LEADERLESS, known_to_lack=True)
    assert known.may_lead_lacking, "whoever elects it now has decided to go on without"
    assert known.is_to_be_told, "it stays so until it leads, or is in sync"


def test_the_only_replica_leads_what_it_has() -> None:
    alone = replace(LEADERLESS, alone=True)
    assert alone.may_lead_lacking
    assert not alone.is_to_be_told


def test_where_nobody_can_be_told_it_is_as_in_kafka() -> None:
    old = replace(LEADERLESS, can_be_told=False)
    assert old.may_lead_lacking
    assert not old.is_to_be_told


def test_while_another_leads_nobody_need_know() -> None:
    assert not replace(LEADERLESS, led_by_another=True).is_to_be_told
    assert replace(LEADERLESS, led_by_another=True, known_to_lack=True).is_to_be_told, "what was said stays true"


def test_a_damaged_leader_leads_on_while_nobody_else_could() -> None:
    leads = replace(LEADERLESS, in_isr=True)
    assert leads.may_lead_damaged
    assert not replace(leads, others_in_isr=True).may_lead_damaged
    assert replace(leads, others_in_isr=True, alone=True).may_lead_damaged
    assert replace(leads, others_in_isr=True, can_be_told=False).may_lead_damaged
    assert replace(leads, others_in_isr=True, known_to_lack=True).may_lead_damaged, "it was decided so"


def test_who_is_in_sync_with_a_leader_lacks_nothing_any_more() -> None:
    lost = replace(LEADERLESS, known_to_lack=True)
    assert not lost.is_in_sync_again
    assert not replace(lost, led_by_another=True).is_in_sync_again
    assert replace(lost, led_by_another=True, in_isr=True).is_in_sync_again
    assert replace(lost, in_isr=True).is_in_sync_again, "it was taken in, and then the leader went"
    assert replace(lost, in_elr=True).is_in_sync_again, "as above, and it was stopped in order since"


def test_the_last_of_a_set_that_is_never_empty_may_lack_anything() -> None:
    before_elr = replace(LEADERLESS, known_to_lack=True, in_isr=True, isr_may_be_empty=False)
    assert not before_elr.is_in_sync_again
    assert replace(before_elr, led_by_another=True).is_in_sync_again
