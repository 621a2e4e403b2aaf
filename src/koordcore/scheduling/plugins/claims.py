"""DynamicResources: nodes on which the ResourceClaims of a pod can be allocated, all of them together.

The filter and the choice are one question, asked once for all nodes whose devices are in the same state
(:mod:`koordcore.allocators.claims.states`). A claim that is allocated already keeps the pod to where its
devices can be used; one that several pods name is allocated with the first of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from koordcore.framework.evaluator import Evaluator, Refusal
from koordcore.framework.extended_resources import asks_by_claims, served_by_classes
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.numa_sides import NUMASides
from koordcore.framework.plugin import Countable, Plugin, Together
from koordcore.framework.workspace import Workspace
from koordcore.model.claims import (
    MAX_CONSUMERS,
    AllocationMode,
    ClaimAllocation,
    ClaimArgs,
    ClaimSpec,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.decisions import PodDecision
from koordcore.model.device_slices import (
    DeviceTaintRule,
    ResourceSlice,
)
from koordcore.model.pods import Pod, PodKey
from koordcore.model.scheduling_groups import SchedulingPodGroup
from koordcore.protocol.claims import ClaimProblem, binding_failure
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import ClusterChanges

if TYPE_CHECKING:
    # What allocates claims is read for the first pod that has some.
    from koordcore.allocators.claims.cluster import ClusterDevices
    from koordcore.allocators.claims.near import ClaimSide
    from koordcore.scheduling.plugins.claim_book import ClaimKey
    from koordcore.scheduling.plugins.claim_evaluator import Wish
    from koordcore.scheduling.plugins.claim_ledger import ClaimLedger


class DynamicResources(Plugin):
    """Devices by ResourceClaims."""

    name = "DynamicResources"
    needs = frozenset((DeviceClass, ResourceClaim, "resource_claims"))
    serves_claims = True
    reads = frozenset(
        (
            DeviceClass,
            DeviceTaintRule,
            ResourceClaim,
            ResourceClaimTemplate,
            ResourceSlice,
            SchedulingPodGroup,
        )
    )
    arguments = ClaimArgs

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self.claim_args = args if isinstance(args, ClaimArgs) else ClaimArgs()
        self._ledger: ClaimLedger | None = None
        self._devices: ClusterDevices | None = None
        self._moved = False
        # It is made anew where nodes or classes change.
        self._by_class = served_by_classes(workspace.snapshot)

    @classmethod
    def closed(
        cls,
        start: ClusterSnapshot,
        end: ClusterSnapshot,
        decisions: Sequence[PodDecision],
        now: datetime | None,
    ) -> ClusterSnapshot:
        if not end.has(ResourceClaim):
            return end
        from koordcore.snapshot.claim_records import with_claims

        return with_claims(end, decisions)

    def follow(self, changes: ClusterChanges) -> bool:
        # Before anybody asks for devices, all that is known of nodes is what they offer.
        known = self._sees_else()
        known = known or ((self._moved or "allocatable" in changes.said) and self._serves_else())
        known = known or (self._ledger is not None and self._ledger.book.reserves_else(changes.pods))
        self._moved = False
        if not known and not (changes.records and self.concerned(changes)):
            # The time in which devices are to get ready runs out.
            return self._ledger is None or not self._ledger.book.awaits
        return False

    def moved(self, moves: NodeMoves) -> bool:
        self._moved = True
        return True

    def _sees_else(self) -> bool:
        """Tell whether nodes see other devices now; another plugin may have led the ledger to them."""
        if self._devices is None:
            return False
        from koordcore.allocators.claims.cluster import cluster_devices

        return cluster_devices(self.workspace.snapshot) is not self._devices

    def _serves_else(self) -> bool:
        """Tell whether device classes serve other resources now: that hangs on what nodes list."""
        return served_by_classes(self.workspace.snapshot) != self._by_class

    def concerned(self, changes: ClusterChanges) -> bool:
        if not super().concerned(changes):
            return False
        if not self.reads.intersection(changes.records) <= {SchedulingPodGroup}:
            return True
        # The status of groups changes often; what matters are the claims of those that have some.
        return any(one.claims for one in self.workspace.snapshot.of(SchedulingPodGroup))

    @property
    def ledger(self) -> ClaimLedger:
        """Who has which claim, up to date."""
        ledger = self._ledger
        if ledger is None:
            from koordcore.scheduling.plugins.claim_ledger import ClaimLedger

            ledger = self.workspace.once(ClaimLedger)
            if not ledger.lead():
                self.workspace.drop(ClaimLedger)
                ledger = self.workspace.once(ClaimLedger)
            self._ledger, self._devices = ledger, ledger.devices
            self.workspace.once(NUMASides).enter(self.name, self)
        ledger.update()
        return ledger

    def request_of(self, pod: Pod) -> Hashable | Refusal | None:
        if not self._asks(pod):
            return None
        book = self.ledger.book
        specs = None if self.claim_args.await_claims else book.specs_of(pod)
        if specs is not None:
            return self._of_missing_class(specs) or specs
        found = book.claims_of(pod)
        if isinstance(found, ClaimProblem):
            return Refusal(found.reason)
        if self.claim_args.await_claims:
            named = found.claims[: len(pod.resource_claims)]
            if any(claim.name in found.planned for claim in named):
                return Refusal(f'pod "{pod.key}": ResourceClaim not created yet')
        for claim in found.claims:
            refusal = self._refusal(pod, claim, grouped=claim.name in found.grouped)
            if refusal is not None:
                return refusal
        return tuple(self._wishes(pod))

    def _asks(self, pod: Pod) -> bool:
        return asks_by_claims(pod, self._by_class)

    def _wishes(self, pod: Pod) -> Iterator[Wish]:
        ledger = self.ledger
        found = ledger.book.claims_of(pod)
        if isinstance(found, ClaimProblem):
            return
        for claim in found.claims:
            key = (claim.namespace, claim.name)
            # Whoever owns it uses it as well.
            shared = ledger.named(key) + bool(claim.owner) > 1 or claim.name in found.grouped
            yield key if shared or ledger.allocation(key) is not None else claim.spec

    def _refusal(self, pod: Pod, claim: ResourceClaim, *, grouped: bool) -> Refusal | None:
        ledger = self.ledger
        key = (claim.namespace, claim.name)
        if ledger.allocation(key) is None:
            return self._of_missing_class((claim.spec,))
        if (
            not grouped  # one entry stands for all members
            and len(claim.reserved_for) + ledger.fresh_users(key) >= MAX_CONSUMERS
            and all(one.name != pod.name for one in claim.reserved_for)
        ):
            return Refusal(f"resource claim {'/'.join(key)} is reserved for {MAX_CONSUMERS} pods already")
        return None

    def _of_missing_class(self, specs: Iterable[ClaimSpec]) -> Refusal | None:
        """Refuse what names a class that does not exist."""
        classes = self.ledger.devices.classes
        for request in (one for spec in specs for one in spec.requests):
            for form in request.forms:
                if form.class_name not in classes:
                    name = f"{request.name}/{form.name}" if form.name else request.name
                    return Refusal(f"request {name}: device class {form.class_name} does not exist")
        return None

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        from koordcore.scheduling.plugins.claim_evaluator import ClaimEvaluator

        return ClaimEvaluator(self, pod, request)

    def claims(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        """Give the claims of a pod, in the order of its entries; none where one of them is missing."""
        found = self.ledger.book.claims_of(pod)
        return () if isinstance(found, ClaimProblem) else found.claims

    def together(self, pods: Sequence[Pod], row: int) -> Together | None:
        if self.claim_args.mode is AllocationMode.FIRST_FIT or self._bound_to_numa(pods, row):
            return None
        from koordcore.scheduling.plugins.claims_together import claims_together

        return claims_together(self.ledger, [(pod.key, self.split(pod)[0]) for pod in pods], row)

    def on_nodes(
        self, pods: Sequence[tuple[Pod, int]], *, whole: bool = False
    ) -> Mapping[PodKey, Any] | None:
        ledger = self.ledger
        if self.claim_args.mode is AllocationMode.FIRST_FIT or ledger.devices.local:
            return None
        if any(self._bound_to_numa([pod], row) for pod, row in pods):
            return None
        from koordcore.scheduling.plugins.claims_together import claims_on_nodes

        found = claims_on_nodes(ledger, [(pod.key, self.split(pod)[0], row) for pod, row in pods])
        if found or whole or found is None:
            return found
        # Beside more pods a claim for all devices may be allocated elsewhere, for others.
        return None if any(self._joins_for_all(pod) for pod, _ in pods) else found

    def _joins_for_all(self, pod: Pod) -> bool:
        from koordcore.scheduling.plugins.claims_together import asks_for_all

        pairs = zip(self.claims(pod), self._wishes(pod), strict=True)
        return any(isinstance(wish, tuple) and asks_for_all(claim) for claim, wish in pairs)

    def never_together(
        self, pods: Sequence[Pod], demand: Sequence[int], rows: Sequence[int]
    ) -> Mapping[int, tuple[tuple[int, ...], ...]]:
        from koordcore.scheduling.plugins.claims_together import never_together

        ledger = self.ledger
        kinds = [self.split(pod)[0] for pod in pods]
        named = any(isinstance(wish, tuple) for pod in pods for wish in self._wishes(pod))
        if self.claim_args.mode is AllocationMode.FIRST_FIT or named or not any(kinds):
            return {}
        known = {
            number: never_together(ledger.states, kinds, demand, number)
            for number in {int(ledger.numbers[row]) for row in rows}
        }
        return {row: known[int(ledger.numbers[row])] for row in rows}

    def ways(
        self, pods: Sequence[Pod], row: int, going: Sequence[Pod], *, anywhere: bool = False
    ) -> tuple[frozenset[PodKey], ...] | None:
        claims = self._countable(pods)
        # Whoever holds devices of several nodes has a say wherever he is.
        if claims is None or not (anywhere or self.ledger.devices.local):
            return None
        from koordcore.scheduling.plugins.claims_freed import ways_to_free

        answers = self.ledger.states.together(claims)
        return ways_to_free(self.ledger, answers, row, going)

    def reaching(self, pods: Sequence[Pod], running: Iterable[Pod]) -> frozenset[PodKey]:
        if self.ledger.devices.local:
            return frozenset()
        from koordcore.scheduling.plugins.claims_freed import reaching_pods

        return reaching_pods(self.ledger, [self.split(pod)[0] for pod in pods], running)

    def countable(self, pods: Sequence[Pod], running: Sequence[tuple[Pod, int]]) -> Countable | None:
        from koordcore.scheduling.plugins.claims_freed import count_claims

        claims = self._countable(pods) if self.ledger.devices.local else None
        return None if claims is None else count_claims(self.ledger, claims, running)

    def _countable(self, pods: Sequence[Pod]) -> list[tuple[ResourceClaim, ...]] | None:
        """Give the claims of pods, where all are to be allocated for one of them on one node."""
        if self.claim_args.mode is AllocationMode.FIRST_FIT:
            return None
        found = []
        for pod in pods:
            unallocated, settled = self.split(pod)
            if settled or any(not isinstance(wish, ClaimSpec) for wish in self._wishes(pod)):
                return None
            found.append(unallocated)
        return found if any(found) else None

    def tied(self, pods: Sequence[Pod]) -> tuple[frozenset[PodKey], ...] | None:
        if not any(map(self._asks, pods)):
            return ()
        from koordcore.scheduling.plugins.claims_together import sharing_one_claim

        ledger = self.ledger
        sharing = sharing_one_claim(
            (pod.key, [(one.namespace, one.name) for one in self.split(pod)[0]]) for pod in pods
        )
        return None if sharing and not ledger.devices.local else sharing

    def _bound_to_numa(self, pods: Sequence[Pod], row: int) -> bool:
        """Tell whether a policy ties claims of some pods to NUMA nodes: each then gets them in its turn."""
        chooser, only = self.workspace.once(NUMASides).chooser, slice(row, row + 1)
        if chooser is None:
            return False
        return any(
            self.numa_side(pod, row) is not None and chooser.holding(pod, only) is not None for pod in pods
        )

    def numa_side(self, pod: Pod, row: int) -> ClaimSide | None:
        """Give what the claims of a pod need of the NUMA nodes of a node; first fit looks at none."""
        if self.claim_args.mode is AllocationMode.FIRST_FIT or not self._asks(pod):
            return None
        from koordcore.scheduling.plugins.claims_near import claim_side

        ledger = self.ledger
        if not ledger.devices.tells_numa[ledger.devices.shape[row]]:
            return None
        unallocated, settled = self.split(pod)
        answers = ledger.states.answers(unallocated, self.claim_args.mode) if unallocated else None
        return claim_side(ledger, answers, settled, row)

    def failures(self, claims: Iterable[ResourceClaim]) -> tuple[str, ...]:
        """Say why a pod cannot be bound with what its claims are allocated; empty where it can."""
        ledger, now = self.ledger, self.workspace.now
        # What drivers say is about the allocation that is written, not about one made since.
        told = (
            binding_failure(claim, now)
            for claim in claims
            if claim.allocation is not None
            and ledger.allocation((claim.namespace, claim.name)) == claim.allocation
        )
        return tuple(filter(None, told))

    def split(self, pod: Pod) -> tuple[tuple[ResourceClaim, ...], tuple[ClaimAllocation, ...]]:
        """Tell a pod's claims that are to be allocated, each once, from what the others are allocated."""
        ledger = self.ledger
        unallocated: dict[ClaimKey, ResourceClaim] = {}
        settled: list[ClaimAllocation] = []
        for claim in self.claims(pod):
            key = (claim.namespace, claim.name)
            allocation = ledger.allocation(key)
            if allocation is None:
                unallocated[key] = claim
            else:
                settled.append(allocation)
        return tuple(unallocated.values()), tuple(settled)
