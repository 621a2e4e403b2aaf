"""Cards in one spelling: whole cards, hundredths of cards and their parts mean the same amounts.

Nodes count cards as ``nvidia.com/gpu`` and as hundredths of core and memory; pods ask in any of these. A plan
of moves that compares amounts does so in hundredths of core and of memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from koordcore.model.devices import AMD_GPU, DCU_GPU, GPU, GPU_CORE, GPU_MEMORY_RATIO, NVIDIA_GPU
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.resources import Resources, make_resources
from koordcore.protocol.device import replace_deprecated

WHOLE_CARDS: Final[Mapping[str, int]] = {NVIDIA_GPU: 100, AMD_GPU: 100, DCU_GPU: 100, GPU: 1}
"""Names that ask for core and memory of cards alike, with their hundredths of a card."""


def asked_by_parts(amounts: Mapping[str, int]) -> Resources:
    """Write a request in hundredths of core and memory of cards.

    >>> dict(asked_by_parts({"cpu": 1000, "nvidia.com/gpu": 2}))
    {'cpu': 1000, 'koordinator.sh/gpu-core': 200, 'koordinator.sh/gpu-memory-ratio': 200}
    """
    written = replace_deprecated(amounts)
    whole = sum(written.pop(name, 0) * parts for name, parts in WHOLE_CARDS.items())
    for name in (GPU_CORE, GPU_MEMORY_RATIO) if whole else ():
        written[name] = written.get(name, 0) + whole
    return make_resources(written)


def nodes_by_parts(nodes: Iterable[Node]) -> list[Node]:
    """Write what nodes offer alike; what they say in parts already counts, and the same cards count once."""
    return [_node(one) if any(name in one.allocatable for name in WHOLE_CARDS) else one for one in nodes]


def _node(node: Node) -> Node:
    there = dict(node.allocatable)
    whole = {name: there.pop(name) * parts for name, parts in WHOLE_CARDS.items() if name in there}
    for name in (GPU_CORE, GPU_MEMORY_RATIO):
        there.setdefault(name, max(whole.values()))
    return attrs.evolve(node, allocatable=there)


def pods_by_parts(pods: Iterable[Pod]) -> list[Pod]:
    """Write what pods ask for alike."""
    return [
        attrs.evolve(pod, requests=asked_by_parts(pod.requests))
        if any(name in pod.requests for name in WHOLE_CARDS)
        else pod
        for pod in pods
    ]
