"""Work that is done apart, by a real process: what it tells, what it returns, how it ends, and that it takes little."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ottla.errors import ErrorCode
from ottla.runtime import Apart, DiskError, WorkStopped
from ottla.runtime.apart import WorkerProcess
from ottla.runtime.offload import SystemOffload


def count_to(limit: int, apart: Apart) -> str:
    for number in range(limit):
        apart.report(number)
    print("this must not come between the answers")
    return "done"


def fail(apart: Apart) -> None:
    raise DiskError(ErrorCode.KAFKA_STORAGE_ERROR, "cannot read the moon")


def never_end(apart: Apart) -> None:
    apart.report(os.getpid())
    while True:
        time.sleep(0.01)
        apart.spent(1)


def end_at_once(apart: Apart) -> None:
    os._exit(3)


def spend(times: int, size: int, apart: Apart) -> float:
    began = time.monotonic()
    for _ in range(times):
        apart.spent(size)
    return time.monotonic() - began


def toil(seconds: float, apart: Apart) -> float:
    """The share of the time that it had, of a piece that takes so long."""
    began, busy = time.monotonic(), time.process_time()
    while time.process_time() - busy < seconds:
        apart.spent(1)
    return (time.process_time() - busy) / (time.monotonic() - began)


def priorities(apart: Apart) -> tuple[int, int]:
    return os.nice(0), os.sched_getscheduler(0) if sys.platform == "linux" else 0


def modesty_of_session(apart: Apart) -> tuple[bool, str]:
    return os.getsid(0) == os.getpid(), Path("/proc/self/autogroup").read_text().strip().partition(" ")[2]


def slice_ns(apart: Apart) -> int:
    import ctypes

    attributes = ctypes.create_string_buffer(56)
    assert ctypes.CDLL(None).syscall({"x86_64": 315, "aarch64": 275}[os.uname().machine], 0, attributes, 56, 0) == 0
    return int.from_bytes(attributes.raw[24:32], sys.byteorder)


def count_yields(times: int, apart: Apart) -> int:
    """Of so many pieces of work."""
    yields = 0

    def count() -> None:
        nonlocal yields
        yields += 1

    os.sched_yield = count
    for _ in range(times):
        apart.spent(1)
    return yields


def run(work: Callable[[Apart], object], rate: float = float("inf")) -> tuple[object, list[object]]:
    told: list[object] = []

    async def main() -> object:
        offload = SystemOffload()
        try:
            return await offload.run_apart(work, bytes_per_second=rate, on_report=told.append)
        finally:
            offload.close()

    return asyncio.run(main()), told


def is_alive(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.slow
def test_facts_come_in_order_and_before_the_result() -> None:
    assert run(partial(count_to, 100)) == ("done", list(range(100)))


def test_what_the_work_raises_is_raised_here() -> None:
    with pytest.raises(DiskError, match="the moon"):
        run(fail)


def test_a_process_that_dies_is_work_that_stopped() -> None:
    with pytest.raises(WorkStopped, match="status 3"):
        run(end_at_once)


def test_work_can_be_stopped_and_leaves_no_process() -> None:
    async def main() -> None:
        offload = SystemOffload()
        started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        work = asyncio.ensure_future(
            offload.run_apart(never_end, bytes_per_second=float("inf"), on_report=started.set_result)
        )
        process_id = await started
        assert is_alive(process_id)
        offload.stop_apart()
        with pytest.raises(WorkStopped):
            await work
        assert not is_alive(process_id)
        answer = await offload.run_apart(
            partial(count_to, 1), bytes_per_second=float("inf"), on_report=lambda fact: None
        )
        assert answer == "done"
        offload.close()

    asyncio.run(main())


def test_work_that_is_stopped_before_it_starts_has_no_process() -> None:
    worker = WorkerProcess(never_end, float("inf"))
    worker.stop()
    with pytest.raises(WorkStopped):
        worker.follow(lambda fact: pytest.fail("it ran"))


def test_a_rate_is_kept() -> None:
    took, _ = run(partial(spend, 10, 10_000), rate=1_000_000)
    assert isinstance(took, float)
    assert took >= 0.09


def test_it_rests_as_long_as_it_works() -> None:
    share, _ = run(partial(toil, 0.03))
    assert isinstance(share, float)
    assert share < 0.6


def test_it_takes_what_the_machine_has_to_spare() -> None:
    found, _ = run(priorities)
    assert found == (19, os.SCHED_IDLE if sys.platform == "linux" else 0)


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="sessions are not scheduled here")
def test_its_session_is_its_own_and_as_modest() -> None:
    """Where sessions are scheduled, idle scheduling holds within a session only."""
    found, _ = run(modesty_of_session)
    assert found == (True, "nice 19")


def _knows_slices() -> bool:
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return sys.platform == "linux" and version is not None and (int(version[1]), int(version[2])) >= (6, 12)


@pytest.mark.skipif(not _knows_slices(), reason="needs Linux 6.12, which lets a process choose its slice")
def test_its_slice_is_the_shortest_there_is() -> None:
    found, _ = run(slice_ns)
    assert found == 100_000


def test_it_lets_others_have_their_turn_after_each_piece() -> None:
    found, _ = run(partial(count_yields, 10))
    assert found == 10


ORPHANED = """
import asyncio, sys
from ottla.runtime.offload import SystemOffload
from tests.runtime.test_apart import never_end

def tell(process_id):
    print(process_id, flush=True)

asyncio.run(SystemOffload().run_apart(never_end, bytes_per_second=float("inf"), on_report=tell))
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to look at processes")
def test_it_does_not_outlive_whoever_started_it() -> None:
    root = Path(__file__).parent.parent.parent
    node = subprocess.Popen(
        [sys.executable, "-c", ORPHANED],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
    )
    assert node.stdout is not None
    worker_id = int(node.stdout.readline())
    assert is_alive(worker_id)
    node.send_signal(signal.SIGKILL)
    node.wait()
    node.stdout.close()
    deadline = time.monotonic() + 60
    while is_alive(worker_id):
        assert time.monotonic() < deadline, "the worker went on without a node"
        time.sleep(0.01)
