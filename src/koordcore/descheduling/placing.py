"""Room on all nodes as columns: where does a pod that must leave find a place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from koordcore.descheduling.moves import Movable, MoveProblem
from koordcore.model.pods import PodKey

_UNLIMITED = 2**62


class Room:
    """What is free on every host, while moves are tried; private to one call.

    Parameters
    ----------
    problem
        Hosts, limits and where pods may run.
    """

    def __init__(self, problem: MoveProblem) -> None:
        self._problem = problem
        hosts = problem.hosts
        self.row = {host.name: index for index, host in enumerate(hosts)}
        asked = sorted({name for one in problem.movable for name in one.requests})
        used = sorted({name for host in hosts for name in host.high})
        self._asked = {name: column for column, name in enumerate(asked)}
        self._used = {name: column for column, name in enumerate(used)}
        self.free = np.array(
            [
                [host.allocatable.get(name, 0) - host.requested.get(name, 0) for name in asked]
                for host in hosts
            ],
            dtype=np.int64,
        ).reshape(len(hosts), len(asked))
        self.cool = np.array(
            [
                [
                    host.high[name] - host.usage.get(name, 0) if name in host.high else _UNLIMITED
                    for name in used
                ]
                for host in hosts
            ],
            dtype=np.int64,
        ).reshape(len(hosts), len(used))
        self.receives = np.array([host.receives for host in hosts], dtype=np.bool_)
        self._left = [group.most for group in problem.groups]
        self._groups: dict[PodKey, list[int]] = {}
        for index, group in enumerate(problem.groups):
            for pod in group.pods:
                self._groups.setdefault(pod, []).append(index)
        self.targets: dict[PodKey, str] = {}

    def _vectors(self, one: Movable) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        asked = np.array([one.requests.get(name, 0) for name in self._asked], dtype=np.int64)
        used = np.array([one.usage.get(name, 0) for name in self._used], dtype=np.int64)
        return asked, used

    def fits(self, one: Movable) -> NDArray[np.bool_]:
        """Tell which hosts can take a pod and stay cool; its own is not left out."""
        asked, used = self._vectors(one)
        # What a pod does not ask for may be overdrawn already.
        fits: NDArray[np.bool_] = ((self.free >= asked) | (asked == 0)).all(axis=1)
        return fits & (self.cool >= used).all(axis=1) & self.receives

    def candidates(self, one: Movable, excluded: Iterable[str] = ()) -> Iterator[str]:
        """Give the hosts that can take a pod and stay cool, tightest first, then by name."""
        asked, used = self._vectors(one)
        fits = self.fits(one)
        fits[self.row[one.node]] = False
        for name in excluded:
            fits[self.row[name]] = False
        rows = np.flatnonzero(fits)
        if not len(rows):
            return
        slack = (self.cool[rows] - used).astype(np.float64) / (np.abs(self.cool[rows]) + 1.0)
        spare = (self.free[rows] - asked).astype(np.float64) / (np.abs(self.free[rows]) + 1.0)
        tightness = slack.sum(axis=1) + spare.sum(axis=1)
        for index in np.lexsort((rows, tightness)):
            name = self._problem.hosts[int(rows[index])].name
            if self._problem.allows(one.pod, name):
                yield name

    def may_move(self, pods: Sequence[Movable]) -> bool:
        """Tell whether the limits let all of these go on top of those that go already."""
        needed: dict[int, int] = {}
        for one in pods:
            for group in self._groups.get(one.pod, ()):
                needed[group] = needed.get(group, 0) + 1
        return all(count <= self._left[group] for group, count in needed.items())

    def move(self, one: Movable, target: str, sign: int = 1) -> None:
        """Carry out a move; with ``sign`` -1 take it back."""
        asked, used = self._vectors(one)
        source, row = self.row[one.node], self.row[target]
        self.free[source] += sign * asked
        self.free[row] -= sign * asked
        self.cool[source] += sign * used
        self.cool[row] -= sign * used
        for group in self._groups.get(one.pod, ()):
            self._left[group] -= sign
        if sign > 0:
            self.targets[one.pod] = target
        else:
            del self.targets[one.pod]

    def leave(self, one: Movable) -> None:
        """Let a pod go that has no place."""
        asked, used = self._vectors(one)
        self.free[self.row[one.node]] += asked
        self.cool[self.row[one.node]] += used

    def place(self, pods: Sequence[Movable], excluded: Iterable[str] = ()) -> bool:
        """Move all of these, largest first, each to its tightest place; all or none."""
        if not self.may_move(pods):
            return False
        excluded = tuple(excluded)
        done: list[tuple[Movable, str]] = []
        for one in sorted(pods, key=lambda one: (-self._size(one.requests), one.pod)):
            target = next(self.candidates(one, excluded), None)
            if target is None:
                for moved, place in reversed(done):
                    self.move(moved, place, -1)
                return False
            self.move(one, target)
            done.append((one, target))
        return True

    def _size(self, amounts: Mapping[str, int]) -> float:
        totals = self.free.max(axis=0, initial=1) if len(self.free) else np.ones(len(self._asked))
        return float(
            sum(amounts.get(name, 0) / max(1, totals[column]) for name, column in self._asked.items())
        )
