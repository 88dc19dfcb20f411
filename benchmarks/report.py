"""The table on the terminal, the page `results.md` and its plot."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from tests.oracle.apache_kafka import BROKER_HEAP, KAFKA_VERSION

from . import cases, servers
from .load import Batches
from .runner import DISTURBING_CPUS, PATIENCE, Result, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how a run was made."""

    names: tuple[str, str]
    repetitions: int
    data: Path
    pure: bool
    ceiling: Mapping[str, float]


def number(value: float) -> str:
    """Three significant digits, and whole numbers from a hundred up."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 else f"{value:.5f}"


def bar(row: Row) -> str:
    if row.metric.bar is None:
        return "–"
    sign = "≥" if row.metric.better == "more" else "≤"
    return f"{sign} {row.metric.bar:g}{'' if row.metric.of_itself else ' ×'}"


def cells(row: Row) -> list[str]:
    """Title, ours, Kafka's, ratio, range of the pairs, bar, verdict, CPU cost of each side."""
    if row.result.failure:
        return [row.title, "–", "–", "–", "–", bar(row), f"failed: {row.result.failure.splitlines()[0][:90]}", "–"]
    costs = [row.cpu_s_per_gb(side) for side in (0, 1)]
    cost = " / ".join(f"{value:.2f}" for value in costs if value is not None) or "–"
    low, high = min(row.ratios), max(row.ratios)
    return [
        row.title,
        f"{number(row.median(0))} {row.metric.unit}",
        f"{number(row.median(1))} {row.metric.unit}",
        f"{row.ratio:.2f}",
        f"{low:.2f}–{high:.2f}",
        bar(row),
        (row.verdict or "–") + (" (a pair met it)" if row.met_by_a_pair else "") + ("†" if row.disturbed else ""),
        cost,
    ]


HEADINGS = ("", "{0}", "{1}", "ratio", "of pairs", "bar", "", "CPU-s/GB {0} / {1}")


