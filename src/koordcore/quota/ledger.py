"""The quotas of a cluster with what they hold: one immutable value to ask and to fork."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import attrs
from immutabledict import immutabledict

from koordcore._record import alike_but_for, record
from koordcore.errors import ModelError
from koordcore.model.quotas import (
    BUILTIN_QUOTAS,
    DEFAULT_QUOTA,
    ROOT_QUOTA,
    SYSTEM_QUOTA,
    ElasticQuota,
    QuotaPod,
    QuotaPolicy,
    QuotaUsage,
)
from koordcore.model.resources import NO_RESOURCES, Resources, make_resources, subtract
from koordcore.quota.rollup import Sums, TreeState
from koordcore.quota.sharing import Pool
from koordcore.quota.status import QuotaStatus, status_of, statuses_of
from koordcore.quota.tree import QuotaTree

Notation: TypeAlias = immutabledict[str, bool]
"""Resource name to whether its sum is printed in powers of two."""

_AMOUNTS: Final = frozenset({"max", "min", "shared_weight", "written_max", "written_min"})
NO_RUNTIMES: Final[immutabledict[str, Resources]] = immutabledict()
NO_NOTATIONS: Final[immutabledict[str, tuple[Notation, Notation]]] = immutabledict()


@record(eq=False, kw_only=True)
class QuotaLedger:
    """Quotas, what their pods ask for and use, and what there is to share.

    Made by :func:`open_ledger`. Every change gives a new ledger that shares what did not change; work goes
    with the depth of the tree. ``track`` and ``untrack`` count a pod in requests, and so move runtimes;
    ``assume`` and ``forget`` only place a pod that is already counted, and leave all runtimes as they are.

    Parameters
    ----------
    policy
        How quotas are enforced.
    quotas
        By name, without the built-in ones unless their objects were given.
    total
        What the nodes of the cluster offer together.
    notations
        For messages, by quota: resources that its own used amounts name, and whether in powers of two; the
        same for what its non-preemptible pods use.
    """

    policy: QuotaPolicy
    quotas: immutabledict[str, ElasticQuota]
    total: Resources
    notations: immutabledict[str, tuple[Notation, Notation]] = NO_NOTATIONS
    published: immutabledict[str, Resources] = NO_RUNTIMES
    _states: immutabledict[str, TreeState]
    _builtin: immutabledict[str, QuotaUsage]
    _namespaces: immutabledict[str, str]
    _totals: immutabledict[str, Resources]
    _elsewhere: Resources

    # --- reading ------------------------------------------------------------------------------------------

    @property
    def trees(self) -> tuple[str, ...]:
        """Ids of the trees, sorted; the default tree is the empty one."""
        return tuple(self._states)

    def state(self, tree_id: str = "") -> TreeState:
        """Give one tree with its sums.

        Raises
        ------
        ModelError
            When there is no such tree.
        """
        try:
            return self._states[tree_id]
        except KeyError:
            raise ModelError(f'no quota tree "{tree_id}"') from None

    def find(self, name: str) -> tuple[TreeState, int] | None:
        """Give the tree of an ordinary quota and its row there; ``None`` for built-in and unknown ones."""
        quota = self.quotas.get(name)
        if quota is None:
            return None
        state = self._states.get(quota.tree if self.policy.multi_quota_tree else "")
        row = None if state is None else state.tree.row_of.get(name)
        return None if state is None or row is None else (state, row)

    def known(self, name: str) -> bool:
        """Tell whether pods may belong to it; the root only where its own object was given."""
        return name in (DEFAULT_QUOTA, SYSTEM_QUOTA) or name in self.quotas

    def resolve(self, pod: QuotaPod) -> str | None:
        """Find the quota of a pod; ``None`` where it is not governed.

        The label comes first; without one the quota named like the namespace inside that namespace, then a
        quota that lists the namespace, then the default quota, which also takes pods of unknown quotas.
        """
        if self.policy.disable_default_quota:
            return pod.quota if pod.quota and self.known(pod.quota) else None
        name = pod.quota or self._namespaces.get(pod.namespace, DEFAULT_QUOTA)
        return name if self.known(name) else DEFAULT_QUOTA

    def tree_of(self, name: str) -> str:
        """Id of the tree that a quota is in."""
        if name in BUILTIN_QUOTAS or not self.policy.multi_quota_tree or name not in self.quotas:
            return ""
        return self.quotas[name].tree

    def max_of(self, name: str) -> Resources:
        """What a quota may reach at most."""
        if name in self.quotas:
            return self.quotas[name].max
        if name == DEFAULT_QUOTA:
            return self.policy.default_quota_group_max
        return self.policy.system_quota_group_max if name == SYSTEM_QUOTA else NO_RESOURCES

    def min_of(self, name: str) -> Resources:
        """What a quota is promised; nothing for the built-in ones."""
        return self.quotas[name].min if name in self.quotas else NO_RESOURCES

    def used_of(self, name: str) -> Resources:
        """What the pods of a quota and of everybody below it use."""
        found = self.find(name)
        if found is None:
            return self._builtin.get(name, QuotaUsage()).used
        return found[0].tree.named(found[0].tally(found[1]).used)

    def held_of(self, name: str) -> Resources:
        """What the non-preemptible pods of a quota and of everybody below it use."""
        found = self.find(name)
        if found is None:
            return self._builtin.get(name, QuotaUsage()).non_preemptible_used
        return found[0].tree.named(found[0].tally(found[1]).non_preemptible_used)

    def own_of(self, name: str) -> QuotaUsage:
        """Sums over the pods of a quota itself."""
        found = self.find(name)
        if found is None:
            return self._builtin.get(name, QuotaUsage())
        tree, own = found[0].tree, found[0].tally(found[1]).own
        return QuotaUsage(
            request=tree.named(own.request),
            used=tree.named(own.used),
            non_preemptible_request=tree.named(own.non_preemptible_request),
            non_preemptible_used=tree.named(own.non_preemptible_used),
        )

    def floor_of(self, name: str) -> Resources:
        """Give what a quota may have without competing: scaled min, or guarantee where that is larger."""
        found = self.find(name)
        if found is None:
            return NO_RESOURCES
        state, row = found
        scaled = state.scaled_min(row)
        if self.policy.guarantee_usage:
            scaled = tuple(map(max, scaled, state.tally(row).guaranteed))
        return state.tree.named(scaled)

    def runtime_of(self, name: str) -> Resources | None:
        """Runtime of a quota; see :class:`QuotaStatus`."""
        handed = self.handed_to(name)
        found = self.find(name)
        if handed is None or name in self.published or found is None:
            return handed
        limit = found[0].tree.quotas[found[1]].max
        if all(key in limit for key in handed):
            return handed
        return immutabledict({key: amount for key, amount in handed.items() if key in limit})

    def handed_to(self, name: str) -> Resources | None:
        """What the parent of a quota hands out to it, also in resources that its ``max`` does not name.

        Upstream stores the runtime so and prints it so. Only what ``max`` names binds (:meth:`runtime_of`).
        """
        if name in self.published:
            return self.published[name]
        found = self.find(name)
        if found is None:
            return None
        state, row = found
        runtime = state.runtime(row)
        if runtime is None:
            return None
        tree = state.tree
        handed = tree.handled[tree.group_of[row]]
        pairs = zip(tree.resources, runtime, handed, strict=True)
        return immutabledict({key: amount for key, amount, given in pairs if given})

    def status(self, name: str) -> QuotaStatus:
        """Give one quota with everything that follows for it.

        Raises
        ------
        ModelError
            When there is no such quota.
        """
        if not self.known(name):
            raise ModelError(f"no elastic quota {name}")
        found = self.find(name)
        if found is None:
            own = self._builtin.get(name, QuotaUsage())
            return QuotaStatus(
                quota=name,
                parent="" if name == ROOT_QUOTA else ROOT_QUOTA,
                max=self.max_of(name),
                child_request=own.request,
                request=own.request,
                limit_request=own.request,
                used=own.used,
                non_preemptible_request=own.non_preemptible_request,
                non_preemptible_used=own.non_preemptible_used,
            )
        state, row = found
        return status_of(state, row, state.scaled_min(row), self.runtime_of(name))

    def statuses(self) -> dict[str, QuotaStatus]:
        """Give all ordinary quotas, by name, computed in one pass over each tree."""
        result: dict[str, QuotaStatus] = {}
        for state in self._states.values():
            result.update(statuses_of(state))
        return dict(sorted(result.items()))

    def pool_of(self, tree_id: str = "") -> Resources:
        """What a tree has to share: its total without what the default and system quotas use."""
        if tree_id:
            return self._totals.get(tree_id, NO_RESOURCES)
        pool = subtract(self.total, self._elsewhere) if self._elsewhere else self.total
        for name in (DEFAULT_QUOTA, SYSTEM_QUOTA):
            if name in self._builtin:
                pool = subtract(pool, self._builtin[name].used)
        return pool

    # --- changing -----------------------------------------------------------------------------------------

    def track(self, pod: QuotaPod) -> QuotaLedger:
        """Count a pod in the request of its quota, and in what is used where it is already placed."""
        return self._changed(pod, requested=1, placed=1 if pod.assigned else 0)

    def untrack(self, pod: QuotaPod) -> QuotaLedger:
        """Take a tracked pod out again, with what it uses where it is placed."""
        return self._changed(pod, requested=-1, placed=-1 if pod.assigned else 0)

    def assume(self, pod: QuotaPod) -> QuotaLedger:
        """Count a tracked pod as placed."""
        return self._changed(pod, requested=0, placed=1)

    def forget(self, pod: QuotaPod) -> QuotaLedger:
        """Count a tracked pod as not placed any more."""
        return self._changed(pod, requested=0, placed=-1)

    def with_total(self, amounts: Mapping[str, int]) -> QuotaLedger:
        """Share another total."""
        return attrs.evolve(self, total=make_resources(amounts)).repooled()

    def with_runtimes(self, runtimes: Mapping[str, Mapping[str, int]]) -> QuotaLedger:
        """Go by given runtimes for the quotas named, such as those a running cluster has published."""
        fixed = {name: make_resources(amounts) for name, amounts in sorted(runtimes.items())}
        return attrs.evolve(self, published=immutabledict({**self.published, **fixed}))

    def with_amounts(self, before: ElasticQuota, after: ElasticQuota) -> QuotaLedger | None:
        """Go by a quota that says other amounts of the same resources, and nothing else.

        ``None`` where more is different, so that the ledger has to be opened anew.
        """
        found = self.find(after.name)
        if found is None or self.quotas[after.name] is not before or self.policy.guarantee_usage:
            return None
        if not alike_but_for(_AMOUNTS, before, after):
            return None
        if before.max.keys() != after.max.keys() or before.min.keys() != after.min.keys():
            return None
        state, row = found
        return attrs.evolve(
            self,
            quotas=self.quotas.set(after.name, after),
            states=self._states.set(state.tree.tree_id, state.with_amounts(row, after)),
        )

    def _changed(self, pod: QuotaPod, *, requested: int, placed: int) -> QuotaLedger:
        name = self.resolve(pod)
        if name is None or name == ROOT_QUOTA:
            return self
        found = self.find(name)
        if found is None:
            usage = _builtin_usage(
                self.max_of(name), self._builtin.get(name, QuotaUsage()), pod, requested, placed
            )
            changed = attrs.evolve(self, builtin=immutabledict({**self._builtin, name: usage}))
            return changed.repooled() if placed else changed
        state, row = found
        request = state.tree.vector(row, pod.request)
        own = state.tally(row).own
        nothing = (0,) * len(request)
        if requested:
            guarded = nothing if pod.preemptible else request
            own = own.plus(Sums(request, nothing, guarded, nothing), requested)
        if placed:
            guarded = nothing if pod.preemptible else request
            own = own.plus(Sums(nothing, request, nothing, guarded), placed)
        states = immutabledict({**self._states, state.tree.tree_id: state.with_sums(row, own)})
        return attrs.evolve(self, states=states)

    def repooled(self) -> QuotaLedger:
        """Work the default tree's pool out again, after the total or the built-in quotas have changed."""
        state = self._states[""]
        pooled = state.with_pool(pool_for(state.tree, self.pool_of()))
        if pooled is state:
            return self
        return attrs.evolve(self, states=immutabledict({**self._states, "": pooled}))


def _builtin_usage(
    limit: Resources, old: QuotaUsage, pod: QuotaPod, requested: int, placed: int
) -> QuotaUsage:
    def shifted(amounts: Resources, sign: int) -> Resources:
        changed = dict(amounts)
        for name, amount in pod.request.items():
            if name in limit:
                changed[name] = max(0, changed.get(name, 0) + sign * amount)
        return make_resources({name: amount for name, amount in changed.items() if amount})

    guarded = not pod.preemptible
    return QuotaUsage(
        request=shifted(old.request, requested) if requested else old.request,
        used=shifted(old.used, placed) if placed else old.used,
        non_preemptible_request=(
            shifted(old.non_preemptible_request, requested)
            if requested and guarded
            else old.non_preemptible_request
        ),
        non_preemptible_used=(
            shifted(old.non_preemptible_used, placed) if placed and guarded else old.non_preemptible_used
        ),
    )


def pool_for(tree: QuotaTree, amounts: Mapping[str, int]) -> Pool:
    """Lay out what a tree has by the resources of its rows."""
    return Pool(
        tuple([amounts.get(name, 0) for name in tree.resources]),
        tuple([name in amounts for name in tree.resources]),
    )
