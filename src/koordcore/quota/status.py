"""What follows for every quota: one record each, for one or for a whole tree at once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.quotas import ROOT_QUOTA
from koordcore.model.resources import NO_RESOURCES, Resources, make_resources
from koordcore.protocol.exact import amounts_of, exact_of, wire_list
from koordcore.protocol.quota import PREFIX, resource_list_annotation
from koordcore.quota.rollup import TreeState
from koordcore.quota.runtime import LARGEST, runtimes_of
from koordcore.quota.sharing import Shares
from koordcore.quota.tree import Vector

_PUBLISHED: Final = {
    "runtime": "runtime",
    "request": "request",
    "child-request": "child_request",
    "guaranteed": "guaranteed",
    "allocated": "allocated",
    "non-preemptible-request": "non_preemptible_request",
    "non-preemptible-used": "non_preemptible_used",
}


@record(kw_only=True)
class QuotaStatus:
    """One quota with everything that follows for it, amounts by resource.

    Parameters
    ----------
    quota, tree, parent
        Which one, in which tree, below whom.
    max, min
        As given.
    scaled_min
        ``min`` after scaling (upstream's AutoScaleMin).
    child_request, request, limit_request
        What its pods and children ask for; that, raised to ``min`` where it does not lend; that, clipped
        by ``max``.
    used, non_preemptible_request, non_preemptible_used
        Plain sums over its pods and everybody's below.
    allocated, guaranteed
        Kept under the usage guarantee only; else empty.
    runtime
        What it may use now, for the resources in its ``max`` that its parent hands out. ``None`` for the
        built-in quotas and where the chain of parents is broken.
    """

    quota: str
    tree: str = ""
    parent: str = ""
    max: Resources = NO_RESOURCES
    min: Resources = NO_RESOURCES
    scaled_min: Resources = NO_RESOURCES
    child_request: Resources = NO_RESOURCES
    request: Resources = NO_RESOURCES
    limit_request: Resources = NO_RESOURCES
    used: Resources = NO_RESOURCES
    non_preemptible_request: Resources = NO_RESOURCES
    non_preemptible_used: Resources = NO_RESOURCES
    allocated: Resources = NO_RESOURCES
    guaranteed: Resources = NO_RESOURCES
    runtime: Resources | None = None

    @property
    def annotations(self) -> dict[str, str]:
        """What a scheduler publishes on an ElasticQuota: annotation to resource list in JSON.

        ``status.used`` of the object is beside them: ``format_resources(status.used)``.
        """
        result: dict[str, str] = {}
        for key, field in _PUBLISHED.items():
            amounts: Resources | None = getattr(self, field)
            if amounts is not None:
                result[PREFIX + key] = json.dumps(wire_list(exact_of(amounts)), separators=(",", ":"))
        return result

    def stale_annotations(self, old: Mapping[str, str]) -> dict[str, str]:
        """Give those published annotations that have to be rewritten: what differs but for zeros.

        An annotation that cannot be read is rewritten.
        """
        return {
            key: text
            for key, text in self.annotations.items()
            if _amounts(old, key) != _amounts({key: text}, key)
        }


def _amounts(annotations: Mapping[str, str], key: str) -> Resources | None:
    try:
        amounts = amounts_of(resource_list_annotation(annotations, key))
    except ManifestError:
        return None
    return make_resources({name: amount for name, amount in amounts.items() if amount})


def status_of(state: TreeState, row: int, scaled: Vector, runtime: Resources | None) -> QuotaStatus:
    """Put one quota's record together, with its scaled min and its runtime.

    Parameters
    ----------
    state, row
        The sums of the tree, and the row of the quota.
    scaled
        Its min after scaling, by resource of the tree.
    runtime
        ``None`` where runtimes are not computed.
    """
    tree, tally, quota = state.tree, state.tally(row), state.tree.quotas[row]
    guarantee = state.policy.guarantee_usage

    def named(vector: Vector) -> Resources:
        return tree.named(vector)

    return QuotaStatus(
        quota=quota.name,
        tree=tree.tree_id,
        parent=quota.parent or ROOT_QUOTA,
        max=quota.max,
        min=quota.min,
        scaled_min=named(scaled),
        child_request=named(tally.child),
        request=named(tally.request),
        limit_request=named(tally.limit),
        used=named(tally.used),
        non_preemptible_request=named(tally.non_preemptible_request),
        non_preemptible_used=named(tally.non_preemptible_used),
        allocated=named(tally.allocated) if guarantee else NO_RESOURCES,
        guaranteed=named(tally.guaranteed) if guarantee else NO_RESOURCES,
        runtime=runtime,
    )


def statuses_of(state: TreeState) -> dict[str, QuotaStatus]:
    """Put the records of a whole tree together, by name."""
    tree = state.tree
    got = _all_shares(state)
    result: dict[str, QuotaStatus] = {}
    for row, quota in enumerate(tree.quotas):
        shares = got[tree.group_of[row]]
        place = tree.place_of[row]
        if shares is None:
            result[quota.name] = status_of(state, row, tree.min[row], None)
            continue
        handed = tree.handled[tree.group_of[row]]
        runtime: Resources = immutabledict(
            {
                name: amount
                for name, amount, given in zip(tree.resources, shares.runtime_at(place), handed, strict=True)
                if given and name in quota.max
            }
        )
        result[quota.name] = status_of(state, row, shares.scaled_at(place), runtime)
    return result


def _all_shares(state: TreeState) -> list[Shares | None]:
    """Share out everywhere: in arrays where they can hold the amounts, else group by group."""
    tree = state.tree
    arrays = state.arrays()
    limits = [state.tally(row).limit for row in range(len(tree.quotas))]
    floors = [state.tally(row).guaranteed for row in range(len(tree.quotas))]
    spread = [
        max((sum(vector[k] for vector in both)) for both in (limits, floors))
        for k in range(len(tree.resources))
    ]
    largest = max([*spread, *map(abs, state.pool.amounts)], default=0)
    if arrays is None or largest >= LARGEST // 2:
        return [state.shares(group) for group in range(len(tree.groups))]
    rows, width = arrays.rows, len(tree.resources)
    matrix = np.array(limits, dtype=np.int64).reshape(len(limits), width).T[:, rows]
    guaranteed = np.array(floors, dtype=np.int64).reshape(len(floors), width).T[:, rows]
    scaled, runtime = runtimes_of(
        arrays,
        np.ascontiguousarray(matrix),
        np.array(state.pool.amounts, dtype=np.int64),
        np.array(state.pool.present, dtype=np.bool_),
        scale=state.policy.enable_min_quota_scale,
        guaranteed=np.ascontiguousarray(guaranteed) if state.policy.guarantee_usage else None,
    )
    here_of = {row: here for here, row in enumerate(rows.tolist())}

    def those_of(members: Sequence[int]) -> Shares | None:
        here = [here_of[row] for row in members if row in here_of]
        return Shares(list(scaled[:, here]), list(runtime[:, here])) if len(here) == len(members) else None

    return list(map(those_of, tree.groups))
