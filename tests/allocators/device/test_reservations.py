"""Devices out of reservations, victims, and designated devices."""

from __future__ import annotations

from typing import Any

import attrs

from koordcore.allocators.device import allocate_devices
from koordcore.allocators.device.reservations import DeviceReservation, remaining_devices
from koordcore.model.devices import DeviceAllocation, DeviceShortfall, StatusCode
from tests.allocators.device.build import card, cards, gpus, machine, nic, nics, read, std8, want
from tests.reference.reserved_devices import allocate_reserved

VF = {
    "rdma": [
        {"minor": 1, "resources": {"koordinator.sh/rdma": "1"}, "extension": {"vfs": [{"busID": "1:0"}]}}
    ]
}
ONE_VF = want({"koordinator.sh/rdma": "1"}, device_allocate_hint={"rdma": {"vfSelector": {}}})


def minors(found: DeviceAllocation | DeviceShortfall) -> dict[str, list[int]]:
    assert isinstance(found, DeviceAllocation), found
    return {str(kind): list(found.minors(kind)) for kind in found.devices}


def reasons(found: DeviceAllocation | DeviceShortfall) -> tuple[str, ...]:
    assert isinstance(found, DeviceShortfall), found
    return found.reasons


def test_reserved_cards_are_taken_first() -> None:
    """The owner gets the reserved card, also where every card has its place."""
    state = machine(std8(), {"r": cards(7)})
    mine = DeviceReservation(holder="r", matched=True)
    assert minors(allocate_reserved(state, gpus(1), [mine], nominated="r")) == {"gpu": [7]}
    assert minors(allocate_reserved(state, gpus(1), [mine])) == {"gpu": [0]}


def test_all_reserved_cards_are_taken_before_others_of_their_switch() -> None:
    """The owner gets both of them, though lower cards beside them are free."""
    wide = [card(minor, (0, "0")) for minor in range(4)]
    state = machine(wide, {"r": cards(2, 3)})
    mine = DeviceReservation(holder="r", matched=True)
    assert minors(allocate_reserved(state, gpus(2), [mine], nominated="r")) == {"gpu": [2, 3]}
    assert minors(allocate_reserved(state, gpus(3), [mine], nominated="r")) == {"gpu": [0, 2, 3]}


def test_a_card_is_in_use_until_everything_of_it_is_given_back() -> None:
    """Half a card is reserved for the pod; who wants it untouched gets it only where nobody has the rest."""
    shared = machine([card(0, (0, "0"))], {"r": cards(0, percent=50), "other": cards(0, percent=50)})
    alone = machine([card(0, (0, "0"))], {"r": cards(0, percent=50)})
    untouched = want(
        {"koordinator.sh/gpu": "50"}, device_allocate_hint={"gpu": {"exclusivePolicy": "DeviceLevel"}}
    )
    mine = DeviceReservation(holder="r", matched=True)
    assert minors(allocate_reserved(alone, untouched, [mine], nominated="r")) == {"gpu": [0]}
    assert reasons(allocate_reserved(shared, untouched, [mine])) == ("Insufficient GPU Devices",)


def test_a_reservation_of_others_keeps_its_cards() -> None:
    """Unmatched reservations block what they have not given out, and only that."""
    state = machine([card(0, (0, "0"))], {"r": cards(0), "owner": cards(0, percent=50)})
    other = DeviceReservation(holder="r", consumers=("owner",))
    half = want({"koordinator.sh/gpu": "50"})
    assert reasons(allocate_reserved(state, half, [other])) == ("Insufficient GPU Devices",)
    assert minors(allocate_reserved(state, half, [attrs.evolve(other, matched=True)])) == {"gpu": [0]}


def test_vfs_come_back_with_a_reservation_and_with_victims() -> None:
    """The only VF is held: its reservation's owner and a preemptor get it, nobody else."""
    state = machine([nic(1, (0, "0"), 1)], {"r": VF})
    mine = DeviceReservation(holder="r", matched=True)
    assert minors(allocate_reserved(state, ONE_VF, [mine], nominated="r")) == {"rdma": [1]}
    assert minors(allocate_reserved(state, ONE_VF, victims=["r"])) == {"rdma": [1]}
    assert reasons(allocate_reserved(state, ONE_VF, [attrs.evolve(mine, matched=False)])) == (
        "Insufficient rdma devices",
    )
    # A consumer of the reservation already has the VF: it does not come back.
    used = machine([nic(1, (0, "0"), 1)], {"r": VF, "owner": VF})
    shared = DeviceReservation(holder="r", consumers=("owner",), matched=True)
    assert reasons(allocate_reserved(used, ONE_VF, [shared], nominated="r")) == ("Insufficient rdma devices",)


