"""Claims, CPUs and Koordinator's cards on the NUMA nodes of one node, against a search over all sets of them.

Where the policy keeps a pod to some NUMA nodes, it fits exactly when there is a set of them that has its
CPUs, its cards, and devices near it for all its claims; best effort takes such a set where there is one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from hypothesis import given, settings, strategies as st

from koordcore import Bound, schedule, verify
from koordcore.manifests import snapshot_from_objects
from koordcore.model.resources import parse_resources
from koordcore.protocol.device import parse_allocation
from tests.scheduling.test_numa import STATUS, node, pod

DRIVER = "gpu.example.com"
HELD = ("Restricted", "SingleNUMANode")
POLICIES = ("", "BestEffort", *HELD)
NUMA = "resource.kubernetes.io/numaNode"
NEAR = (None, 0, 1, (0, 1), (1,))


def published(near: Sequence[Any]) -> dict[str, Any]:
    """A slice with devices, each near what is said; ``None`` for a device that tells nothing."""
    devices: list[dict[str, Any]] = []
    for number, told in enumerate(near):
        kind: dict[str, Any] = {"int": told} if isinstance(told, int) else {"ints": list(told or ())}
        attributes = {"kind": {"string": "ab"[number % 2]}} | ({NUMA: kind} if told is not None else {})
        devices.append({"name": f"d-{number}", "attributes": attributes})
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "n1-devices"},
        "spec": {
            "driver": DRIVER,
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def claiming(name: str, cpu: int, gpus: int, wanted: tuple[str, ...], *, bound: bool) -> list[dict[str, Any]]:
    """A pod with a claim that has a request for each kind that is wanted, and that claim."""
    one = pod(name, cpu, gpus=gpus, bound=bound)
    one["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": f"{name}-c"}]
    requests = [
        {
            "name": f"r{number}",
            "exactly": {
                "deviceClassName": "any",
                "selectors": [{"cel": {"expression": f"device.attributes['{DRIVER}'].kind in {list(kind)}"}}],
            },
        }
        for number, kind in enumerate(wanted)
    ]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": f"{name}-c", "namespace": one["metadata"].get("namespace", "default")},
        "spec": {"devices": {"requests": requests}},
    }
    return [one, claim]


CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "any"},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
}


Near: TypeAlias = int | tuple[int, ...] | None
"""What a device tells: a NUMA node, several that it is near, or nothing."""


def may_serve(near: Near, numas: frozenset[int]) -> bool:
    """Tell whether a device may be used with some NUMA nodes."""
    return near is None or bool(numas & ({near} if isinstance(near, int) else set(near)))


def gets(near: Sequence[Near], free: Sequence[int], wanted: tuple[str, ...], numas: frozenset[int]) -> bool:
    """Tell whether every request finds a device of its own that may be used with some NUMA nodes."""
    if not wanted:
        return True
    fitting = [one for one in free if "ab"[one % 2] in wanted[0] and may_serve(near[one], numas)]
    return any(gets(near, [other for other in free if other != one], wanted[1:], numas) for one in fitting)


class Ask(NamedTuple):
    """CPUs and whole cards of a pod, and the kinds of its requests."""

    cpu: int
    cards: int
    wanted: tuple[str, ...]


asks = st.builds(
    Ask,
    cpu=st.integers(1, 4),
    cards=st.integers(0, 2),
    wanted=st.lists(st.sampled_from(("a", "b", "ab")), min_size=1, max_size=2).map(tuple),
)


@settings(max_examples=17, deadline=None)
@given(
    policy=st.sampled_from(POLICIES),
    near=st.lists(st.sampled_from(NEAR), min_size=1, max_size=5),
    cards=st.lists(st.integers(0, 1), max_size=3).map(tuple),
    every=st.lists(asks, min_size=1, max_size=3),
)
def test_a_pod_fits_where_some_numa_nodes_have_its_cpus_its_cards_and_the_devices_of_its_claims(
    policy: str, near: list[Near], cards: tuple[int, ...], every: list[Ask]
) -> None:
    """Pods come one after another; each time all sets of NUMA nodes are looked at by hand."""
    parts = [claiming(f"p{number}", *ask, bound=False) for number, ask in enumerate(every)]
    objects = [*node("n1", policy=policy, cards=cards), published(near), CLASS, *chain.from_iterable(parts)]
    snapshot = snapshot_from_objects(objects).snapshot
    room = {0: 4000, 1: 4000}
    minors, devices = set(range(len(cards))), set(range(len(near)))
    sets = [
        frozenset(numas) for numas in ((0,), (1,), (0, 1)) if len(numas) == 1 or policy != "SingleNUMANode"
    ]
    for number, ask in enumerate(every):
        pending = next(one for one in snapshot.pending if one.name == f"p{number}")
        result = schedule(snapshot, [pending])
        assert verify(snapshot, result) == ()
        (decision,) = result.decisions
        serving = [
            numas
            for numas in sets
            if 1000 * ask.cpu <= sum(room[numa] for numa in numas)
            and ask.cards <= sum(cards[minor] in numas for minor in minors)
            and gets(near, sorted(devices), ask.wanted, numas)
        ]
        if policy in HELD:
            assert isinstance(decision, Bound) == bool(serving)
        if not isinstance(decision, Bound):
            continue
        got = {int(one.id.device[2:]) for held in decision.claims for one in held.allocation.results}
        if policy and serving:
            # It got a smallest set of NUMA nodes that has everything, and devices near it.
            least = min(map(len, serving))
            assert any(
                all(may_serve(near[one], numas) for one in got) for numas in serving if len(numas) == least
            )
        devices -= got
        for entry in json.loads(decision.annotations.get(STATUS, "{}")).get("numaNodeResources", ()):
            room[entry.get("node", 0)] -= parse_resources(entry["resources"]).get("cpu", 0)
        allocation = parse_allocation(decision.annotations)
        if allocation is not None:
            minors -= {one.minor for many in allocation.devices.values() for one in many}
        if not policy:
            return  # nothing is written down, so that the room by NUMA node is not known
        snapshot = result.snapshot
