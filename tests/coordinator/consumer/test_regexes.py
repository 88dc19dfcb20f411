"""Subscriptions by regular expression: resolved by the coordinator, after the heartbeat that brings them."""

from __future__ import annotations

import pytest

from ottla.coordinator.consumer.regex import compile_regex, resolve
from ottla.errors import ErrorCode, KafkaError

from .stage import Stage, assigned
from .test_heartbeats import kinds, refused


@pytest.fixture
def stage() -> Stage:
    found = Stage()
    found.topics(ab=2, ac=2, b=2)
    return found


def test_the_first_answer_comes_before_the_topics_are_known(stage: Stage) -> None:
    first = stage.heartbeat("m1", 0, regex="a.")
    assert (first.member_epoch, assigned(first)) == (1, {})
    written = len(stage.log)
    assert stage.advance(0) == ["regex g"]
    assert kinds(stage, written) == ["RegularExpression", "Metadata"]
    assert assigned(stage.heartbeat("m1", 1)) == {"ab": [0, 1], "ac": [0, 1]}


def test_names_and_expressions_together(stage: Stage) -> None:
    stage.heartbeat("m1", 0, regex="ac", topics=["b"])
    stage.advance(0)
    assert assigned(stage.heartbeat("m1", 2)) == {"ac": [0, 1], "b": [0, 1]}


def test_an_expression_that_others_have_needs_no_search(stage: Stage) -> None:
    stage.heartbeat("m1", 0, regex="a.")
    stage.advance(0)
    stage.heartbeat("m1", 1)
    second = stage.heartbeat("m2", 0, regex="a.")
    assert second.member_epoch == 3
    assert not any("regex" in key for key in stage.timers)


def test_new_topics_are_searched_but_not_all_the_time(stage: Stage) -> None:
    stage.heartbeat("m1", 0, regex="a.")
    stage.advance(0)
    stage.heartbeat("m1", 1)
    stage.topics(ab=2, ac=2, ad=1)
    stage.heartbeat("m1", 2)
    assert stage.advance(10_000) == []
    stage.heartbeat("m1", 2)
    stage.advance(1)
    stage.heartbeat("m1", 2)
    assert stage.advance(0) == ["regex g"]
    assert assigned(stage.heartbeat("m1", 2)) == {"ab": [0, 1], "ac": [0, 1], "ad": [0]}


def test_a_deleted_topic_goes_by_the_metadata(stage: Stage) -> None:
    stage.heartbeat("m1", 0, regex="a.")
    stage.advance(0)
    stage.heartbeat("m1", 1)
    stage.topics(ab=2)
    assert assigned(stage.heartbeat("m1", 2)) == {"ab": [0, 1]}


def test_everything_is_searched_again_after_a_while(stage: Stage) -> None:
    stage.heartbeat("m1", 0, regex="a.")
    stage.advance(0)
    stage.heartbeat("m1", 1)
    for _ in range(20):
        stage.advance(30_000)
        stage.heartbeat("m1", 2)
    stage.advance(1)
    stage.heartbeat("m1", 2)
    assert stage.advance(0) == ["regex g"]
    assert stage.heartbeat("m1", 2).member_epoch == 2


def test_a_search_by_a_clock_ahead_of_the_new_coordinators_does_not_put_the_next_one_off(stage: Stage) -> None:
    stage.now_ms += 3_600_000
    stage.heartbeat("m1", 0, regex="a.")
    stage.advance(0)
    stage.heartbeat("m1", 1)
    stage.now_ms -= 3_600_000
    moved = stage.moved()
    moved.topics(ab=2, ac=2, ad=1)
    moved.heartbeat("m1", 2)
    assert moved.advance(0) == ["regex g"]
    assert assigned(moved.heartbeat("m1", 2)) == {"ab": [0, 1], "ac": [0, 1], "ad": [0]}
    # And from then on by our own clock.
    moved.topics(ab=2, ac=2, ad=1, ae=1)
    moved.heartbeat("m1", 3)
    assert moved.advance(10_000) == []


def test_a_search_that_could_not_be_written_is_begun_anew_by_the_next_heartbeat(stage: Stage) -> None:
    stage.heartbeat("m1", 0, regex="a.")
    stage.auto_commit = False
    stage.advance(0)
    stage.revert()
    stage.auto_commit = True
    # The driver calls the timer again. Nobody knows any more which topics whoever asked may see.
    stage.timers["consumer", "regex", "g", ""] = stage.now_ms + 500
    written = len(stage.log)
    assert stage.advance(500) == ["regex g"]
    assert kinds(stage, written) == []
    stage.heartbeat("m1", 1)
    assert stage.advance(0) == ["regex g"]
    assert assigned(stage.heartbeat("m1", 1)) == {"ab": [0, 1], "ac": [0, 1]}


def test_the_last_subscriber_takes_the_expression_along(stage: Stage) -> None:
    stage.heartbeat("m1", 0, regex="a.")
    stage.heartbeat("m2", 0, regex="a.")
    stage.advance(0)
    stage.heartbeat("m1", -1)
    assert list(stage.group().regexes) == ["a."]
    written = len(stage.log)
    stage.heartbeat("m2", -1)
    assert "!RegularExpression" in kinds(stage, written)
    assert not len(stage.group().regexes)
    assert not len(stage.group().subscribers)


def test_going_over_from_an_expression_to_names(stage: Stage) -> None:
    stage.heartbeat("m1", 0, regex="a.")
    stage.advance(0)
    stage.heartbeat("m1", 1)
    changed = stage.heartbeat("m1", 2, regex="", topics=["ab"])
    assert (changed.member_epoch, assigned(changed)) == (2, {"ab": [0, 1]})
    assert stage.heartbeat("m1", 2, owned={"ab": [0, 1]}).member_epoch == 3
    assert not len(stage.group().regexes)


@pytest.mark.parametrize("text", ["a[", "(", "a{2,1}", "(?<x", r"(a)\1", "(?=a)", "a" * 10 + "{1000}" * 5])
def test_what_does_not_parse_is_refused(stage: Stage, text: str) -> None:
    with refused(ErrorCode.INVALID_REGULAR_EXPRESSION):
        stage.heartbeat("m1", 0, regex=text)
    assert stage.groups.group("g") is None


def test_an_expression_of_another_release_matches_nothing() -> None:
    assert resolve(["(?=a)", "a"], ["a", "b"]) == {"(?=a)": frozenset(), "a": frozenset({"a"})}
    with pytest.raises(KafkaError):
        compile_regex("(?=a)")


def test_a_pattern_that_other_engines_never_finish_costs_little() -> None:
    """Each of these takes a backtracking engine longer than anybody lives: that this test ends is the proof."""
    patterns = ("(a+)+", "(a|aa)+", "(a*)*", "(a|a?)+", "(.*a){24}")
    alike = "a" * 248
    assert resolve(patterns, [f"{alike}!", alike]) == dict.fromkeys(patterns, frozenset({alike}))
