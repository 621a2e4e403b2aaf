"""Elastic quotas: whole trees, flat families, and one admission after one change.

The trees are those of the reference's figures; see the class docstrings for the distributions.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from koordcore._arrays import IntMatrix
from koordcore.model.pods import PodKey
from koordcore.model.quotas import ROOT_QUOTA, ElasticQuota, QuotaPod, QuotaPolicy, QuotaUsage
from koordcore.model.resources import CPU, MEMORY, NO_RESOURCES, Resources, make_resources
from koordcore.quota.admission import Admitted, admit
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.opening import open_ledger
from koordcore.quota.runtime import TreeArrays, arrays_of, runtimes_of
from koordcore.quota.tree import TOP

GPU: Final = "nvidia.com/gpu"
GI: Final = 2**30
FAN: Final = 10
DEPTH: Final = 4
TOTALS: Final = (
    make_resources({CPU: 60_000_000, MEMORY: 240_000 * GI, GPU: 20_000}),
    make_resources({CPU: 60_001_000, MEMORY: 240_001 * GI, GPU: 20_001}),
)


def below(dice: np.random.Generator, bound: int) -> int:
    """Draw from 0 up to the bound."""
    return int(dice.integers(bound))


def deep_tree(dice: np.random.Generator) -> tuple[list[ElasticQuota], dict[str, QuotaUsage]]:
    """Build 10 x 10 x 10 x 10 quotas, 11,110 in all, with mins beyond the total and 10,000 asking leaves."""
    quotas: list[ElasticQuota] = []
    usage: dict[str, QuotaUsage] = {}

    def grow(name: str, parent: str, depth: int) -> None:
        size = FAN ** (DEPTH - depth)
        least = {
            CPU: below(dice, 8000) * size,
            MEMORY: below(dice, 32 * GI) * size,
            GPU: below(dice, 3) * size,
        }
        most = {
            CPU: least[CPU] + below(dice, 16000) * size,
            MEMORY: least[MEMORY] + below(dice, 64 * GI) * size,
            GPU: least[GPU] + below(dice, 6) * size,
        }
        weight = {
            CPU: (1 + below(dice, 100)) * 1000,
            MEMORY: (1 + below(dice, 100)) * GI,
            GPU: (1 + below(dice, 100)),
        }
        quotas.append(
            ElasticQuota(
                name=name,
                parent=parent,
                min=make_resources(least),
                max=make_resources(most),
                shared_weight=make_resources(weight),
                allow_lent=dice.random() < 0.9,
                is_parent=depth < DEPTH,
            )
        )
        if depth == DEPTH:
            usage[name] = QuotaUsage(
                request=make_resources(
                    {CPU: below(dice, 24000), MEMORY: below(dice, 96 * GI), GPU: below(dice, 9)}
                )
            )
            return
        for index in range(FAN):
            grow(f"{name}-{index}", name, depth + 1)

    for index in range(FAN):
        grow(f"q-{index}", "", 1)
    return quotas, usage


def flat_tree(
    dice: np.random.Generator, size: int, share: float
) -> tuple[list[ElasticQuota], dict[str, QuotaUsage], Resources]:
    """Build siblings without min, max 96 cores and 160Gi, that ask for up to 2000 of each.

    ``share`` is the total in parts of what they may get at most.
    """
    limit = make_resources({CPU: 96_000, MEMORY: 160 * GI})
    quotas = [
        ElasticQuota(
            name=f"q-{index}",
            max=limit,
            shared_weight=make_resources(
                {CPU: 1000 * (1 + below(dice, 100)), MEMORY: GI * (1 + below(dice, 100))}
            ),
        )
        for index in range(size)
    ]
    asked = [make_resources({CPU: below(dice, 2000) * 1000, MEMORY: below(dice, 2000) * GI}) for _ in quotas]
    usage = {quota.name: QuotaUsage(request=one) for quota, one in zip(quotas, asked, strict=True)}
    total = {name: int(sum(min(one[name], limit[name]) for one in asked) * share) for name in (CPU, MEMORY)}
    return quotas, usage, make_resources(total)


def limits_of(arrays: TreeArrays, most: IntMatrix, own: IntMatrix) -> IntMatrix:
    """Roll requests up: what each quota asks of its parent.

    Parameters
    ----------
    most
        Shape (R, Q): what each may reach.
    own
        Shape (R, Q): what the pods of each quota itself ask for; sums stay within 64 bits.
    """
    child = own.copy()
    limit = np.empty_like(child)
    for level in reversed(arrays.levels):
        rows = level.rows
        asked = np.where(arrays.lends[rows], child[:, rows], np.maximum(child[:, rows], arrays.min[:, rows]))
        limit[:, rows] = np.minimum(asked, most[:, rows])
        if level.parents.size:
            child[:, level.parents] += np.add.reduceat(limit[:, rows], level.starts, axis=1)
    return limit


class _Prepared:
    def __init__(self, ledger: QuotaLedger) -> None:
        tree = ledger.state().tree
        arrays = arrays_of(tree)
        assert arrays is not None, "the amounts fit arrays"
        # All of these quotas name all resources in their max.
        self.most = np.ascontiguousarray(np.array(tree.max, dtype=np.int64).T)
        own = [ledger.state().tally(row).own.request for row in range(len(tree.quotas))]
        self.arrays: TreeArrays = arrays
        self.own = np.ascontiguousarray(np.array(own, dtype=np.int64).T)
        self.resources = tree.resources

    def run(self, total: Resources, *, scale: bool) -> int:
        """Roll the requests up and share the total out; returns the sum of all leaves' runtimes."""
        pool = np.array([total.get(name, 0) for name in self.resources], dtype=np.int64)
        limits = limits_of(self.arrays, self.most, self.own)
        present = np.ones(len(self.resources), dtype=np.bool_)
        _, runtime = runtimes_of(self.arrays, limits, pool, present, scale=scale)
        return int(runtime[0].sum())


