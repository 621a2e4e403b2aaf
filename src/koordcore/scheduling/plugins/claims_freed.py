"""Who has to leave a node, so that the claims of pods fit there.

In amounts first, which say little of constraints and of where partitions lie but tell most nodes apart at
once; then in sets of pods, exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import attrs
import numpy as np

from koordcore.allocators.claims.departures import departures, holding_of, least_sets
from koordcore.allocators.claims.outcome import ClaimError
from koordcore.allocators.claims.requests import read_claims
from koordcore.allocators.claims.room import Room
from koordcore.allocators.claims.states import Answers
from koordcore.allocators.claims.table import DeviceTable, bits
from koordcore.framework.plugin import Countable
from koordcore.model.claims import (
    EXACT_COUNT,
    ClaimAllocation,
    ClaimRequest,
    ClaimSpec,
    DeviceSubRequest,
    ResourceClaim,
)
from koordcore.model.device_slices import DeviceId
from koordcore.model.pods import Pod, PodKey
from koordcore.scheduling.plugins.claim_book import ClaimKey
from koordcore.scheduling.plugins.claim_ledger import ClaimLedger


def ways_to_free(
    ledger: ClaimLedger, answers: Answers, row: int, going: Sequence[Pod]
) -> tuple[frozenset[PodKey], ...] | None:
    """List the least sets of pods whose leaving lets claims fit on a node.

    A claim is free when all its users have left; one that stands without them is not.

    Parameters
    ----------
    answers
        What the claims get, by state.
    row
        The node.
    going
        Pods on it that may leave.

    Returns
    -------
    tuple of frozenset or None
        Whoever leaves so that the claims fit contains one of these sets; ``None`` where there are too many to
        tell.
    """
    claims = _freed_by(ledger, going)
    number = int(ledger.numbers[row])
    empty = ledger.number_without(row, [allocation for allocation, _ in claims.values()])
    if not answers.fits(empty):
        return ()
    now, emptied = ledger.states.room(number), ledger.states.room(empty)
    forms = read_claims(now.table, answers.claims, ledger.devices.classes)
    if isinstance(forms, ClaimError):
        return None
    known = list(claims.values())

    def fits(leaving: frozenset[int]) -> bool:
        return answers.fits(ledger.number_without(row, [known[place][0] for place in leaving]))

    # The table may be that of another node of the same shape: places are equal, names are not.
    places = ledger.devices.places(row)
    holdings = [holding_of(now.table, places, one) for one, _ in known]
    able = departures(now, emptied, forms, holdings, fits)
    if able is None:
        return None
    names = sorted({pod for _, pods in known for pod in pods})
    numbered = {pod: place for place, pod in enumerate(names)}
    sets = (frozenset(numbered[pod] for place in one for pod in known[place][1]) for one in able)
    return tuple(frozenset(names[place] for place in one) for one in least_sets(sets))


def _freed_by(
    ledger: ClaimLedger, going: Sequence[Pod]
) -> dict[ClaimKey, tuple[ClaimAllocation, frozenset[PodKey]]]:
    """Give the claims that are free once some pods have left, with those of them that use each."""
    users: dict[ClaimKey, set[PodKey]] = {}
    for pod in going:
        for key, _ in ledger.book.held_by(pod):
            users.setdefault(key, set()).add(pod.key)
    found = {}
    for key, pods in users.items():
        allocation = ledger.freed_with(key, len(pods))
        if allocation is not None:
            found[key] = (allocation, frozenset(pods))
    return found


def reaching_pods(
    ledger: ClaimLedger, kinds: Sequence[Sequence[ResourceClaim]], running: Iterable[Pod]
) -> frozenset[PodKey]:
    """Name those of some running pods who hold devices that claims could have on several nodes.

    Parameters
    ----------
    kinds
        The claims of one pod of each kind.
    running
        Pods that may leave.
    """
    devices = ledger.devices
    masks = {shape: _wanted(ledger, shape, kinds) for shape in sorted(set(devices.shape))}
    known: dict[DeviceId, bool] = {}

    def reaches(one: DeviceId) -> bool:
        """Tell whether a device may be in the way on some node; of a pool each kind of node is asked once."""
        pool = (one.driver, one.pool)
        rows = devices.rows_of(pool)
        for row in {devices.shape[row]: row for row in rows}.values() if len(rows) > 1 else ():
            place = devices.places(row).get(pool, {}).get(one.device)
            wanted = masks[devices.shape[row]]
            if place is None:
                # It may draw on counters of the pool all the same.
                if any(other.id == one for seen in devices.pools[row].pools for other in seen.consumers):
                    return bool(wanted)
            elif devices.table(devices.shape[row]).kin_of(wanted) >> place & 1:
                return True
        return False

    found = []
    for pod in running:
        for key, allocation in ledger.book.held_by(pod) if ledger.book.concerns(pod) else ():
            if key in ledger.book.standing:
                continue
            held = {one.id for one in allocation.results if not one.admin_access}
            known |= {one: reaches(one) for one in held - known.keys()}
            if any(known[one] for one in held):
                found.append(pod.key)
                break
    return frozenset(found)


def _wanted(ledger: ClaimLedger, shape: int, kinds: Sequence[Sequence[ResourceClaim]]) -> int:
    """Give the devices that claims could have on nodes of a shape if nobody held any."""
    found = 0
    for claims in kinds:
        read = read_claims(ledger.devices.table(shape), claims, ledger.devices.classes)
        for one in () if isinstance(read, ClaimError) else read:
            for form in (form for forms in one.requests for form in forms):
                found |= form.candidates
    return found


class _Row(NamedTuple):
    """An amount: devices that one form of a request means, or what these draw on counters of one name."""

    form: DeviceSubRequest
    stem: str = ""


def count_claims(
    ledger: ClaimLedger,
    kinds: Sequence[Sequence[ResourceClaim]],
    running: Sequence[tuple[Pod, int]],
) -> Countable | None:
    """Say in amounts what claims ask of nodes, and what running pods hold of it.

    Requests with one form for some number of devices are counted; others add nothing.

    Parameters
    ----------
    kinds
        The claims of one pod of each kind.
    running
        Pods with the rows of their nodes.
    """
    shapes = sorted(set(ledger.devices.shape))
    requests: dict[_Row, list[int]] = {}
    masks: dict[DeviceSubRequest, dict[int, int]] = {}
    listed = frozenset[str]().union(*(ledger.devices.table(shape).pools.node.listed for shape in shapes))
    for number, claims in enumerate(kinds):
        for request in (one for claim in claims for one in claim.spec.requests):
            if request.prioritized or len(request.forms) != 1 or request.resource in listed:
                continue
            (form,) = request.forms
            if form.mode != EXACT_COUNT or form.admin_access:
                continue
            key = attrs.evolve(form, count=1)
            if key not in masks:
                masks[key] = {shape: _mask(ledger, shape, key) for shape in shapes}
            for row, least in _least_of(ledger, key, masks[key]).items():
                known = requests.setdefault(row, [0] * len(kinds))
                known[number] += form.count * least
    rows = list(requests)
    if not rows:
        return None
    free = np.zeros((len(rows), len(ledger.numbers)), np.int64)
    for state in np.unique(ledger.numbers).tolist():
        room = ledger.states.room(state)
        shape = ledger.states.shape_of(state)
        left = [_left(room, row, masks[row.form][shape]) for row in rows]
        free[:, ledger.numbers == state] = np.array(left, np.int64)[:, None]
    gives = np.zeros((len(rows), len(running)), np.int64)
    for place, (pod, node) in enumerate(running):
        held = _held_by(ledger, pod, node)
        if held:
            shape = ledger.devices.shape[node]
            table = ledger.devices.table(shape)
            gives[:, place] = [_given(table, row, masks[row.form][shape], held) for row in rows]
    return Countable(requests=np.array([requests[row] for row in rows], np.int64), free=free, gives=gives)


def _mask(ledger: ClaimLedger, shape: int, form: DeviceSubRequest) -> int:
    """Give the devices that a form of a request could have on nodes of a shape."""
    alone = ResourceClaim(name="", spec=ClaimSpec((ClaimRequest("r", (form,)),)))
    found = read_claims(ledger.devices.table(shape), [alone], ledger.devices.classes)
    return 0 if isinstance(found, ClaimError) else found[0].requests[0][0].candidates


def _least_of(ledger: ClaimLedger, form: DeviceSubRequest, masks: Mapping[int, int]) -> dict[_Row, int]:
    """Say what one device of a form takes at least, wherever it is; nothing where devices are shared."""
    drawn: list[Counter[str]] = []
    for shape, mask in masks.items():
        table = ledger.devices.table(shape)
        if mask & table.shareable:
            return {}
        drawn += [_drawn(table, place) for place in bits(mask)]
    found = {_Row(form): 1}
    for stem in set.intersection(*map(set, drawn)) if drawn else ():
        found[_Row(form, stem)] = min(one[stem] for one in drawn)
    return found


def _drawn(table: DeviceTable, place: int) -> Counter[str]:
    """Sum up what a device draws on counters, those of one name but for a number together."""
    found: Counter[str] = Counter()
    names = table.counter_stems
    for number, amount in table.draws[place]:
        found[names[number]] += amount
    return found


def _left(room: Room, row: _Row, mask: int) -> int:
    table = room.table
    if row.stem:
        mine = {number for place in bits(mask) for number, _ in table.draws[place]}
        return sum(max(0, room.left[one]) for one in mine if table.counter_stems[one] == row.stem)
    mask &= ~room.held & ~room.overdrawn
    return sum(
        all(room.left[number] >= amount for number, amount in table.draws[place]) for place in bits(mask)
    )


def _held_by(ledger: ClaimLedger, pod: Pod, row: int) -> int:
    """Give the devices of a node that are free once a pod has left, if nobody else uses its claims."""
    places = ledger.devices.places(row)
    found = 0
    for key, allocation in ledger.book.held_by(pod):
        if key in ledger.book.standing:
            continue
        for result in allocation.results:
            place = places.get((result.driver, result.pool), {}).get(result.device)
            if place is not None and not result.admin_access:
                found |= 1 << place
    return found


def _given(table: DeviceTable, row: _Row, mask: int, held: int) -> int:
    if row.stem:
        return sum(_drawn(table, place)[row.stem] for place in bits(held))
    near = held
    for place in bits(held & table.drawing):
        near |= table.kin[place]
    return (mask & near).bit_count()
