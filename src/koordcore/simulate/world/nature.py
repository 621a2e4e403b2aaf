"""Everything but the schedulers: kubelets, the controllers of nodes and workloads, users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from koordcore.controlplane.requests import Object, key_of
from koordcore.simulate.world import load
from koordcore.simulate.world.chance import Chance
from koordcore.simulate.world.facts import FINISHED, holds
from koordcore.simulate.world.judge import Judge
from koordcore.simulate.world.profile import NEVER, SECOND, FaultProfile
from koordcore.simulate.world.server import ApiServer
from koordcore.simulate.world.timeline import Timeline

_NOTICED: Final = 2 * SECOND
"""After so long a dead node is known to be dead, and again as long later its pods are told to go."""
_TAINT: Final[Object] = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}


@attrs.define
class _Running:
    """A workload that is under way."""

    work: load.Work
    epoch: int = 0
    """Grows whenever one of its pods starts or goes: it has run when all of them have, for long enough."""
    over: bool = False


class Nature:
    """Nodes, kubelets, controllers and users of one cluster."""

    def __init__(
        self,
        *,
        line: Timeline,
        server: ApiServer,
        judge: Judge,
        profile: FaultProfile,
        seed: int,
        tell: Callable[[str, str], None],
    ) -> None:
        self._line, self._server, self._judge = line, server, judge
        self._profile, self._tell = profile, tell
        self._chance = Chance(seed, "nature")
        self._works = Chance(seed, "works")
        self._running: dict[str, _Running] = {}
        self._dead: set[str] = set()
        self._away: set[str] = set()
        self._stale: dict[str, int] = {}
        server.listeners.append(self._changed)

    def begin(self) -> None:
        """Put up the nodes and quotas."""
        for number in range(self._profile.nodes):
            self._join(number)
        if self._profile.quotas:
            for quota in load.quotas(self._profile):
                self._server.put("ElasticQuota", quota)
        if self._profile.metrics != NEVER:
            for number in range(self._profile.nodes):
                self._line.after(self._chance.below(self._profile.metrics), "metric", self._report, number)

    def _join(self, number: int) -> None:
        cards = load.cards_of(number, self._profile)
        self._server.put("Node", load.node(number, cards))
        if cards:
            self._server.put("Device", load.device(number, cards))

    # -- load --------------------------------------------------------------------------------------------

    def arrive(self, number: int) -> None:
        """Bring a workload, unless there are many already."""
        work = load.draw_work(self._works, self._profile, number)
        if 5 * len(self._running) >= self._profile.most * self._profile.nodes:
            return
        self._running[work.name] = _Running(work)
        self._tell("user", f"brings {load.words_for(work)}")
        if work.together:
            self._server.put("PodGroup", load.group_of(work))
        if work.least:
            self._server.put("PodDisruptionBudget", load.budget_of(work))
        for rank in range(work.pods):
            self._line.after(self._chance.below(200), "create", self._create, work.name, rank)

    def _create(self, name: str, rank: int) -> None:
        running = self._running.get(name)
        if running is None or running.over:
            return
        pod = load.pod_of(running.work, rank)
        if self._server.find("Pod", key_of(pod)) is None:
            self._server.put("Pod", pod)

    def _has_run(self, name: str, epoch: int) -> None:
        running = self._running.get(name)
        if running is None or running.epoch != epoch:
            return
        running.over = True
        self._tell("kubelets", f"{name} has run")
        for pod in self._pods_of(name):
            self._line.after(
                self._chance.below(300), "succeed", self._finish, pod["metadata"]["uid"], "Succeeded"
            )
        self._line.after(self._chance.between(SECOND, 4 * SECOND), "clean up", self._clean_up, name)

    def _clean_up(self, name: str) -> None:
        left = self._pods_of(name)
        for pod in left:
            finished = pod["status"].get("phase") in FINISHED
            self._server.delete(pod, at_once=finished)
        if self._pods_of(name):
            self._line.after(SECOND, "clean up", self._clean_up, name)
            return
        for kind in ("PodGroup", "PodDisruptionBudget"):
            if self._server.find(kind, ("default", name)) is not None:
                self._server.remove(kind, ("default", name))
        self._running.pop(name, None)

    def _pods_of(self, name: str) -> list[Object]:
        pods = self._server.objects["Pod"].values()
        return [pod for pod in pods if pod["metadata"]["labels"]["app"] == name]

    # -- what follows from changes -----------------------------------------------------------------------

    def _changed(self, kind: str, what: str, before: Object | None, item: Object) -> None:
        if kind != "Pod":
            return
        metadata = item["metadata"]
        uid, name = metadata["uid"], metadata["labels"]["app"]
        running = self._running.get(name)
        budget = self._server.budget_of(item)
        if budget is not None:
            self._line.after(20 + self._chance.below(80), "budget", self._recount, key_of(budget))
        if what == "DELETED":
            if running is not None and not running.over:
                running.epoch += 1
                rank = int(metadata["name"].rpartition("-")[2])
                self._line.after(self._chance.between(50, 800), "recreate", self._create, name, rank)
            return
        phase = item["status"].get("phase")
        if "deletionTimestamp" in metadata:
            if before is None or "deletionTimestamp" not in before["metadata"]:
                if running is not None:
                    running.epoch += 1
                grace = item["spec"].get("terminationGracePeriodSeconds", 0) * SECOND
                self._line.after(self._chance.below(grace + 100), "end", self._end, uid)
        elif "nodeName" in item["spec"] and phase == "Pending":
            if before is None or "nodeName" not in before["spec"]:
                self._line.after(self._chance.between(20, 400), "begin", self._begin, uid)
        elif (
            phase == "Running"
            and running is not None
            and (before or item)["status"].get("phase") != "Running"
        ):
            self._ran(running)
        elif phase == "Failed" and (before or item)["status"].get("phase") != "Failed":
            self._line.after(self._chance.between(100, 900), "replace", self._replace, uid)

    def _ran(self, running: _Running) -> None:
        pods = self._pods_of(running.work.name)
        alive = sum(one["status"].get("phase") == "Running" for one in pods)
        if alive == running.work.pods and not running.over:
            running.epoch += 1
            self._line.after(running.work.runs, "has run", self._has_run, running.work.name, running.epoch)

    def _recount(self, key: tuple[str, str]) -> None:
        budget = self._server.find("PodDisruptionBudget", key)
        if budget is not None:
            self._server.recount(budget)

    def _pod(self, uid: str) -> Object | None:
        return self._judge.truth.pods.get(uid)

    # -- kubelets ----------------------------------------------------------------------------------------

    def _begin(self, uid: str) -> None:
        pod = self._pod(uid)
        if pod is None or "deletionTimestamp" in pod["metadata"] or pod["status"].get("phase") != "Pending":
            return
        node = pod["spec"]["nodeName"]
        if node in self._away:
            self._line.after(SECOND, "lost", self._lose, uid)
        elif node in self._dead:
            self._line.after(SECOND, "begin", self._begin, uid)
        elif self._refuses(node):
            self._set_phase(pod, "Failed")
        else:
            self._set_phase(pod, "Running")

    def _refuses(self, node: str) -> bool:
        """Tell whether a kubelet has no room for what it was told to run."""
        truth = self._judge.truth
        full = truth.over(truth.used[node], truth.room.get(node, {}))
        return bool(full) or max(truth.given[node].values(), default=0) > 100

    def _end(self, uid: str) -> None:
        """The grace is over: the kubelet ends the pod, and a finalizer may keep it for a while."""
        pod = self._pod(uid)
        if pod is None:
            return
        node = pod["spec"].get("nodeName")
        if node in self._dead and pod["status"].get("phase") not in FINISHED:
            self._line.after(SECOND, "end", self._end, uid)
            return
        stuck = self._running.get(pod["metadata"]["labels"]["app"])
        if pod["metadata"].get("finalizers") and stuck is not None and stuck.work.stuck:
            self._line.after(stuck.work.stuck, "finalizer", self._release, uid)
        else:
            self._server.remove("Pod", key_of(pod))

    def _release(self, uid: str) -> None:
        pod = self._pod(uid)
        if pod is not None:
            self._server.remove("Pod", key_of(pod))

    def _finish(self, uid: str, phase: str) -> None:
        pod = self._pod(uid)
        if pod is not None and holds(pod) and pod["spec"]["nodeName"] not in self._dead:
            self._set_phase(pod, phase)

    def _replace(self, uid: str) -> None:
        """Its controller takes a failed pod away; another one comes."""
        pod = self._pod(uid)
        if pod is not None:
            self._server.delete(pod, at_once=True)

    def _lose(self, uid: str) -> None:
        """A pod on a node that is not there is taken away."""
        pod = self._pod(uid)
        if pod is not None and pod["spec"].get("nodeName") in self._away:
            self._server.delete(pod, at_once=True)
        elif pod is not None and pod["status"].get("phase") == "Pending":
            self._begin(uid)

    def _set_phase(self, pod: Object, phase: str) -> None:
        self._server.put("Pod", {**pod, "status": {**pod["status"], "phase": phase}})

    # -- faults ------------------------------------------------------------------------------------------

    def die(self, number: int, time: int) -> None:
        """Let a node stop; what ran there goes on in the books until somebody notices."""
        name = load.node_name(number)
        if name in self._dead or name in self._away:
            return
        self._tell("nodes", f"{name} dies for {time // SECOND} s")
        self._judge.failed()
        self._dead.add(name)
        self._line.after(_NOTICED, "noticed", self._notice, number)
        self._line.after(max(time, 3 * _NOTICED), "node returns", self._revive, number)

    def _notice(self, number: int) -> None:
        self._edit_node(number, taints=[_TAINT])
        self._line.after(_NOTICED, "drain", self._empty, load.node_name(number))

    def _empty(self, name: str) -> None:
        for pod in list(self._server.objects["Pod"].values()):
            if pod["spec"].get("nodeName") == name and name in self._dead:
                self._server.delete(pod)

    def _revive(self, number: int) -> None:
        self._tell("nodes", f"{load.node_name(number)} is back")
        self._judge.failed()
        self._dead.discard(load.node_name(number))
        self._edit_node(number, taints=[])

    def cordon(self, number: int, time: int) -> None:
        """Close a node for a while."""
        if load.node_name(number) in self._away:
            return
        self._tell("nodes", f"{load.node_name(number)} is closed")
        self._judge.failed()
        self._edit_node(number, unschedulable=True)
        self._line.after(time, "uncordon", self._uncordon, number)

    def _uncordon(self, number: int) -> None:
        self._judge.failed()
        self._edit_node(number, unschedulable=False)

    def _edit_node(self, number: int, **spec: object) -> None:
        item = self._server.find("Node", ("", load.node_name(number)))
        if item is not None:
            self._server.put("Node", {**item, "spec": {**item["spec"], **spec}})

    def leave(self, number: int, time: int) -> None:
        """Remove a node; its pods are taken away a little later. Another one of its name comes."""
        name = load.node_name(number)
        if name in self._dead or name in self._away:
            return
        self._tell("nodes", f"{name} is removed")
        self._judge.failed()
        self._away.add(name)
        for kind in ("Device", "Node", "NodeMetric"):
            if self._server.find(kind, ("", name)) is not None:
                self._server.remove(kind, ("", name))
        for pod in list(self._server.objects["Pod"].values()):
            if pod["spec"].get("nodeName") == name:
                self._line.after(self._chance.between(500, 2500), "lost", self._lose, pod["metadata"]["uid"])
        self._line.after(max(time, 4 * SECOND), "node joins", self._rejoin, number)

    def _rejoin(self, number: int) -> None:
        self._tell("nodes", f"{load.node_name(number)} is new")
        self._judge.failed()
        self._away.discard(load.node_name(number))
        self._join(number)

    def crash(self, which: int) -> None:
        """Let a running pod fail."""
        pod = self._any_pod(which)
        if pod is not None and pod["status"].get("phase") == "Running":
            self._tell("kubelets", f"{pod['metadata']['name']} crashes")
            self._judge.failed()
            self._finish(pod["metadata"]["uid"], "Failed")

    def withdraw(self, which: int) -> None:
        """Let a user delete a pod, in whatever state it is."""
        pod = self._any_pod(which)
        if pod is not None:
            self._tell("user", f"deletes {pod['metadata']['name']}")
            self._judge.failed()
            self._server.delete(pod)

    def _any_pod(self, which: int) -> Object | None:
        pods = list(self._server.objects["Pod"].values())
        return pods[which % len(pods)] if pods else None

    # -- metrics -----------------------------------------------------------------------------------------

    def silence(self, number: int, time: int) -> None:
        """Let a node report nothing for a while."""
        self._judge.failed()
        self._stale[load.node_name(number)] = self._line.now + time

    def _report(self, number: int) -> None:
        self._line.after(self._profile.metrics, "metric", self._report, number)
        name = load.node_name(number)
        if name in self._dead or name in self._away or self._line.now < self._stale.get(name, 0):
            return
        cores = self._judge.truth.cores_by_pod(name)
        self._server.put("NodeMetric", load.metric(number, self._line.now // SECOND, cores))
