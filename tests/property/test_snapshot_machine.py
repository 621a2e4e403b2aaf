"""A snapshot under assume, forget, fork and schedule, held against a plain dictionary."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from koordcore import ClusterSnapshot, ModelError, Node, Pod, PodKey, schedule, verify
from koordcore._arrays import compile_columns, compile_layout
from koordcore.framework.workspace import Workspace
from koordcore.model.resources import total
from koordcore.scheduling.gang_states import gang_state
from koordcore.scheduling.plugins.neighbours import affine
from tests.property.strategies import clusters, pods


class SnapshotMachine(RuleBasedStateMachine):
    """Grows a family of forks; each has a model of where every pod is."""

    forks = Bundle("forks")

    def __init__(self) -> None:
        super().__init__()
        self.models: dict[int, dict[PodKey, str | None]] = {}
        self.kept: list[tuple[ClusterSnapshot, bytes]] = []
        self.number = 0

    def _keep(self, snapshot: ClusterSnapshot, model: dict[PodKey, str | None]) -> ClusterSnapshot:
        self.models[id(snapshot)] = model
        self.kept.append((snapshot, pickle.dumps(snapshot)))
        return snapshot

    @initialize(target=forks, snapshot=clusters(most_nodes=3, most_pods=3))
    def start(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        return self._keep(snapshot, {pod.key: None for pod in snapshot.pending})

    @rule(target=forks, snapshot=forks, data=st.data())
    def arrive(self, snapshot: ClusterSnapshot, data: st.DataObject) -> ClusterSnapshot:
        self.number += 1
        pod = data.draw(pods(f"late{self.number}"))
        return self._keep(snapshot.with_pending(pod), {**self.models[id(snapshot)], pod.key: None})

    @rule(target=forks, snapshot=forks, data=st.data())
    def assume(self, snapshot: ClusterSnapshot, data: st.DataObject) -> ClusterSnapshot:
        if not snapshot.pending:
            return snapshot
        pod = data.draw(st.sampled_from(snapshot.pending))
        node = data.draw(st.sampled_from(snapshot.nodes)).name
        return self._keep(snapshot.assume(pod.at(node)), {**self.models[id(snapshot)], pod.key: node})

    @rule(target=forks, snapshot=forks, data=st.data())
    def forget(self, snapshot: ClusterSnapshot, data: st.DataObject) -> ClusterSnapshot:
        model = dict(self.models[id(snapshot)])
        if not model:
            return snapshot
        key = data.draw(st.sampled_from(sorted(model)))
        del model[key]
        return self._keep(snapshot.forget(key), model)

    @rule(target=forks, snapshot=forks)
    def schedule(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        result = schedule(snapshot)
        assert verify(snapshot, result) == ()
        assert repr(schedule(snapshot)) == repr(result)
        placed = {one.pod: one.node for one in result.bound}
        return self._keep(result.snapshot, {**self.models[id(snapshot)], **placed})

    @rule(snapshot=forks)
    def model_agrees(self, snapshot: ClusterSnapshot) -> None:
        model = self.models[id(snapshot)]
        assert dict(snapshot.location) == {key: node for key, node in model.items() if node is not None}
        assert [pod.key for pod in snapshot.pending] == sorted(
            key for key, node in model.items() if node is None
        )

    @rule(snapshot=forks)
    def what_is_carried_over_agrees(self, snapshot: ClusterSnapshot) -> None:
        fresh = ClusterSnapshot(nodes=snapshot.nodes, pending=snapshot.pending, records=snapshot.records)
        assert gang_state(snapshot) == gang_state(fresh)
        terms = [pod.affinity is not None for pod in fresh.bound_pods()]
        assert affine(Workspace(snapshot)) >= affine(Workspace(fresh))
        assert any(terms) >= affine(Workspace(fresh))

    @rule(target=forks, snapshot=forks)
    def a_member_arrives(self, snapshot: ClusterSnapshot) -> ClusterSnapshot:
        self.number += 1
        labels = {"pod-group.scheduling.sigs.k8s.io": f"g{self.number % 2}"}
        pod = Pod(name=f"member{self.number}", labels=labels)
        return self._keep(snapshot.with_pending(pod), {**self.models[id(snapshot)], pod.key: None})

    @rule(snapshot=forks)
    def columns_agree(self, snapshot: ClusterSnapshot) -> None:
        layout = compile_layout(snapshot.nodes)
        compiled = compile_columns(layout, snapshot.nodes)
        for row, state in enumerate(snapshot.nodes):
            held = total(pod.requests for pod in state.pods)
            for resource, name in enumerate(snapshot.layout.resources):
                amount = len(state.pods) if name == "pods" else held.get(name, 0)
                assert snapshot.columns.requested[resource, row] == amount
        for name in layout.resources:
            old, new = snapshot.layout.index[name], layout.index[name]
            assert (snapshot.columns.requested[old] == compiled.requested[new]).all()
            assert (snapshot.columns.scored[old] == compiled.scored[new]).all()

    @invariant()
    def earlier_forks_are_unchanged(self) -> None:
        for snapshot, before in self.kept[-6:]:
            assert pickle.dumps(snapshot) == before


TestSnapshotMachine = SnapshotMachine.TestCase
TestSnapshotMachine.settings = settings(max_examples=13, stateful_step_count=12, deadline=None)


def test_a_bound_pod_cannot_be_assumed_again() -> None:
    """Assuming twice is a caller's fault, and says where the pod is."""
    snapshot = ClusterSnapshot(nodes=[Node(name="n")]).assume(Pod(name="p", node_name="n"))
    with pytest.raises(ModelError, match=r"^pod default/p is bound to n already$"):
        snapshot.assume(Pod(name="p", node_name="n"))
