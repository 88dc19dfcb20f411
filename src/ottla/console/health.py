"""What is wrong with a cluster, each in a sentence that says what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.admin.asking import why
from ottla.console.poller import Look
from ottla.console.units import count, size

QUORUM_LAG_MAX = 1_000
_NAMED_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    is_bad: bool
    """Records cannot be read or written, or may be lost; else something to keep an eye on."""
    text: str
    link: str


def findings(look: Look) -> list[Finding]:
    """Worst first; none for a cluster that is well."""
    partitions = [each for topic in look.topics.values() for each in topic.partitions]
    found: list[Finding] = []
    offline = [each for each in partitions if each.is_offline]
    if offline:
        names = _some(f"{each.topic}-{each.partition}" for each in offline)
        text = f"{count(len(offline), 'partition')} without a leader ({names}): start the nodes that hold them."
        found.append(Finding(is_bad=True, text=text, link="/topics?sort=in+sync"))
    away = [broker.node for broker in look.cluster.brokers if broker.is_fenced]
    for node in away:
        text = f"Node {node} is not serving: start it, or look into its log."
        found.append(Finding(is_bad=True, text=text, link="/brokers"))
    for directory in look.directories:
        if directory.error is not None:
            if directory.node in away:
                continue  # Then its disks are not what is wrong.
            what = directory.path or "tells nothing of its disks"
            text = f"Node {directory.node} {what}: {why(directory.error)}; look into its log."
            found.append(Finding(is_bad=True, text=text, link="/brokers"))
        elif directory.is_nearly_full():
            text = (
                f"The disk of node {directory.node} at {directory.path} has {size(directory.usable_bytes)} left: "
                "delete records, shorten retention, or add room."
            )
            found.append(Finding(is_bad=False, text=text, link="/brokers"))
    behind = [each for each in partitions if each.is_under_replicated and not each.is_offline]
    if behind:
        names = _some(f"{each.topic}-{each.partition}" for each in behind)
        text = (
            f"{count(len(behind), 'partition')} with replicas out of sync ({names}): they catch up by themselves when "
            "their nodes are well."
        )
        found.append(Finding(is_bad=False, text=text, link="/topics?sort=in+sync"))
    if look.quorum is not None:
        late = [each for each in look.quorum.voters if each.lag > QUORUM_LAG_MAX and each.node not in away]
        if late:
            names = _some(f"node {each.node}" for each in late)
            text = f"Controllers behind the quorum's leader ({names}): start them, or look into their logs."
            found.append(Finding(is_bad=False, text=text, link="/brokers"))
    return sorted(found, key=lambda each: not each.is_bad)


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - _NAMED_MAX
    return ", ".join(listed[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
