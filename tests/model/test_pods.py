"""What a pod takes from its node, and the states of its life."""

from __future__ import annotations

from datetime import UTC, datetime

import attrs
import pytest

from koordcore import Container, ModelError, Pod
from koordcore.model.containers import effective_requests
from koordcore.model.pods import HostPort, PodPhase

MIB = 2**20


def container(cpu: int, *, sidecar: bool = False) -> Container:
    return Container(requests={"cpu": cpu}, restarts_always=sidecar)


@pytest.mark.parametrize(
    ("containers", "inits", "expected"),
    [
        pytest.param([2, 3], [], 5, id="containers add up"),
        pytest.param([2], [(5, False)], 5, id="a large init container counts"),
        pytest.param([2], [(1, False)], 2, id="a small one does not"),
        pytest.param([2], [(1, True)], 3, id="a sidecar stays"),
        pytest.param([2], [(1, True), (5, False)], 6, id="an init container runs beside earlier sidecars"),
        pytest.param([2], [(5, False), (1, True)], 5, id="but not beside later ones"),
    ],
)
def test_effective_requests(containers: list[int], inits: list[tuple[int, bool]], expected: int) -> None:
    """Kubernetes' rule for containers, init containers and sidecars."""
    made = [container(cpu) for cpu in containers]
    first = [container(cpu, sidecar=sidecar) for cpu, sidecar in inits]
    assert effective_requests(made, first)["cpu"] == expected


def test_pod_level_requests_replace_the_sum_and_overhead_comes_on_top() -> None:
    """Overhead counts once, whatever the containers ask for."""
    pod = Pod(name="p", containers=(container(5),), pod_requests={"cpu": 3}, overhead={"cpu": 1})
    assert pod.requests["cpu"] == 4


def test_scored_requests_assume_something_for_containers_that_ask_for_nothing() -> None:
    """100 milli-CPU and 200 MiB each; an explicit zero stays zero."""
    pod = Pod(name="p", containers=(Container(), Container(requests={"cpu": 0, "memory": 0})))
    assert dict(pod.requests) == {"cpu": 0, "memory": 0}
    assert dict(pod.scored_requests) == {"cpu": 100, "memory": 200 * MIB}


def test_negative_requests_are_refused() -> None:
    """The message names pod, resource and amount."""
    with pytest.raises(ModelError, match=r"^pod default/p: request of cpu is negative: -1$"):
        Pod(name="p", requests={"cpu": -1})


def test_states() -> None:
    """Finished pods hold nothing; terminating ones still do."""
    running = Pod(name="p", node_name="n", phase=PodPhase.RUNNING)
    going = attrs.evolve(running, deleted=datetime(2026, 1, 1, tzinfo=UTC))
    done = attrs.evolve(going, phase=PodPhase.SUCCEEDED)
    assert (running.bound, running.terminating) == (True, False)
    assert (going.bound, going.terminating) == (True, True)
    assert (done.bound, done.terminating) == (False, False)


def test_at_is_evolve() -> None:
    """The short way of binding gives the same pod as the long one."""
    pod = Pod(name="p", labels={"a": "b"}, nominated_node="x", requests={"cpu": 1})
    bound = pod.at("n", annotations={"k": "v"}, labels={"c": "d"})
    same = attrs.evolve(
        pod, node_name="n", nominated_node=None, annotations={"k": "v"}, labels={"a": "b", "c": "d"}
    )
    assert bound == same
    assert hash(bound) == hash(same)
    assert pod.node_name is None


@pytest.mark.parametrize(
    ("left", "right", "clash"),
    [
        pytest.param(HostPort(80), HostPort(80), True, id="same"),
        pytest.param(HostPort(80), HostPort(81), False, id="other port"),
        pytest.param(HostPort(80), HostPort(80, "UDP"), False, id="other protocol"),
        pytest.param(HostPort(80, ip="10.0.0.1"), HostPort(80), True, id="all addresses"),
        pytest.param(HostPort(80, ip="10.0.0.1"), HostPort(80, ip="10.0.0.2"), False, id="other address"),
    ],
)
def test_host_ports(left: HostPort, right: HostPort, clash: bool) -> None:
    """Ports clash as the kernel would see it."""
    assert left.conflicts(right) is clash
    assert right.conflicts(left) is clash
