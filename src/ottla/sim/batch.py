"""Many seeds, in as many processes as asked for, with a memory of those that are done."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from ottla.sim.options import FAULTS_MIN, SECONDS, Mode
from ottla.sim.run import Result, run_seed

MUST_HAPPEN_SEEDS = 200
"""Over so many seeds every kind of fault, and every event that is counted, must have happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One seed to run."""

    seed: int
    mode: Mode
    nodes: int | None = None
    seconds: float = SECONDS
    mutation: str | None = None


def run_job(job: Job) -> Result:
    from ottla.sim.mutations import MUTATIONS, mutated

    nodes = job.nodes
    mutation = None if job.mutation is None else MUTATIONS[job.mutation]
    if nodes is None and mutation is not None:
        nodes = mutation.nodes
    with_groups = mutation is not None and mutation.with_groups
    with_compaction = mutation is not None and mutation.with_compaction
    # A simulation makes much garbage at once and is over soon: collecting in between costs more than it saves.
    gc.collect()
    gc.disable()
    try:
        with mutated(job.mutation):
            return run_seed(
                job.seed,
                job.mode,
                nodes=nodes,
                seconds=job.seconds,
                with_groups=with_groups,
                with_compaction=with_compaction,
                with_fleeting=mutation is not None and mutation.with_fleeting,
                with_forgetting=mutation is not None and mutation.with_forgetting,
                kinds=None if mutation is None else mutation.kinds,
            )
    finally:
        gc.enable()
        with warnings.catch_warnings():
            # What nodes had begun, or were about to begin, when they died or the simulation ended.
            warnings.filterwarnings("ignore", message="coroutine .* was never awaited", category=RuntimeWarning)
            gc.collect()


def run_jobs(jobs: list[Job], processes: int) -> Iterator[Result]:
    """The results, as they come."""
    if processes <= 1:
        for job in jobs:
            yield run_job(job)
        return
    with ProcessPoolExecutor(processes) as pool:
        for done in as_completed([pool.submit(run_job, job) for job in jobs]):
            yield done.result()


@dataclass(slots=True)
class Summary:
    """What happened over many seeds."""

    seeds: int = 0
    simulated_s: float = 0.0
    real_s: float = 0.0
    cpu_s: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    failures: list[Result] = field(default_factory=list)
    quiet: list[int] = field(default_factory=list)
    """Seeds that passed with fewer than `FAULTS_MIN` faults."""

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.simulated_s += result.simulated_s
        self.real_s += result.real_s
        self.cpu_s += result.cpu_s
        for mine, theirs in ((self.counts, result.counts), (self.faults, result.faults)):
            for name, count in theirs.items():
                mine[name] = mine.get(name, 0) + count
        if result.failure is not None:
            self.failures.append(result)
        elif sum(result.faults.values()) < FAULTS_MIN:
            self.quiet.append(result.seed)

    @property
    def speed(self) -> str:
        """Simulated seconds in a real second of one process, and in a second of its CPU, which others on the machine
        disturb less."""
        real, cpu = (self.simulated_s / max(spent_s, 1e-9) for spent_s in (self.real_s, self.cpu_s))
        return f"{real:.0f} simulated seconds per real second and process ({cpu:.0f} per second of CPU)"

    def never_happened(self, faults: Iterable[str]) -> list[str]:
        """What should have happened in so many seeds, and did not."""
        if self.seeds < MUST_HAPPEN_SEEDS:
            return []
        return [name for name in faults if not self.faults.get(name)] + [
            name for name, count in self.counts.items() if not count
        ]


def build_identity() -> str:
    """Of the code that is simulated: with the seed, all that it takes to replay a run."""
    root = Path(__file__).parent.parent
    digest = blake2b(digest_size=8)
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.c")]):
        if "messages" not in path.parts:
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


class Progress:
    """The seeds that have passed, with what happened in them, in a file, so that a long run can be taken up again and
    its summary is of all of it. Of this very build only, and of clusters as large and troubles as long as asked for."""

    def __init__(self, directory: Path, mode: Mode, *, nodes: int | None, seconds: float) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        shape = f"{'any' if nodes is None else nodes}-nodes-{seconds:g}-seconds"
        self._path = directory / f"{mode.value}-{shape}-{build_identity()}.jsonl"
        self.done: dict[int, Result] = {}
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                known = json.loads(line)
                self.done[known["seed"]] = Result(mode=mode, failure=None, **known)

    def note(self, result: Result) -> None:
        if result.failure is None:
            with self._path.open("a") as file:
                file.write(json.dumps({name: getattr(result, name) for name in _KEPT}) + "\n")


_KEPT = ("seed", "digest", "simulated_s", "real_s", "cpu_s", "counts", "faults")
