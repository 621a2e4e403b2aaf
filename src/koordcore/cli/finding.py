"""Whom a name on the command line means: a pod, a gang, a job, or a workload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from koordcore._record import record
from koordcore.cli.words import near
from koordcore.errors import ModelError, Problem
from koordcore.explaining.groups import waiting_jobs
from koordcore.explaining.workloads import workload_of
from koordcore.manifests.front_doors import DOORS
from koordcore.model.kueue import KueueWorkload
from koordcore.model.naming import natural_key
from koordcore.model.pods import Pod, PodKey
from koordcore.model.reservations import Reservation
from koordcore.protocol.gang_names import gang_name
from koordcore.protocol.workload_pods import workload_of as kueue_workload
from koordcore.reservations.known import waits_for_node
from koordcore.reservations.state import reserve_pod
from koordcore.snapshot import ClusterSnapshot

RESERVATION: Final = "reservation"
"""The kind of a subject that is no pod: one stands for it."""
_GROUPS: Final = ("podgroup", "compositepodgroup", "gang")
_IDS: Final = {"podgroup": "podgroup", "compositepodgroup": "compositepodgroup", "workload": "gang"}
"""How the ids of Kubernetes' own groups begin, and what kind of subject they are."""


@record
class Subject:
    """Whom a question is about.

    Parameters
    ----------
    kind
        ``pod``, ``gang``, ``job``, ``workload`` or ``reservation``.
    name
        As it is shown.
    pods
        Who belongs to it, those that wait first.
    """

    kind: str
    name: str
    pods: tuple[Pod, ...]

    @property
    def gangs(self) -> dict[str, list[Pod]]:
        """The gangs that they are members of by labels or annotations: members by id."""
        found: dict[str, list[Pod]] = {}
        for pod in self.pods:
            if _gang(pod):
                found.setdefault(f"{pod.namespace}/{_gang(pod)}", []).append(pod)
        return {name: found[name] for name in sorted(found, key=natural_key)}


def find_subject(
    snapshot: ClusterSnapshot, text: str, namespace: str = "", warnings: Iterable[Problem] = ()
) -> Subject:
    """Find a pod, else a gang, a job such as ``jobset/train``, or a workload of that name.

    Parameters
    ----------
    snapshot
        What was read.
    text
        The name.
    namespace
        Where to look for a name without one; empty for everywhere.
    warnings
        What was said when it was read; why a job has no pods may be among it.

    Raises
    ------
    ModelError
        When there is nothing of that name, or more than one.
    """
    named = _within(snapshot, text, namespace)
    job = _job(snapshot, named, warnings) or _queued(snapshot, named) or _group(snapshot, named)
    if job is not None:
        return job
    space, _, name = text.rpartition("/")
    if not name:
        raise ModelError(f'expected a name, or namespace/name, got "{text}"')
    reserved = snapshot.find(Reservation, name) if space == "reservation" else None
    if reserved is not None:
        if not waits_for_node(snapshot, reserved):
            where = f"is on {reserved.status.node_name}" if reserved.active else "holds nothing any more"
            where = "is used already" if reserved.pending else where
            raise ModelError(f"{text} {where}: there is nothing to explain")
        return Subject(RESERVATION, text, (reserve_pod(reserved),))
    space = space or namespace
    everybody = [pod for pod in _everybody(snapshot) if space in ("", pod.namespace)]
    found = [pod for pod in everybody if pod.name == name]
    if len(found) == 1:
        return Subject("pod", str(found[0].key), (found[0],))
    if found:
        raise ModelError(
            f"several pods are called {text}: {', '.join(sorted(str(one.key) for one in found))}"
        )
    for kind, name_of in (("gang", _gang), ("workload", workload_of)):
        members = [pod for pod in everybody if name_of(pod) == name]
        spaces = sorted({pod.namespace for pod in members})
        if len(spaces) > 1:
            raise ModelError(f"several namespaces have a {kind} {name}: {', '.join(spaces)}")
        if members:
            return Subject(kind, f"{spaces[0]}/{name}", tuple(members))
    if found_queued := _kueue_named(snapshot, text):
        raise ModelError(
            f"no pod {text} in the dump; the Workload of Kueue is workload/{found_queued[0].key}"
        )
    looked = f"namespace {namespace} of the dump" if namespace and space == namespace else "the dump"
    raise ModelError(f"no pod {text} in {looked}{_hint(snapshot, text, space)}")


def _within(snapshot: ClusterSnapshot, text: str, namespace: str) -> str:
    """Write a job or group that names no namespace of its own with the one that is asked for."""
    kind, _, name = text.partition("/")
    bare = kind.lower() in (*DOORS, *_GROUPS, "workload") and name and "/" not in name
    if not bare or not namespace or snapshot.pod(PodKey(kind, name)) is not None:
        return text
    return f"{kind}/{namespace}/{name}"


def is_of_jobs(text: str) -> bool:
    """Tell whether a name such as ``job/train`` is that of a job or Workload, which may have no pods yet."""
    return text.partition("/")[0].lower() in (*DOORS, "workload")


def job_named(text: str, namespace: str = "") -> tuple[str, str, str] | None:
    """Give kind, namespace and name of a job such as ``jobset/ml/train``; None where a name is of no kind."""
    kind, _, rest = text.partition("/")
    space, _, name = rest.rpartition("/")
    known = DOORS.get(kind.lower())
    return None if known is None or not name else (known, space or namespace, name)