class DeepTree:
    """All runtimes of 11,110 quotas in 4 levels, 3 resources, every operation from a changed total."""

    params = (True, False)
    param_names = ("scale",)

    def setup(self, scale: bool) -> None:
        quotas, usage = deep_tree(np.random.default_rng(7))
        self.ledger = open_ledger(
            quotas, total=TOTALS[0], usage=usage, policy=QuotaPolicy(enable_min_quota_scale=scale)
        )
        self.prepared = _Prepared(self.ledger)
        self.turn = 0

    def time_all_runtimes(self, scale: bool) -> None:
        self.turn ^= 1
        assert self.prepared.run(TOTALS[self.turn], scale=scale) > 0

    def track_units_undealt(self, scale: bool) -> int:
        """Memory that scarce children want and nobody got: none, whatever the size of the products."""
        statuses = self.ledger.statuses().values()
        top = [one for one in statuses if not one.parent or one.parent == ROOT_QUOTA]
        assert any(one.limit_request[MEMORY] > (one.runtime or NO_RESOURCES).get(MEMORY, 0) for one in top)
        return max(0, TOTALS[0][MEMORY] - sum((one.runtime or NO_RESOURCES).get(MEMORY, 0) for one in top))

    track_units_undealt.unit = "bytes"  # type: ignore[attr-defined]  # asv reads the unit there

    def time_statuses(self, scale: bool) -> None:
        """The same with a record for every quota, from the ledger."""
        self.turn ^= 1
        assert len(self.ledger.with_total(TOTALS[self.turn]).statuses()) == 11_110


class FlatTree:
    """All runtimes of sibling quotas, 2 resources, at half and at ten times of what they may get.

    With plenty one round serves everybody; with half of it several rounds deal the surplus out again.
    """

    params = ((2000, 20_000), (0.5, 10.0))
    param_names = ("quotas", "share")

    def setup(self, size: int, share: float) -> None:
        quotas, usage, total = flat_tree(np.random.default_rng(11), size, share)
        self.ledger = open_ledger(quotas, total=total, usage=usage)
        self.prepared = _Prepared(self.ledger)
        self.totals = (total, make_resources({name: amount + 1000 for name, amount in total.items()}))
        self.turn = 0

    def time_all_runtimes(self, size: int, share: float) -> None:
        self.turn ^= 1
        assert self.prepared.run(self.totals[self.turn], scale=True) > 0


class OneAdmission:
    """One pod's admission in the deep tree, after one quota's requests have changed or none."""

    def setup(self) -> None:
        quotas, usage = deep_tree(np.random.default_rng(7))
        self.ledger = open_ledger(quotas, total=TOTALS[0], usage=usage)
        state = self.ledger.state()
        # A change that is felt up to the root: nobody on its path is clipped, nor asks for its min anyway.
        self.other = next(
            pod
            for name in sorted(usage)
            if (pod := self.pod(name, 1)).quota
            and self.ledger.track(pod).state().needs[TOP] is not state.needs[TOP]
        )
        self.mine = next(
            pod
            for name in sorted(usage, reverse=True)
            if isinstance(admit(self.ledger, pod := self.pod(name, 1)), Admitted)
        )
        self.spare = next(
            pod
            for name in sorted(usage)
            if isinstance(admit(self.ledger.track(pod := self.pod(name, 2)), pod), Admitted)
            and self.ledger.track(pod).state().needs[TOP] is not state.needs[TOP]
        )

    @staticmethod
    def pod(quota: str, amount: int) -> QuotaPod:
        return QuotaPod(
            key=PodKey("a", quota), quota=quota, request=make_resources({CPU: amount, MEMORY: amount})
        )

    def time_after_another_changed(self) -> None:
        """The change moves every runtime; the pod's own path is all that is worked out."""
        assert isinstance(admit(self.ledger.track(self.other), self.mine), Admitted)

    def time_after_its_own_changed(self) -> None:
        assert isinstance(admit(self.ledger.track(self.spare), self.spare), Admitted)

    def time_admit_and_assume(self) -> None:
        """What a scheduling loop does for each pod, requests unchanged."""
        assert isinstance(admit(self.ledger, self.mine), Admitted)
        self.ledger.assume(self.mine)


class Opening:
    """Building the ledger of the deep tree from records."""

    def setup(self) -> None:
        self.parts = deep_tree(np.random.default_rng(7))

    def time_open(self) -> None:
        quotas, usage = self.parts
        open_ledger(quotas, total=TOTALS[0], usage=usage)
