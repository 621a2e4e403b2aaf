"""What a gang or group of pods is about: who runs, who waits, for what, and whether it could start."""

from __future__ import annotations

from koordcore._record import record
from koordcore.explaining.incomplete_gangs import lacks_of
from koordcore.model.gangs import CoschedulingArgs
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.scheduling.cycle import queue_order
from koordcore.scheduling.gang_book import gang_book
from koordcore.scheduling.gang_groups import Job, JobTable
from koordcore.scheduling.gang_order import cores
from koordcore.scheduling.gang_states import gang_id_of
from koordcore.scheduling.group_tree import GroupTree
from koordcore.scheduling.key_domains import key_domains
from koordcore.scheduling.serving import queue_units
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once


@record(kw_only=True)
class GroupState:
    """One gang, or one group within a tree.

    Parameters
    ----------
    job
        Name of the job that it is decided with.
    name
        Its id.
    level
        How deep it lies in its tree, 0 for a root.
    least, running, waiting
        Members that have to run (groups, for a group of groups), that do, and that wait for a node.
    where
        The domain that running members hold it in, or the label that names domains; empty for anywhere.
    stops
        Why nobody of it is tried now; empty where it takes its turn.
    """

    job: str
    name: str
    level: int
    least: int
    running: int
    waiting: int
    where: str = ""
    stops: str = ""


def group_states(snapshot: ClusterSnapshot) -> tuple[GroupState, ...]:
    """Describe the gangs and groups that have members waiting, in queue order."""
    found: list[GroupState] = []
    for turn in JobTable(snapshot).turns(snapshot.pending):
        if isinstance(turn, Job):
            found += _states(snapshot, turn)
    return tuple(found)


def _states(snapshot: ClusterSnapshot, job: Job) -> list[GroupState]:
    stops = lacks_of(job) or job.refusal or job.waits_for
    if job.tree is not None:
        return _of_tree(snapshot, job, job.tree, 0, stops)
    # Those that it waits for have turns of their own, where members of them wait.
    ahead = {gang_id_of(pod) for pod in snapshot.pending} if job.ahead else set()
    return [
        GroupState(
            job=job.name,
            name=name,
            level=0,
            least=0 if name in job.free else gang.min_available,
            running=len(job.bound[name]),
            waiting=len(job.members[name]),
            stops=stops,
        )
        for name, gang in sorted(job.gangs.items())
        if name not in job.ahead.intersection(ahead)
    ]


def _of_tree(
    snapshot: ClusterSnapshot, job: Job, tree: GroupTree, level: int, stops: str
) -> list[GroupState]:
    leaves = tree.leaves
    nodes = [node for leaf in leaves for node in job.bound[leaf.id]]
    own = GroupState(
        job=job.name,
        name=tree.id,
        level=level,
        least=tree.least,
        running=len(nodes),
        waiting=sum(len(job.members[leaf.id]) for leaf in leaves),
        where=_where(snapshot, tree.key, nodes) if tree.key else "",
        stops=stops if level == 0 else "",
    )
    below = [_of_tree(snapshot, job, child, level + 1, stops) for child in tree.children]
    return [own, *(one for states in below for one in states)]


def _where(snapshot: ClusterSnapshot, key: str, nodes: list[str]) -> str:
    domains = once(snapshot, key_domains, key)
    domain = domains.of_running(nodes)
    if isinstance(domain, str):
        return f"{key}: {domain}"
    return key if domain < 0 else f"{key}={domains.names[domain]}"


def job_of(snapshot: ClusterSnapshot, pod: Pod, policy: Policy = Policy()) -> Job | None:
    """Give the gang or group that a waiting pod is decided with; ``None`` for a pod that goes alone."""
    for turn in JobTable(snapshot, policy).turns(snapshot.pending):
        if isinstance(turn, Job) and any(one.key == pod.key for one in turn.pods):
            return turn
    return None


def pods_ahead(snapshot: ClusterSnapshot, job: Job, policy: Policy = Policy()) -> tuple[Pod, ...]:
    """Give the waiting members of the gangs for which a gang waits, and of those for which these wait."""
    book = gang_book(snapshot, policy.args_of(CoschedulingArgs))
    wanted = {name for one in job.own for core in cores(one, book.waits_for) for name in core}
    wanted -= {*job.own}
    return tuple(pod for pod in snapshot.pending if wanted and gang_id_of(pod) in wanted)


def job_states(snapshot: ClusterSnapshot, pod: Pod, policy: Policy = Policy()) -> tuple[GroupState, ...]:
    """Describe the gang or group that a waiting pod belongs to; empty for a pod that goes alone."""
    job = job_of(snapshot, pod, policy)
    return () if job is None else tuple(_states(snapshot, job))


def waiting_jobs(snapshot: ClusterSnapshot, name: str) -> tuple[Job, ...]:
    """Find the gangs and groups of a name that have members waiting, in queue order.

    Parameters
    ----------
    name
        Of a gang, a PodGroup or a group above it: ``namespace/name``, the name alone, or its id as plans and
        tables write it, such as ``podgroup:ml/train``.
    """
    found = []
    for turn in JobTable(snapshot).turns(snapshot.pending):
        if isinstance(turn, Job):
            ids = {*turn.own, *(() if turn.tree is None else _ids(turn.tree))}
            known = {*ids, *(one.rpartition(":")[2] for one in ids)}
            if name in known or ("/" not in name and any(one.rpartition("/")[2] == name for one in known)):
                found.append(turn)
    return tuple(found)


def _ids(tree: GroupTree) -> tuple[str, ...]:
    return (tree.id, *(each for child in tree.children for each in _ids(child)))


def turns_of(snapshot: ClusterSnapshot) -> tuple[tuple[int, Pod], ...]:
    """Give the pods that wait with the number of their turn: members of a gang have one turn together.

    Pods that wait for another scheduler have none, which is 0; they come last.
    """
    units = enumerate(queue_units(snapshot, Policy()), 1)
    waiting = {pod.key: pod for pod in queue_order(snapshot.pending)}
    ours = [(turn, waiting.pop(key)) for turn, unit in units for key in unit.pods if key in waiting]
    return (*ours, *((0, pod) for pod in waiting.values()))
