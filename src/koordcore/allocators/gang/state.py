"""What is known of gangs while pods come, wait and bind: frozen records and pure predicates.

The clock appears only as a number of nanoseconds that the caller hands in.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.durations import MINUTE
from koordcore.model.gangs import DEFAULT_ARGS, CoschedulingArgs, Gang, MatchPolicy

LONGEST_WAIT: Final = 15 * MINUTE
"""The scheduling framework lets no pod wait at Permit for longer, in nanoseconds."""

NO_KEYS: Final[frozenset[str]] = frozenset()
NO_UIDS: Final[immutabledict[str, str]] = immutabledict()
NO_GANGS: Final[immutabledict[str, GangRecord]] = immutabledict()
NO_GROUPS: Final[immutabledict[str, GroupRecord]] = immutabledict()
NO_PERMITS: Final[immutabledict[str, PermitWait]] = immutabledict()


class Code(StrEnum):
    """Verdicts with the scheduling framework's names."""

    SUCCESS = "Success"
    WAIT = "Wait"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"


@record(kw_only=True)
class GroupRecord:
    """What the gangs of one group share.

    Parameters
    ----------
    satisfied
        A member has been bound once; never taken back.
    representative
        The one pod of the group that may stand in the active queue; empty for none.
    waiting_gangs
        Ids of the group's gangs while some member waits.
    binding_members
        Uids of the pods that the first release let go together; empty for none.
    """

    satisfied: bool = False
    representative: str = ""
    waiting_gangs: frozenset[str] = NO_KEYS
    binding_members: frozenset[str] = NO_KEYS


@record(kw_only=True)
class GangRecord:
    """One gang with its members' keys.

    Parameters
    ----------
    gang
        The configuration.
    children
        Uid of every member that exists, by pod key.
    pending, waiting, bound
        Members without a node; those that passed Permit (uid by key); those with a node.
    private
        What the gang holds before it is attached to the record of its group; None once it is.
    """

    gang: Gang
    children: immutabledict[str, str] = NO_UIDS
    pending: frozenset[str] = NO_KEYS
    waiting: immutabledict[str, str] = NO_UIDS
    bound: frozenset[str] = NO_KEYS
    private: GroupRecord | None = GroupRecord()


@record(kw_only=True)
class Cycle:
    """The attempt that is under way: one gang group at a time.

    Parameters
    ----------
    first_pod, gang_id
        The pod that opened it, and its gang.
    group
        Ids of the gangs that take part, sorted.
    attempted
        Keys of the members that have had their turn.
    failed_message
        Why the group failed; empty while it has not.
    preemption_message
        What a preemption attempt of the first failure said; empty for none.
    siblings_patched
        The members that had no turn have been told already.
    """

    first_pod: str
    gang_id: str
    group: tuple[str, ...]
    attempted: frozenset[str]
    failed_message: str = ""
    preemption_message: str = ""
    siblings_patched: bool = False

    @property
    def group_id(self) -> str:
        """Identity of the gang group."""
        return ",".join(self.group)


@record
class PermitWait:
    """A pod that waits at Permit: its gang, and when it stops waiting (nanoseconds of the caller's clock)."""

    gang_id: str
    deadline: int


@record(kw_only=True)
class GangState:
    """Everything that the gang cycle remembers.

    Parameters
    ----------
    args
        Defaults for gangs.
    gangs, groups
        By gang id; by group id.
    cycle
        The attempt under way, None between attempts.
    permits
        Pods that wait at Permit, by key.
    """

    args: CoschedulingArgs = DEFAULT_ARGS
    gangs: immutabledict[str, GangRecord] = NO_GANGS
    groups: immutabledict[str, GroupRecord] = NO_GROUPS
    cycle: Cycle | None = None
    permits: immutabledict[str, PermitWait] = NO_PERMITS

    def group_of(self, record: GangRecord) -> GroupRecord:
        """Shared record of a gang's group, or the gang's own one before it is attached."""
        if record.private is not None:
            return record.private
        return self.groups.get(record.gang.group_id, GroupRecord())

    def waiting_of(self, gang_ids: Iterable[str]) -> tuple[str, ...]:
        """Keys of the pods at Permit that belong to these gangs, sorted."""
        wanted = frozenset(gang_ids)
        return tuple(sorted(key for key, wait in self.permits.items() if wait.gang_id in wanted))


