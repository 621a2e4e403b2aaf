"""The debug endpoints by path, and the reservations of a node."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from koordcore import ClusterSnapshot, Node, NodeState, Pod, Policy
from koordcore.errors import ModelError
from koordcore.explaining.endpoints import ENDPOINTS, endpoint_view
from koordcore.explaining.reservation_view import reservation_view
from koordcore.explaining.views import load_view, node_view
from koordcore.framework.registry import PLUGINS
from koordcore.manifests import load
from koordcore.manifests.scheduler_config import koordinator_policy
from koordcore.model.metrics import NodeMetric, measured_of
from koordcore.model.pods import HostPort
from koordcore.model.quotas import ElasticQuota
from koordcore.model.reservations import (
    AllocatePolicy,
    ControllerReference,
    Reservation,
    ReservationOwner,
    ReservationPhase,
    ReservationStatus,
)
from koordcore.model.resources import make_resources
from koordcore.model.selectors import LabelSelector, Requirement, SelectorOperator

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gpu-cluster.yaml"
GIB = 2**30
USES = "scheduling.koordinator.sh/reservation-allocated"


def reserved_cluster() -> ClusterSnapshot:
    """A restricted reservation of 4 CPUs with one user of 1 CPU, and one that waits for a node."""
    port = HostPort(8080)
    held = Reservation(
        name="batch",
        uid="r-1",
        template=Pod(name="t", requests={"cpu": 4000, "memory": 8 * GIB}, host_ports=(port,)),
        owners=(
            ReservationOwner(
                controller=ControllerReference(namespace="team", name="job", controller=True),
                selector=LabelSelector(
                    {"app": "job"}, (Requirement("tier", SelectorOperator.IN, ("a", "b")),)
                ),
            ),
        ),
        allocate_once=False,
        allocate_policy=AllocatePolicy.RESTRICTED,
        annotations={"node.koordinator.sh/reservation": '{"resources": {"cpu": "500m"}}'},
        status=ReservationStatus(
            phase=ReservationPhase.AVAILABLE, node_name="n", allocatable={"cpu": 4000, "memory": 8 * GIB}
        ),
    )
    user = Pod(
        name="w-0",
        namespace="team",
        uid="u-1",
        node_name="n",
        requests={"cpu": 1000, "example.com/other": 1},
        host_ports=(port,),
        annotations={USES: '{"name": "batch", "uid": "r-1"}'},
    )
    node = Node(name="n", allocatable={"cpu": 16_000, "memory": 32 * GIB, "pods": 110})
    return ClusterSnapshot(
        nodes=[NodeState(node, (user,)), Node(name="o", allocatable=node.allocatable)],
        records=[held, Reservation(name="later", template=Pod(name="t"))],
    )


def test_reservations_are_shown_with_their_users() -> None:
    (item,) = reservation_view(reserved_cluster(), "n")["items"]
    assert item == {
        "name": "batch",
        "namespace": "",
        "uid": "r-1",
        "kind": "Reservation",
        "available": True,
        "allocateOnce": False,
        "allocatable": {"cpu": "4", "memory": "8Gi"},
        "reserved": {"cpu": "500m"},
        "allocated": {"cpu": "1"},
        "allocatablePorts": [{"hostIP": "0.0.0.0", "protocol": "TCP", "port": 8080}],
        "allocatedPorts": [{"hostIP": "0.0.0.0", "protocol": "TCP", "port": 8080}],
        "availableResource": {"cpu": "2500m", "memory": "8Gi"},
        "allocatedResource": {"cpu": "1"},
        "owners": [
            {
                "controller": {"namespace": "team", "name": "job", "controller": True},
                "labelSelector": {
                    "matchLabels": {"app": "job"},
                    "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
                },
            }
        ],
        "allocatePolicy": "Restricted",
        "assignedPods": [
            {
                "Namespace": "team",
                "Name": "w-0",
                "UID": "u-1",
                "Requests": {"cpu": "1", "example.com/other": "1"},
                "Ports": [{"hostIP": "0.0.0.0", "protocol": "TCP", "port": 8080}],
            }
        ],
    }
    assert reservation_view(reserved_cluster(), "o") == {"items": []}
    with pytest.raises(ModelError, match="no node z"):
        reservation_view(reserved_cluster(), "z")


@pytest.mark.parametrize("path", ENDPOINTS)
def test_every_endpoint_gives_json(path: str) -> None:
    """Each route answers for the example, with the names filled in."""
    quota = ElasticQuota(name="team", max=make_resources({"cpu": 1000}))
    snapshot = load([EXAMPLE]).snapshot.with_records(quota)
    name = "team" if "quota" in path else "gpu-s1b1-1"
    asked = path.replace(":namespace/:name", "default/pretrain").replace(":name", name)
    assert json.loads(json.dumps(endpoint_view(snapshot, asked))) is not None


def test_paths_lead_to_the_views() -> None:
    snapshot = reserved_cluster()
    assert endpoint_view(snapshot, "/apis/v1/nodes/n/") == node_view(snapshot, "n")
    assert endpoint_view(snapshot, "/apis/v1/__services__")["GET"] == list(ENDPOINTS)
    assert (
        endpoint_view(snapshot, "/apis/v1/plugins/Reservation/nodeReservations/n")["items"][0]["uid"] == "r-1"
    )
    gpus = endpoint_view(load([EXAMPLE]).snapshot, "/apis/v1/plugins/DeviceShare/nodeDeviceSummaries")
    assert "gpu-s1b1-1" in gpus
    assert "cpu-1" not in gpus


def test_the_policy_and_the_clock_count() -> None:
    """Load is shown with the arguments of the policy, at the moment of the newest metric by default."""
    moment = datetime(2026, 3, 1, 12, tzinfo=UTC)
    metric = NodeMetric(
        node="n", update_time=int(moment.timestamp()) * 10**9, node_usage=measured_of({"cpu": 1})
    )
    snapshot = reserved_cluster().with_records(metric)
    path = "/apis/v1/plugins/LoadAwareScheduling/node/n"
    shipped = koordinator_policy(PLUGINS)
    setting = shipped.plugin("LoadAwareScheduling")
    assert setting is not None
    assert endpoint_view(snapshot, path, policy=shipped) == load_view(snapshot, "n", moment, setting.args)
    later = datetime(2026, 3, 2, tzinfo=UTC)
    assert endpoint_view(snapshot, path, now=later)["pods"][0]["timestamp"] == "2026-03-02T00:00:00Z"


@pytest.mark.parametrize("path", ["/nope", "/apis/v1/nodes", "/apis/v1/nodes/n/x", "apis/v1/nodes/n"])
def test_other_paths_are_named_as_such(path: str) -> None:
    with pytest.raises(ModelError, match=f"no endpoint {path}; there are /apis/v1/__services__"):
        endpoint_view(reserved_cluster(), path)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/apis/v1/plugins/Coscheduling/gang/default/none", "no gang default/none"),
        ("/apis/v1/plugins/ElasticQuota/quotas/none", "no quota none"),
        ("/apis/v1/nodes/none", "no node none"),
    ],
)
def test_names_that_are_not_there(path: str, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        endpoint_view(reserved_cluster(), path, policy=Policy())