def test_a_restricted_reservation_limits_every_type() -> None:
    """Nothing of its NIC is left, so a pod that must sit inside gets no NIC from outside."""
    state = machine(std8(0), {"r": cards(0) | nics(1), "owner": nics(1)})
    inside = DeviceReservation(holder="r", policy="Restricted", consumers=("owner",), matched=True)
    request = attrs.evolve(want({"nvidia.com/gpu": "1", "koordinator.sh/rdma": "1"}), loan_required=True)
    found = allocate_reserved(state, request, [inside], nominated="r")
    assert reasons(found) == ("Reservation(s) Insufficient rdma devices",)
    assert minors(
        allocate_reserved(state, attrs.evolve(request, amounts=gpus(1).amounts), [inside], nominated="r")
    ) == {"gpu": [0]}


def test_an_unknown_policy_is_passed_over() -> None:
    """Upstream skips it; a pod that must sit in it is refused without a reason."""
    state = machine(std8(), {"r": cards(0)})
    odd = DeviceReservation(holder="r", policy="Odd", matched=True)
    required = attrs.evolve(gpus(1), loan_required=True)
    assert reasons(allocate_reserved(state, required, [odd], nominated="r")) == ()


def test_victims_inside_another_reservation_free_nothing_here() -> None:
    """What a consumer leaves goes back to its reservation."""
    state = machine([card(0, (0, "0"))], {"r": cards(0), "owner": cards(0)})
    theirs = DeviceReservation(holder="r", consumers=("owner",))
    assert reasons(allocate_reserved(state, gpus(1), [theirs], victims=["owner"])) == (
        "Insufficient GPU Devices",
    )


def test_designated_devices_are_taken_or_refused_with_their_holder() -> None:
    """Exactly these cards; a refusal names who holds them; a card that is not there is an error."""
    state = machine(std8(), {"d/other": cards(5)})
    free = attrs.evolve(gpus(1), designated=read(cards(6)))
    assert minors(allocate_devices(state, free)) == {"gpu": [6]}
    held = allocate_devices(state, attrs.evolve(gpus(1), designated=read(cards(5))))
    assert isinstance(held, DeviceShortfall)
    assert held.reasons == ("Insufficient GPU Devices",)
    assert held.detail == "gpu 5 is held by d/other"
    gone = allocate_devices(state, attrs.evolve(gpus(1), designated=read(cards(9))))
    assert isinstance(gone, DeviceShortfall)
    assert gone.code is StatusCode.ERROR
    assert gone.reasons == (
        "fillGPUTotalMem failed: no healthy gpu device with minor 9 of allocation, node: n",
    )


def test_a_designated_vf_must_be_free() -> None:
    """The VF that is named, not another one of the same NIC."""
    state = machine([nic(1, (0, "0"), 2)], {"a": VF})
    taken = attrs.evolve(ONE_VF, designated=read(VF))
    assert reasons(allocate_devices(state, taken)) == ("Insufficient rdma devices",)
    assert minors(allocate_devices(state, ONE_VF)) == {"rdma": [1]}


def test_what_a_reservation_still_holds_is_what_its_users_have_not_taken() -> None:
    """Amounts of each card less those of all users; a card used up is left out, and so is a VF in use."""

    def of_nic(*ranks: int) -> dict[str, Any]:
        vfs = {"vfs": [{"busID": f"1:{rank}"} for rank in ranks]}
        amount = {"koordinator.sh/rdma": str(len(ranks))}
        return {"rdma": [{"minor": 1, "resources": amount, "extension": vfs}]}

    held = read(cards(0, 1, 2) | of_nic(0, 1, 2))
    used = [read(cards(0, percent=30) | of_nic(1)), read(cards(0, percent=20)), read(cards(2))]
    kept = cards(0, percent=50)["gpu"] + cards(1)["gpu"]
    assert remaining_devices(held, used) == read({"gpu": kept} | of_nic(0, 2))
    assert remaining_devices(held, []) == held
    assert remaining_devices(held, [held]) == DeviceAllocation()