def table(rows: Sequence[Row], names: tuple[str, str]) -> Table:
    drawn = Table(pad_edge=False)
    for index, heading in enumerate(HEADINGS):
        drawn.add_column(heading.format(*names), justify="left" if index == 0 else "right")
    styles = {"met": "green", "missed": "red", "failed": "bold red", "": ""}
    for row in rows:
        drawn.add_row(*cells(row), style=styles[row.verdict])
    return drawn


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _file_system(path: Path) -> str:
    done = subprocess.run(["stat", "-f", "-c", "%T", str(path)], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def surroundings(setting: Setting) -> list[str]:
    """The machine, and what runs on it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    try:
        native = not setting.pure and importlib.util.find_spec("ottla.records._native") is not None
    except ModuleNotFoundError:
        native = False
    loop = f"uvloop {_version('uvloop')}" if importlib.util.find_spec("uvloop") else "asyncio"
    return [
        f"Machine: {_cpu_model()}, {os.cpu_count()} CPUs, {memory:.0f} GiB memory, Linux {platform.release()}, "
        f"data on {_file_system(setting.data)}.",
        f"{setting.names[0]}: Ottla {_version('ottla')}, Python {platform.python_version()}, {loop}, "
        f"{'with' if native else 'without'} the compiled function.",
        f"{setting.names[1]}: Apache Kafka {KAFKA_VERSION}, {servers.java_version()}, "
        f"{' '.join(BROKER_HEAP)} and the G1 flags of its scripts, broker and controller in one process.",
    ]


def facts(setting: Setting) -> list[str]:
    ceiling = "; ".join(f"{name}: {number(value)}" for name, value in setting.ceiling.items())
    large, small = Batches.filling(65536, 1024), Batches.filling(16384, 1024)
    return [
        *surroundings(setting),
        "Both keep their defaults, so neither calls fsync on the way of a record: the operating system writes back "
        "when it sees fit. Deleted topics leave the disk at once "
        f"(`{next(iter(servers.SETTINGS))}=0`), on both sides.",
        "Load: `rawload.c`, one thread, Produce 13 and Fetch 18 as current Java clients send them, 5 requests in "
        f"flight on each connection, one batch a request. A batch of 64 KB holds {large.records} records of 1 KB or "
        f"{Batches.filling(65536, 100).records} of 100 B; one of 16 KB {small.records} or "
        f"{Batches.filling(16384, 100).records}. Nothing is compressed. MB are 10⁶ bytes of record values "
        "(fetch: of batches).",
        "Fetches ask for 1 MiB a partition within an incremental fetch session, one request in flight, and read "
        f"{cases.FILL_BYTES / 1e6:.0f} MB, which the disk has already, again and again; cold ones read it once "
        "after all its pages left the page cache (checked with mincore; what a hypervisor caches is out of reach).",
        "Latency counts from the moment a request was due (no coordinated omission).",
        f"Medians of {setting.repetitions} (of the lines that spread most, three times as many), the sides taking "
        "turns; both warmed up with the same mix. `of pairs` is the range of the ratios of neighbouring runs. A line "
        f"whose pairs lie on both sides of its bar is measured {PATIENCE} times as often; where the median missed the "
        "bar and one of them did not, the verdict says so. "
        "CPU-seconds are the server's, user and system, from `/proc`. Memory is PSS. Kafka's start leaves out the "
        "time to format its directory, Ottla's includes it; Ottla's bytecode is compiled beforehand, as pip does for "
        "what it installs.",
        f"† other processes took more than {DISTURBING_CPUS:g} of a CPU while the line was measured, writing back to "
        "the disk included: measure again on a quieter machine.",
        f"The generator's own ceiling, against a server that only answers: {ceiling}.",
    ]


def markdown(
    rows: Sequence[Row],
    setting: Setting,
    plot: str,
    *,
    where: Sequence[str] | None = None,
    told: Sequence[str] = (),
    made_by: str = "make bench",
) -> str:
    """`where` and `told` are the surroundings, and how it was measured; by default what `make bench` does."""
    names = setting.names
    lines = [
        f"# {names[0]} beside {names[1]}",
        "",
        f"Written by `{made_by}` on {time.strftime('%Y-%m-%d')}{', pure fallback' if setting.pure else ''}.",
        "",
        f"![Ratios of {names[0]} to {names[1]}]({plot})",
        "",
        "| " + " | ".join(heading.format(*names) for heading in HEADINGS) + " |",
        "|---" + "|--:" * (len(HEADINGS) - 1) + "|",
        *("| " + " | ".join(cells(row)) + " |" for row in rows),
        "",
        "## How it was measured",
        "",
        *(f"- {fact}" for fact in ([*(where or surroundings(setting)), *told] if told else facts(setting))),
        "",
    ]
    return "\n".join(lines)


def plot(rows: Sequence[Row], setting: Setting, target: Path) -> None:
    """Ratios as dots with the range of their pairs, the bar of each as a tick; to the right is more than Kafka."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "ottla"
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    shown = [row for row in rows if not row.result.failure][::-1]
    figure, axes = pyplot.subplots(figsize=(10, 1.2 + 0.24 * len(shown)))
    colours = {"met": "#1a7f37", "missed": "#cf222e", "": "#57606a"}
    for height, row in enumerate(shown):
        colour = colours[row.verdict]
        axes.plot([min(row.ratios), max(row.ratios)], [height, height], color=colour, linewidth=2, alpha=0.4)
        axes.plot([row.ratio], [height], "o", color=colour, markersize=5)
        if row.metric.bar is not None:
            axes.plot([row.metric.bar], [height], "|", color="black", markersize=9)
    axes.set_yticks(range(len(shown)), [row.title for row in shown], fontsize=7)
    axes.set_xscale("log")
    ticks = [0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.grid(axis="x", linewidth=0.4)
    axes.set_xlabel(f"{setting.names[0]} ÷ {setting.names[1]} (or a share of its own); | is the bar")
    axes.margins(y=0.01)
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})
    pyplot.close(figure)


def is_short(rows: Sequence[Row]) -> bool:
    """Was a bar missed, or could a line not be measured?"""
    return any(row.verdict in ("missed", "failed") for row in rows)


def all_rows(results: Sequence[Result]) -> list[Row]:
    return [row for result in results for row in result.rows()]
