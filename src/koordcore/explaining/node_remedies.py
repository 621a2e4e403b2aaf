"""What would help pods if nodes said something else: a label that they ask for, or that a node is open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from koordcore.explaining.attempts import Attempts
from koordcore.explaining.remedy import Remedy, RemedyKind, some
from koordcore.model.pods import Pod, PodKey
from koordcore.scheduling.fewest import fewest
from koordcore.snapshot import ClusterSnapshot

_ALONE: Final = 16
"""Cordoned nodes that are tried each by itself."""
_TRIES: Final = 48
"""Calls that are spent on finding out which of several cordoned nodes are needed."""


def selecting(asked: Attempts) -> Iterator[Remedy]:
    """Try without the selectors, and each label of the node selector by itself."""
    keys = sorted({key for pod in asked.members for key in pod.node_selector})
    for key in keys:
        found = asked.fits(members=[_without_label(pod, key) for pod in asked.members])
        if found:
            values = sorted({pod.node_selector[key] for pod in asked.members if key in pod.node_selector})
            there = sorted({label for state in asked.snapshot.nodes if (label := state.node.labels.get(key))})
            known = f"; nodes have {key}={' or '.join(there)}" if there else "; no node has the label"
            named = f"{key}={' or '.join(values)}"
            text = f"without nodeSelector {named} it fits {some(sorted(set(found.values())))}{known}"
            yield Remedy(kind=RemedyKind.SELECT, text=text, paste=_command(asked, key, found))
            return
    affine = any(pod.affinity is not None and pod.affinity.node is not None for pod in asked.members)
    if not keys and not affine:
        return
    changed = [
        attrs.evolve(
            pod,
            node_selector={},
            affinity=None if pod.affinity is None else attrs.evolve(pod.affinity, node=None),
        )
        for pod in asked.members
    ]
    found = asked.fits(members=changed)
    if found:
        text = f"without node selector and node affinity it fits {some(sorted(set(found.values())))}"
        yield Remedy(kind=RemedyKind.SELECT, text=text)


def _without_label(pod: Pod, key: str) -> Pod:
    kept = {one: value for one, value in pod.node_selector.items() if one != key}
    return attrs.evolve(pod, node_selector=kept)


def _command(asked: Attempts, key: str, found: Mapping[PodKey, str]) -> str:
    """Give the command that labels nodes for the members, or for those before them as well."""
    paste = _labelling(asked, key, asked.members, found)
    if paste or not any(key in pod.node_selector for pod in asked.refused):
        return paste
    freed = [_without_label(pod, key) for pod in asked.members]
    others = attrs.evolve(asked, refused=tuple(_without_label(pod, key) for pod in asked.refused))
    places = {one.pod: one.node for one in others.plan(members=freed, before=True).bound}
    return _labelling(asked, key, (*asked.refused, *asked.members), places)


def _labelling(asked: Attempts, key: str, pods: Sequence[Pod], found: Mapping[PodKey, str]) -> str:
    """Give the command that labels each node of a placement that lacks a label; empty where it is in vain."""
    labels: dict[str, str] = {}
    for pod in pods:
        node, value = found.get(pod.key), pod.node_selector.get(key)
        if node is None or value is None or asked.snapshot.node(node).node.labels.get(key) == value:
            continue
        if labels.setdefault(node, value) != value:
            return ""  # a node has one value
    states = [asked.snapshot.node(name) for name in labels]
    changed = asked.snapshot.with_nodes(
        *(
            attrs.evolve(one, node=attrs.evolve(one.node, labels={**one.node.labels, key: labels[one.name]}))
            for one in states
        )
    )
    if not labels or not asked.fits(snapshot=changed):
        return ""
    return " && ".join(
        f"kubectl label node {' '.join(sorted(node for node in labels if labels[node] == value))} "
        f"{key}={value} --overwrite"
        for value in sorted(set(labels.values()))
    )


def uncordoning(asked: Attempts) -> Iterator[Remedy]:
    """Find a cordoned node that would do if it were open, or else few that would together."""
    closed = [state.name for state in asked.snapshot.nodes if state.node.unschedulable]
    found = asked.fits(snapshot=_opened(asked.snapshot, closed)) if closed else {}
    if not found:
        return

    def enough(names: Sequence[str]) -> bool:
        return bool(asked.fits(snapshot=_opened(asked.snapshot, names)))

    nodes = next(([name] for name in closed[:_ALONE] if enough([name])), None)
    if nodes is None:
        near = [name for name in closed if name in found.values()]
        nodes = sorted(fewest(near if near and enough(near) else closed, enough, _TRIES))
    which = "which is cordoned" if len(nodes) == 1 else "which are cordoned"
    paste = f"kubectl uncordon {' '.join(nodes)}"
    first = asked.first(_opened(asked.snapshot, nodes))
    yield Remedy(kind=RemedyKind.UNCORDON, text=f"{some(nodes)}, {which}{first}", paste=paste)


def _opened(snapshot: ClusterSnapshot, names: Sequence[str]) -> ClusterSnapshot:
    states = (snapshot.node(name) for name in names)
    return snapshot.with_nodes(
        *(attrs.evolve(one, node=attrs.evolve(one.node, unschedulable=False)) for one in states)
    )
