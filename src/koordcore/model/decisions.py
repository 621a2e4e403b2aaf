"""What was decided about a pod: a closed union, to be consumed by ``match``."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final, TypeAlias

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.certificates import Certificate
from koordcore.model.checks import check_fields
from koordcore.model.claims import HeldClaim
from koordcore.model.drafts import copier
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.pods import PodKey


@record
class Shortfall:
    """Why something does not fit, with the numbers.

    Parameters
    ----------
    reason
        Upstream's wording, such as ``Insufficient cpu``.
    resource
        The resource that is short; empty where none is.
    requested, available
        Amounts in the resource's unit; both 0 where the reason is not about amounts.
    resolvable
        Evicting pods may help (Kubernetes ``Unschedulable``, not ``UnschedulableAndUnresolvable``).
    """

    reason: str
    resource: str = ""
    requested: int = 0
    available: int = 0
    resolvable: bool = True

    __attrs_post_init__ = check_fields

    @property
    def lacking(self) -> int:
        """How much is missing."""
        return max(0, self.requested - self.available)


@record
class Rejection:
    """A reason and the number of nodes that gave it.

    Parameters
    ----------
    plugin
        The plugin that refused, by its name in the policy.
    reason
        Upstream's wording.
    nodes
        How many nodes gave this reason; a node that lacks two things counts for both.
    resolvable
        Evicting pods may help.
    """

    plugin: str
    reason: str
    nodes: int
    resolvable: bool = True

    __attrs_post_init__ = check_fields


@record
class NearMiss:
    """The node that came closest: refused by the latest plugin, lacking the least.

    Parameters
    ----------
    node
        Its name.
    plugin
        The plugin that refused there.
    shortfalls
        What it lacks.
    remarks
        What other plugins say about the pod there, such as whose reservation has the room.
    """

    node: str
    plugin: str
    shortfalls: tuple[Shortfall, ...]
    remarks: tuple[str, ...] = ()

    __attrs_post_init__ = check_fields

    @property
    def short(self) -> tuple[Shortfall, ...]:
        """The shortfalls to tell: what is there in full is not lacking where something else is.

        NUMA nodes that lack one resource of a pod refuse them all, in upstream's words, too.
        """
        if not any(one.lacking for one in self.shortfalls):
            return self.shortfalls
        return tuple(one for one in self.shortfalls if one.lacking or not one.requested)


@record(kw_only=True, weakref_slot=False)
class Bound:
    """The pod gets a node.

    Parameters
    ----------
    pod, node
        Who and where.
    score
        Weighted sum of all plugins' scores there.
    feasible
        How many nodes could have taken it.
    annotations, labels
        What is written on the pod: the exact devices, CPUs and NUMA amounts, in the cluster's own format.
    reservation
        Name of the reservation whose room is used; empty for none.
    notes
        What a user should know, such as that no card was chosen.
    over
        Running pods over which a reservation is placed: they are its first users.
    dropped
        Annotations that an earlier bind left on the pod and that say what it does not hold; they go.
    claims
        Its ResourceClaims with what they are allocated there.
    """

    pod: PodKey
    node: str
    score: int = 0
    feasible: int = 0
    annotations: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)
    labels: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)
    reservation: str = ""
    notes: tuple[str, ...] = ()
    over: tuple[PodKey, ...] = ()
    dropped: tuple[str, ...] = ()
    claims: tuple[HeldClaim, ...] = ()

    __attrs_post_init__ = check_fields

    @property
    def on_loan(self) -> bool:
        """Whether it draws from a reservation."""
        return bool(self.reservation)


bound_plainly: Final = partial(
    copier(Bound, "pod", "node", "score", "feasible"), Bound(pod=PodKey("", ""), node="")
)
"""``(pod, node, score, feasible)``: the decision by which a pod gets a node and nothing exact there."""

bound_with: Final = copier(Bound, "annotations")
"""``(decision, annotations)``: the same with these written on the pod."""


@record(kw_only=True)
class Waiting:
    """The pod waits.

    Parameters
    ----------
    reason
        What it waits for, such as a closed gate or the rest of its gang.
    held
        What it keeps while it waits, as a member of a NonStrict gang may; ``None`` for nothing. The snapshot
        afterwards has the pod there.
    """

    pod: PodKey
    reason: str
    held: Bound | None = None

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class JobPlan:
    """What became of the members of one gang group that were asked about.

    Parameters
    ----------
    job
        Ids of its gangs, joined by commas.
    members, placed, held
        How many were asked about, how many got a node, how many keep one while they wait.
    least
        How many had to get one.
    domains
        Domains used per network layer, from the top down to the nodes; empty where nobody was placed.
    certificate
        How good the plan is known to be. Where members were placed one by one without a wish for gathering,
        that all of them are, which is the only part of its objective, or ``None`` where some beyond the
        minimum are not; ``None``, too, where no node was asked. Of a job that was planned with others it is
        that of all.
    message, detail
        Why there is no plan: upstream's text, and the smallest reason in plain words.
    malformed
        The pods of one of Kubernetes' own groups contradict each other: an error, not a lack of room.
    """

    job: str
    members: int
    placed: int = 0
    held: int = 0
    least: int = 0
    domains: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    certificate: Certificate | None = None
    message: str = ""
    detail: str = ""
    malformed: bool = False

    __attrs_post_init__ = check_fields

    @property
    def only_counted(self) -> bool:
        """The certificate says that all members are placed, and nothing of their nodes."""
        return self.certificate is not None and len(self.certificate.objective) == 1


@record(kw_only=True)
class JointPlan:
    """Jobs whose turns came one after the other and that were planned as one.

    Parameters
    ----------
    jobs
        Their names, in queue order.
    started
        Those of them that the plan places, in queue order; the others take their own turns afterwards.
    one_by_one
        How many would have been placed one after the other.
    certificate
        Jobs started per priority from the highest down and members placed, both negated, then domains used
        per network layer above the nodes from the top down, summed over the jobs.
    """

    jobs: tuple[str, ...]
    started: tuple[str, ...]
    one_by_one: int
    certificate: Certificate

    __attrs_post_init__ = check_fields


@record
class Victim:
    """A pod that has to leave.

    Parameters
    ----------
    job
        The gang (``namespace/name``) that it belongs to; the pod's own key for a pod without one.
    """

    pod: PodKey
    node: str
    priority: int
    job: str

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class Nominated:
    """The pod gets a node once the victims have left."""

    pod: PodKey
    node: str
    victims: tuple[Victim, ...] = ()

    __attrs_post_init__ = check_fields


@record(kw_only=True, weakref_slot=False)
class Unschedulable:
    """No node can take the pod.

    Parameters
    ----------
    nodes
        How many nodes were looked at.
    rejections
        Reasons with their counts, in the order of their text.
    nearest
        The node that came closest, where one did.
    refusal
        A reason that needs no node, such as a quota that is used up; empty where nodes refused.
    refused_by
        The plugin that gave the refusal; empty where none did.
    """

    pod: PodKey
    nodes: int = 0
    rejections: tuple[Rejection, ...] = ()
    nearest: NearMiss | None = None
    refusal: str = ""
    refused_by: str = ""

    __attrs_post_init__ = check_fields

    @property
    def message(self) -> str:
        """The text of the FailedScheduling event, as ``kubectl describe`` shows it."""
        head = f"0/{self.nodes} nodes are available"
        if self.refusal:
            return f"{head}: {self.refusal}."
        if not self.rejections:
            return head + "."
        counts = Counter[str]()
        for one in self.rejections:
            counts[one.reason] += one.nodes  # a node may say the same of several reservations
        parts = sorted(f"{number} {reason}" for reason, number in counts.items())
        return f"{head}: {', '.join(parts)}."


refused_likewise: Final = copier(Unschedulable, "pod")
"""``(decision, pod)``: another pod of the same class is refused for the same reasons."""


@record(kw_only=True)
class NotOurs:
    """The pod waits for another scheduler: no profile of the policy names its ``spec.schedulerName``.

    Parameters
    ----------
    scheduler_name
        For whom it waits.
    """

    pod: PodKey
    scheduler_name: str

    __attrs_post_init__ = check_fields

    @property
    def message(self) -> str:
        """Upstream's text for a scheduler name without a profile."""
        return f'profile not found for scheduler name "{self.scheduler_name}"'


PodDecision: TypeAlias = Bound | Waiting | Nominated | Unschedulable | NotOurs
"""Exactly one of these for each pod."""
