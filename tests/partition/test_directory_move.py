"""The order in which a replica moves: the controller first, then the disk, then the name."""

from __future__ import annotations

from ottla.partition.directory_move import DirectoryMove, MoveStep


def test_the_controller_is_told_once_and_the_copy_waits_for_the_metadata() -> None:
    move = DirectoryMove()
    assert not move.promised
    assert move.on_caught_up(assigned=False, log_start_offset=0) is MoveStep.PROMISE
    assert move.promised
    assert move.on_caught_up(assigned=False, log_start_offset=0) is MoveStep.WAIT


def test_all_is_on_the_disk_before_the_copy_takes_over() -> None:
    move = DirectoryMove()
    assert move.on_caught_up(assigned=True, log_start_offset=3) is MoveStep.PREPARE
    assert move.promised  # By the metadata it is there already: nobody must say otherwise.
    move.on_prepared(3)
    assert move.on_caught_up(assigned=True, log_start_offset=3) is MoveStep.TAKE_OVER


def test_a_log_start_that_moves_meanwhile_is_put_on_the_disk_too() -> None:
    move = DirectoryMove()
    move.on_prepared(3)
    assert move.on_caught_up(assigned=True, log_start_offset=5) is MoveStep.PREPARE
    move.on_prepared(5)
    assert move.on_caught_up(assigned=True, log_start_offset=5) is MoveStep.TAKE_OVER


def test_a_copy_whose_assignment_was_taken_back_waits_again() -> None:
    move = DirectoryMove()
    assert move.on_caught_up(assigned=False, log_start_offset=0) is MoveStep.PROMISE
    assert move.on_caught_up(assigned=True, log_start_offset=0) is MoveStep.PREPARE
    move.on_prepared(0)
    assert move.on_caught_up(assigned=False, log_start_offset=0) is MoveStep.WAIT