def name_and_paths(words: Sequence[str]) -> tuple[str, list[str]]:
    """Tell the name from the paths: it is the first word, unless that is a path and another one is none.

    Returns
    -------
    tuple
        The name, empty where all words are paths; and the paths.
    """
    others = [word for word in words if word != "-" and not Path(word).exists()]
    if not others or (len(others) > 1 and others[0] != words[0]):
        return "", list(words)
    name = others[0]
    place = list(words).index(name)
    return name, [*words[:place], *words[place + 1 :]]


def find_node(snapshot: ClusterSnapshot, name: str) -> None:
    """Refuse the name of a node that is not there.

    Raises
    ------
    ModelError
        With a name that is like it.
    """
    if name not in snapshot.layout.row_of:
        raise ModelError(f"no node {name} in the dump{near(name, snapshot.layout.names)}")


def _everybody(snapshot: ClusterSnapshot) -> tuple[Pod, ...]:
    return (*snapshot.pending, *snapshot.bound_pods())


def _gang(pod: Pod) -> str:
    return gang_name(pod.labels, pod.annotations) or ""


def _job(snapshot: ClusterSnapshot, text: str, warnings: Iterable[Problem]) -> Subject | None:
    """Find the pods of a job such as ``job/train`` or ``jobset/ml/train``; None where it names no kind."""
    kind, _, rest = text.partition("/")
    named = job_named(text)
    if named is None or snapshot.pod(PodKey(kind, rest)) is not None:
        return None
    known, space, name = named
    pods = [
        pod
        for pod in _everybody(snapshot)
        if any(owner.kind == known and owner.name == name for owner in pod.owners)
        and space in ("", pod.namespace)
    ]
    if not pods:
        about = [one for one in warnings if _is_about(one.object_name, known, space, name)]
        why = "".join(f"\n  {one.message}" for one in about)
        why = why or _other_kinds(snapshot, space, name) or _hint(snapshot, name, space)
        raise ModelError(f"no pod of {known} {name} in the dump{why}")
    return Subject("job", f"{known} {pods[0].namespace}/{name}", tuple(pods))


def _other_kinds(snapshot: ClusterSnapshot, space: str, name: str) -> str:
    """Name the jobs of other kinds that are called so."""
    kinds = {
        owner.kind.lower()
        for pod in _everybody(snapshot)
        if space in ("", pod.namespace)
        for owner in pod.owners
        if owner.name == name and owner.kind in DOORS.values()
    }
    return f"; did you mean {' or '.join(f'{kind}/{name}' for kind in sorted(kinds))}?" if kinds else ""


def _kueue_named(snapshot: ClusterSnapshot, name: str) -> list[KueueWorkload]:
    return [one for one in snapshot.of(KueueWorkload) if name in (one.key, one.name)]


def _queued(snapshot: ClusterSnapshot, text: str) -> Subject | None:
    """Find the pods of a Workload such as ``workload/ml/train``; None where it names none of Kueue's."""
    kind, _, name = text.partition("/")
    if kind.lower() != "workload" or snapshot.pod(PodKey(kind, name)) is not None:
        return None
    named = _kueue_named(snapshot, name)
    if len(named) > 1:
        raise ModelError(f"several Workloads are called {name}: {', '.join(one.key for one in named)}")
    pods = [pod for pod in _everybody(snapshot) for one in named if kueue_workload(pod) == one.key]
    return Subject("workload", named[0].key, tuple(pods)) if pods else None


def _is_about(shown: str, kind: str, space: str, name: str) -> bool:
    """Tell whether an object is that of a kind, namespace (empty for any) and name."""
    its_kind, _, its_name = shown.partition(" ")
    own_space, _, own_name = its_name.rpartition("/")
    return (its_kind, own_name) == (kind, name) and space in ("", own_space)


def _group(snapshot: ClusterSnapshot, text: str) -> Subject | None:
    """Find the waiting members of a group such as ``podgroup/ml/train``; None where it names no kind."""
    kind, colon, _ = text.partition(":")
    if colon and kind in _IDS:
        # As tables print it.
        found = waiting_jobs(snapshot, text)
        return Subject(_IDS[kind], text, found[0].pods) if found else None
    kind, _, name = text.partition("/")
    if kind.lower() not in _GROUPS or not name or snapshot.pod(PodKey(kind, name)) is not None:
        return None
    found = waiting_jobs(snapshot, name)
    if not found:
        raise ModelError(f"no {kind} {name} with waiting pods in the dump")
    if len(found) > 1:
        names = ", ".join(job.name for job in found)
        raise ModelError(f"several {kind}s are called {name}: {names}; write {kind}/namespace/name")
    return Subject(kind, found[0].name, found[0].pods)


def _hint(snapshot: ClusterSnapshot, text: str, space: str = "") -> str:
    """Name somebody like it: of the namespace, else of that name in another one, else anybody."""
    name = text.rpartition("/")[2]
    known: dict[str, set[str]] = {}
    for pod in _everybody(snapshot):
        known.setdefault(pod.namespace, set()).update({pod.name, workload_of(pod), _gang(pod)} - {""})
    whole = [f"{own}/{one}" for own, names in sorted(known.items()) for one in sorted(names)]
    if not space:
        return near(text, (one for names in known.values() for one in names))
    found = near(name, known.get(space, ()))
    if found:
        return found.replace("mean ", f"mean {space}/") if "/" in text else found
    elsewhere = [one for one in whole if one.rpartition("/")[2] == name]
    if elsewhere:
        return f"; did you mean {elsewhere[0]}?"
    return near(text, whole) if space not in known else ""
