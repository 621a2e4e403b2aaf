"""Job preemption: what is asked, what it costs, and what is planned."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import attrs
from immutabledict import immutabledict

from koordcore._notebook import html_table
from koordcore._record import record
from koordcore.model.certificates import Certificate
from koordcore.model.checks import check_fields, names_its_fields
from koordcore.model.decisions import Victim

NO_PRIORITY: Final = -(2**31)
"""Highest priority of a plan without victims."""


NO_COSTS: Final[immutabledict[str, int]] = immutabledict()


def _costs(given: Mapping[str, int]) -> immutabledict[str, int]:
    return immutabledict(given)


class Members(StrEnum):
    """For whom a gang preempts (ruling 14)."""

    MINIMUM = "minimum"
    """For min-available members; further ones take room that needs no further victim."""
    EACH = "each"
    """For min-available members, then for every further one by itself, as for a pod without a gang."""
    ALL = "all"
    """For every pending member, or for nobody."""


class Gather(StrEnum):
    """How a wish for gathering competes with damage (ruling 15)."""

    DEEPEST = "deepest"
    """The deepest layer that can be won at all, then the least damage there."""
    IF_FREE = "if-free"
    """The least damage, then the deepest layer at that damage."""


class Relocation(StrEnum):
    """Whether victims may run on elsewhere."""

    NEVER = "never"
    FIRST = "first"
    """A victim that fits elsewhere under its own constraints is moved there instead of being evicted; whoever
    can move is preferred to whoever cannot."""


@names_its_fields
@record(kw_only=True)
class PreemptionRules:
    """What a scheduling call may do for jobs that find no place.

    Parameters
    ----------
    members, gather, relocation
        See the enumerations.
    restart_costs
        What restarting a running pod costs, by ``namespace/name``, in any unit of the caller's; 0 for others.
    reclaim
        A job within its quota's ``min`` that finds no less important victims may evict pods of quotas that
        use more than theirs, whatever the priorities.
    within_budgets
        Nobody is nominated for whom more pods would be evicted than disruption budgets allow, as for somebody
        whose evictions all go through the server's eviction API. Without it such plans are the last resort.
    """

    members: Members = attrs.field(default=Members.MINIMUM, converter=Members)
    gather: Gather = attrs.field(default=Gather.DEEPEST, converter=Gather)
    relocation: Relocation = attrs.field(default=Relocation.NEVER, converter=Relocation)
    restart_costs: immutabledict[str, int] = attrs.field(default=NO_COSTS, converter=_costs)
    reclaim: bool = True
    within_budgets: bool = False

    __attrs_post_init__ = check_fields


@record(order=True)
class Damage:
    """What evictions cost; compared field by field, smaller is better.

    Whoever leaves its node is evicted, or moved to another one. A move uses disruption budgets up and is a
    restart; beyond that it weighs less than any eviction.

    Parameters
    ----------
    violations
        Over all disruption budgets, pods that leave beyond what the budget allows.
    highest
        Highest priority of an evicted pod; ``NO_PRIORITY`` without any.
    jobs
        Jobs lost: gangs that fall below their minimum and of which fewer than that move, and evicted pods
        without a gang.
    pods
        Evicted pods, those of broken gangs that run elsewhere included.
    priorities
        Sum of the evicted pods' priorities.
    restarts
        Sum of what the caller says that restarting each pod that leaves costs.
    moves
        Pods that are moved.
    """

    violations: int = 0
    highest: int = NO_PRIORITY
    jobs: int = 0
    pods: int = 0
    priorities: int = 0
    restarts: int = 0
    moves: int = 0

    __attrs_post_init__ = check_fields

    @property
    def vector(self) -> tuple[int, ...]:
        """The fields in the order of their weight."""
        return attrs.astuple(self)


NO_DAMAGE: Final = Damage()


@record
class Move:
    """A victim that runs on elsewhere instead of being evicted for good."""

    victim: Victim
    node: str

    __attrs_post_init__ = check_fields


@record
class Alternative:
    """The cheapest plan that was not taken.

    Parameters
    ----------
    damage
        What it would cost.
    where
        The domain, or the nodes, that it would use.
    """

    damage: Damage
    where: str

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class PreemptionPlan:
    """Who leaves so that the job fits, and where its members go then.

    Parameters
    ----------
    nominations
        Node of every member that gets one, by ``namespace/name``, in rank order.
    left_out
        Members beyond the minimum without a place.
    victims
        By node, then name; pods of broken gangs on other nodes included.
    broken
        Gangs that fall below their minimum, by name; all their pods are among the victims.
    damage
        What that costs.
    certificate
        How good the plan is known to be, in the order of :class:`Damage`; with ``Gather.DEEPEST`` among those
        that gather in one domain of the same layer. For a single pod nobody next door, whom only a rule of
        neighbours or of spreading speaks against, is looked at.
    layer, domain
        Deepest network layer of which one domain holds all members, and that domain; empty without a network.
    moves
        Victims that find room elsewhere, and where: they leave their node all the same.
    alternative
        The cheapest plan elsewhere, as far as it was looked for.
    leaving
        Pods that leave anyhow from the nodes of the members, or from those that victims move to, and whose
        room the plan counts on; they cost nothing and are not evicted again.
    job
        For whom: ids of its gangs joined by commas, or the pod's key; empty where nobody asked by name.
    borrowers
        Quotas whose pods leave because they use more than they are promised, and the job gets back what its
        own quota is; empty where the victims leave for their priority.
    """

    nominations: immutabledict[str, str]
    left_out: tuple[str, ...] = ()
    victims: tuple[Victim, ...] = ()
    broken: tuple[str, ...] = ()
    damage: Damage = NO_DAMAGE
    certificate: Certificate
    layer: str = ""
    domain: str = ""
    moves: tuple[Move, ...] = ()
    alternative: Alternative | None = None
    leaving: tuple[Victim, ...] = ()
    job: str = ""
    borrowers: tuple[str, ...] = ()

    __attrs_post_init__ = check_fields

    @property
    def stopped(self) -> tuple[str, ...]:
        """Give the gangs of ``broken`` that do not run on elsewhere with their minimum."""
        moved = {one.victim.pod for one in self.moves}
        alone = sum(one.job == str(one.pod) and one.pod not in moved for one in self.victims)
        if self.damage.jobs - alone >= len(self.broken):
            return self.broken
        alive = {one.victim.job for one in self.moves}
        return tuple(one for one in self.broken if one not in alive)

    def _repr_html_(self) -> str:
        """Show the victims in a notebook."""
        cost = f"{self.damage.pods} pods evicted, {self.damage.jobs} jobs lost, {self.damage.moves} moved"
        title = f"room for {self.job or 'a job'}: {self.certificate.status.text}"
        return html_table(title, self.table(), [cost])

    def table(self) -> dict[str, list[Any]]:
        """Give the victims as columns by name, as pandas, polars and pyarrow take them.

        Returns
        -------
        dict
            ``pod``, ``node``, ``priority``, ``job``, and ``target``, where it runs on; empty if evicted.
        """
        target = {move.victim.pod: move.node for move in self.moves}
        return {
            "pod": [str(one.pod) for one in self.victims],
            "node": [one.node for one in self.victims],
            "priority": [one.priority for one in self.victims],
            "job": [one.job for one in self.victims],
            "target": [target.get(one.pod, "") for one in self.victims],
        }


@record(kw_only=True)
class NotHelpful:
    """No eviction makes room for the job.

    Parameters
    ----------
    reason
        Upstream's word for the outcome.
    message
        Upstream's text with counts.
    certificate
        Proven, or nothing known because the budget ran out.
    """

    reason: str
    message: str
    certificate: Certificate

    __attrs_post_init__ = check_fields
