"""What the ResourceSlices of one pool say about each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from koordcore.errors import Problem
from koordcore.manifests.cross_checks import Remark
from koordcore.model.device_slices import ResourceSlice
from koordcore.model.records import ClusterRecord


def pool_remarks(records: Iterable[ClusterRecord]) -> Iterator[Remark]:
    """Find pools whose slices do not agree in how many they are, or are more than they say.

    Fewer may be on their way: such a pool offers nothing until they are there.
    """
    pools: dict[tuple[str, str, int], list[ResourceSlice]] = {}
    for one in records:
        if isinstance(one, ResourceSlice):
            pools.setdefault((one.driver, one.pool, one.generation), []).append(one)
    for (driver, name, generation), slices in pools.items():
        first = slices[0]
        other = next((one for one in slices if one.slice_count != first.slice_count), None)
        pool = f"pool {driver}/{name} of generation {generation}"
        if other is not None:
            message = (
                f"{other.slice_count}, where slice {first.name} of {pool} says {first.slice_count}: what the "
                "pool offers hangs on which of them a node sees first"
            )
            yield _at(other, message)
        elif len(slices) > first.slice_count > 0:
            yield _at(first, f"{first.slice_count}, but {pool} has {len(slices)} slices")


def _at(one: ResourceSlice, message: str) -> Remark:
    key = ("resource.k8s.io", "ResourceSlice", "", one.name)
    return key, Problem("spec.pool.resourceSliceCount", message)
