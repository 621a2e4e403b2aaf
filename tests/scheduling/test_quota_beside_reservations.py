"""What a reservation holds is used by nobody yet, in the call that places it as in the next."""

from __future__ import annotations

from koordcore import Bound, ClusterSnapshot, Node, Pod, schedule
from koordcore.model.quotas import ElasticQuota
from koordcore.model.reservations import Reservation, ReservationOwner
from koordcore.model.selectors import LabelSelector

QUOTA = "quota.scheduling.koordinator.sh/name"


def test_a_reservation_that_is_placed_charges_no_quota() -> None:
    owner = ReservationOwner(selector=LabelSelector(match_labels={"app": "x"}))
    room = Pod(name="t", requests={"cpu": 6000})
    held = Reservation(name="r", uid="ru", ttl=0, template=room, owners=(owner,))
    user = Pod(name="user", priority=10, labels={"app": "x"}, requests={"cpu": 6000})
    other = Pod(name="other", labels={QUOTA: "a"}, requests={"cpu": 4000})
    quota = ElasticQuota(name="a", max={"cpu": 8000}, min={"cpu": 4000})
    cluster = ClusterSnapshot(
        nodes=[Node(name="n", allocatable={"cpu": 10000, "pods": 10})],
        pending=[user, other],
        records=[quota, held],
    )
    result = schedule(cluster)
    assert all(isinstance(one, Bound) for one in result.decisions)
    assert {str(one.pod): getattr(one, "reservation", "") for one in result.decisions} == {
        "default/ru": "",
        "default/user": "r",
        "default/other": "",
    }