@record(kw_only=True)
class Step:
    """What one event or question leads to.

    Parameters
    ----------
    state
        The state afterwards.
    code, message
        The verdict on the pod.
    wait
        For ``Wait``: how long, in nanoseconds.
    root_cause
        False when the pod fails only because a sibling failed before.
    pod
        The pod whose turn is next; None for none.
    released, rejected
        Pods that stop waiting at Permit: to be bound, or to be given up.
    reject_reason
        Why they are rejected.
    activate
        Pods to be moved to the active queue.
    patched
        Siblings without a turn that are to be told that they are not scheduled.
    timed_out
        Pods whose wait is over, by deadline and key.
    """

    state: GangState
    code: Code = Code.SUCCESS
    message: str = ""
    wait: int = 0
    root_cause: bool = True
    pod: str | None = None
    released: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    reject_reason: str = ""
    activate: tuple[str, ...] = ()
    patched: tuple[str, ...] = ()
    timed_out: tuple[str, ...] = ()


def permit_valid(state: GangState, record: GangRecord) -> bool:
    """Tell whether one gang has gathered enough members to go."""
    gang = record.gang
    if not gang.initialised:
        return False
    if gang.match_policy == MatchPolicy.ONLY_WAITING:
        return len(record.waiting) >= gang.min_available
    if gang.match_policy == MatchPolicy.WAITING_AND_RUNNING:
        return len(record.waiting) + len(record.bound) >= gang.min_available
    return len(record.waiting) >= gang.min_available or state.group_of(record).satisfied


def group_permitted(state: GangState, record: GangRecord) -> bool:
    """Tell whether every gang of the group exists and may go."""
    members = (state.gangs.get(gang_id) for gang_id in record.gang.group)
    return all(member is not None and permit_valid(state, member) for member in members)


def exempt(state: GangState, record: GangRecord) -> bool:
    """Tell whether the members schedule like ordinary pods: the group has been satisfied before."""
    return record.gang.match_policy == MatchPolicy.ONCE_SATISFIED and state.group_of(record).satisfied


def worth_requeue(record: GangRecord) -> bool:
    """Tell whether enough members exist to make an attempt worth while."""
    return record.gang.initialised and len(record.children) >= record.gang.min_available


def basic_check(state: GangState, record: GangRecord, pod: str) -> str:
    """Explain why an attempt is hopeless by numbers alone; empty when it is not."""
    group = record.gang.group
    missing = [gang_id for gang_id in group if gang_id not in state.gangs]
    raw = [gang_id for gang_id in group if gang_id in state.gangs]
    uninitialised = [gang_id for gang_id in raw if not state.gangs[gang_id].gang.initialised]
    short = any(
        state.gangs[gang_id].gang.initialised and not worth_requeue(state.gangs[gang_id]) for gang_id in raw
    )
    reasons = []
    if missing:
        reasons.append(f"memberGangs {_listed(missing)} doesn't exists")
    if uninitialised:
        reasons.append(f"memberGangs {_listed(uninitialised)} has not init")
    if short:
        reasons.append(f"memberGangs {_listed(group)} child pod not collect enough")
    if not reasons:
        return ""
    return (
        f"gangGroup {_listed(group)} basic check: {', '.join(reasons)}, "
        f"current gang: {record.gang.id}, podName: {pod}"
    )


def _listed(items: Iterable[str]) -> str:
    return f"[{' '.join(items)}]"
