"""Whether rules that move pods can go round for ever: all that can happen in small worlds, searched.

A world is closed: nobody comes, ends or fails. Whatever a scheduler may do next is allowed in any order, so
that a rule set without circles here has none for any order in which pods are asked about. Circles need an
eviction: placing alone ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, TypeAlias

import attrs

from koordcore.errors import ModelError
from koordcore.simulate.loop_rules import Kept, LoopRules, Preempts, Reclaims

WAITS: Final = -1
GONE: Final = -2
_NOMINATED: Final = 100
"""A pod that waits for room that was made for it on node n stands at 100 + n."""
State: TypeAlias = tuple[int, ...]
"""Where each pod is: the number of its node, or one of the above."""


@attrs.frozen
class LoopPod:
    """A pod of a small world; ``quota`` is the number of its quota, -1 for none."""

    amount: int
    priority: int
    quota: int = -1


@attrs.frozen
class LoopWorld:
    """A small closed cluster.

    Parameters
    ----------
    nodes
        What each has.
    quotas
        ``min`` and ``max`` of each.
    pods
        Who there is.
    """

    nodes: tuple[int, ...]
    quotas: tuple[tuple[int, int], ...]
    pods: tuple[LoopPod, ...]


@attrs.frozen
class LoopStep:
    """One thing that happens.

    Parameters
    ----------
    rule
        ``places``, ``preempts``, ``reclaims``, ``revokes``, ``moves`` or ``gives up``.
    pod, node
        Who, and where to.
    evicted
        Who leaves for it.
    before, after
        Where everybody is.
    """

    rule: str
    pod: int
    node: int
    evicted: tuple[int, ...]
    before: State
    after: State


@attrs.frozen
class Loop:
    """A circle: after the last step everything is as it was before the first."""

    world: LoopWorld
    steps: tuple[LoopStep, ...]


class _Space:
    """What can happen in one world."""

    def __init__(self, world: LoopWorld, rules: LoopRules) -> None:
        self.world, self.rules = world, rules

    # -- sums --------------------------------------------------------------------------------------------

    def load(self, state: State, node: int) -> int:
        """What runs on a node."""
        return sum(pod.amount for pod, at in zip(self.world.pods, state, strict=True) if at == node)

    def used(self, state: State, quota: int) -> int:
        """What runs of a quota."""
        pairs = zip(self.world.pods, state, strict=True)
        return sum(pod.amount for pod, at in pairs if pod.quota == quota and 0 <= at < _NOMINATED)

    def within(self, state: State, pod: int) -> bool:
        """Whether a pod that does not run stays within its quota's min."""
        one = self.world.pods[pod]
        if one.quota < 0:
            return False
        return self.used(state, one.quota) + one.amount <= self.world.quotas[one.quota][0]

    def admitted(self, state: State, pod: int) -> bool:
        """Whether a pod's quota lets it run."""
        one = self.world.pods[pod]
        if one.quota < 0:
            return True
        return self.used(state, one.quota) + one.amount <= self.world.quotas[one.quota][1]

    def room(self, state: State, pod: int, node: int) -> int:
        """What a node has for a pod, beside those for whom room is kept."""
        left = self.world.nodes[node] - self.load(state, node)
        for other, at in enumerate(state):
            if at == _NOMINATED + node and other != pod and self._kept(state, other, pod):
                left -= self.world.pods[other].amount
        return left

    def _kept(self, state: State, waiting: int, pod: int) -> bool:
        kept = self.rules.kept
        first, second = self.world.pods[waiting], self.world.pods[pod]
        if kept is Kept.NOBODY:
            return False
        if first.priority >= second.priority:
            return True
        if kept is not Kept.BORROWERS or first.quota == second.quota:
            return False
        return self.within(state, waiting) and not self.within(state, pod)

    def fits(self, state: State, pod: int, node: int) -> bool:
        """Whether a pod can be placed."""
        return self.room(state, pod, node) >= self.world.pods[pod].amount and self.admitted(state, pod)

    # -- rules -------------------------------------------------------------------------------------------

    def steps(self, state: State) -> Iterator[LoopStep]:
        """Give all that may happen next."""
        nodes = range(len(self.world.nodes))
        first = [
            pod for pod, at in enumerate(state) if at >= _NOMINATED and self.fits(state, pod, at - _NOMINATED)
        ]
        for pod, at in enumerate(state):
            if any(self._asked_before(one, pod) for one in first if one != pod):
                continue
            if at >= _NOMINATED:
                if self.fits(state, pod, at - _NOMINATED):
                    yield self._step("places", state, pod, at - _NOMINATED)
                else:
                    yield LoopStep("gives up", pod, -1, (), state, _with(state, {pod: WAITS}))
            elif at == WAITS:
                fitting = [node for node in nodes if self.fits(state, pod, node)]
                for node in fitting:
                    yield self._step("places", state, pod, node)
                if not fitting:
                    yield from self._takes(state, pod)
            elif at >= 0:
                yield from self._moves(state, pod, at)
        if self.rules.revoke:
            yield from self._revokes(state)

    def _asked_before(self, waiting: int, pod: int) -> bool:
        """Whether somebody for whom there is room now has his turn before another pod."""
        first, second = self.world.pods[waiting], self.world.pods[pod]
        same = self.rules.kept is not Kept.NOBODY or first.quota == second.quota
        return same and first.priority > second.priority

    def _step(self, rule: str, state: State, pod: int, node: int, evicted: Sequence[int] = ()) -> LoopStep:
        out = WAITS if self.rules.recreated else GONE
        changed = dict.fromkeys(evicted, out) | {pod: _NOMINATED + node if evicted else node}
        return LoopStep(rule, pod, node, tuple(evicted), state, _with(state, changed))

    def _takes(self, state: State, pod: int) -> Iterator[LoopStep]:
        """Evict others for a pod: the fewest of each kind that make room and get it admitted."""
        for node in range(len(self.world.nodes)):
            there = [one for one, at in enumerate(state) if at == node]
            for rule, allowed in (("preempts", self._preempted), ("reclaims", self._reclaimed)):
                enough: list[set[int]] = []
                for size in range(1, len(there) + 1):
                    for some in combinations(there, size):
                        if any(less <= set(some) for less in enough) or not allowed(state, pod, some):
                            continue
                        left = _with(state, dict.fromkeys(some, WAITS))
                        if self.fits(left, pod, node):
                            enough.append(set(some))
                            yield self._step(rule, state, pod, node, some)

    def _preempted(self, state: State, pod: int, victims: Sequence[int]) -> bool:
        pods, rules = self.world.pods, self.rules
        mine = pods[pod]
        if rules.preemption is Preempts.NOBODY or any(pods[one].priority >= mine.priority for one in victims):
            return False
        if rules.preemption is Preempts.OWN_QUOTA:
            return all(pods[one].quota == mine.quota for one in victims)
        if not rules.promises or self.within(state, pod):
            return True
        others = [one for one in victims if pods[one].quota not in (-1, mine.quota)]
        return self._lent(state, others, mine.priority)

    def _reclaimed(self, state: State, pod: int, victims: Sequence[int]) -> bool:
        pods, how = self.world.pods, self.rules.reclaim
        mine = pods[pod].quota
        if how is Reclaims.NOBODY or mine < 0 or any(pods[one].quota in (-1, mine) for one in victims):
            return False
        if how is Reclaims.BEYOND_MIN:
            return self.within(state, pod) and self._lent(state, victims)
        own = self.used(state, mine)
        if how is Reclaims.LARGER_SHARE:
            return all(
                _larger(self.used(state, pods[one].quota), self._least(one), own, self._least(pod))
                for one in victims
            )
        after = _with(state, dict.fromkeys(victims, WAITS))
        own += pods[pod].amount
        return all(
            not _larger(own, self._least(pod), self.used(after, pods[one].quota), self._least(one))
            for one in victims
        )

    def _least(self, pod: int) -> int:
        return self.world.quotas[self.world.pods[pod].quota][0]

    def _lent(self, state: State, victims: Iterable[int], below: int | None = None) -> bool:
        """Whether all of some pods run on what their quotas use beyond their min.

        The least important of a quota do, one after the other, for as long as it uses more than its min.
        """
        pods = self.world.pods
        wanted = set(victims)
        for quota in {pods[one].quota for one in wanted}:
            left, least = self.used(state, quota), self.world.quotas[quota][0]
            running = [
                one
                for one, at in enumerate(state)
                if 0 <= at < _NOMINATED
                and pods[one].quota == quota
                and (below is None or pods[one].priority < below)
            ]
            for one in sorted(running, key=lambda one: (pods[one].priority, -one)):
                if left <= least:
                    break
                left -= pods[one].amount
                wanted.discard(one)
        return not wanted

    def _revokes(self, state: State) -> Iterator[LoopStep]:
        for quota, (_, most) in enumerate(self.world.quotas):
            if self.used(state, quota) > most:
                running = [
                    one
                    for one, at in enumerate(state)
                    if 0 <= at < _NOMINATED and self.world.pods[one].quota == quota
                ]
                one = min(running, key=lambda one: (self.world.pods[one].priority, -one))
                out = WAITS if self.rules.recreated else GONE
                yield LoopStep("revokes", one, state[one], (one,), state, _with(state, {one: out}))

    def _moves(self, state: State, pod: int, at: int) -> Iterator[LoopStep]:
        amount = self.world.pods[pod].amount
        for node in range(len(self.world.nodes)):
            if node == at or self.room(state, pod, node) < amount:
                continue
            here, there = self.load(state, at), self.load(state, node) + amount
            if (self.rules.spread and there < here) or (self.rules.pack and there > here):
                yield LoopStep("moves", pod, node, (pod,), state, _with(state, {pod: node}))


def find_loop(world: LoopWorld, rules: LoopRules) -> Loop | None:
    """Search a world for a circle with an eviction; the shortest one, ``None`` where there is none.

    Every state is a start in which no node holds more than it has.

    Raises
    ------
    ModelError
        When a pod names a quota that is not there.
    """
    if any(pod.quota >= len(world.quotas) for pod in world.pods):
        raise ModelError("pods: a quota is named that is not there")
    space = _Space(world, rules)
    edges: dict[State, list[LoopStep]] = {}
    todo = list(_starts(space))
    while todo:
        state = todo.pop()
        if state not in edges:
            edges[state] = list(space.steps(state))
            todo += [step.after for step in edges[state] if step.after not in edges]
    live = _in_circles(edges)
    best: tuple[LoopStep, ...] | None = None
    for state in sorted(live):
        for step in edges[state]:
            if step.evicted and step.after in live:
                way = _way(edges, live, step.after, state, None if best is None else len(best) - 2)
                if way is not None and (best is None or len(way) + 1 < len(best)):
                    best = (step, *way)
    return None if best is None else Loop(world, best)


def _starts(space: _Space) -> Iterator[State]:
    """Give every way to place the pods within what the nodes have."""
    world = space.world

    def grow(state: State, left: tuple[int, ...]) -> Iterator[State]:
        if len(state) == len(world.pods):
            yield state
            return
        yield from grow((*state, WAITS), left)
        amount = world.pods[len(state)].amount
        for node, room in enumerate(left):
            if room >= amount:
                yield from grow((*state, node), (*left[:node], room - amount, *left[node + 1 :]))

    yield from grow((), world.nodes)


def _in_circles(edges: Mapping[State, Sequence[LoopStep]]) -> frozenset[State]:
    """Keep the states that nobody can tell from those of a circle: each has a way in and a way out."""
    out = {state: len(steps) for state, steps in edges.items()}
    back: dict[State, list[State]] = {}
    for state, steps in edges.items():
        for step in steps:
            back.setdefault(step.after, []).append(state)
    dead = [state for state, count in out.items() if not count]
    while dead:
        for state in back.get(dead.pop(), ()):
            out[state] -= 1
            if not out[state]:
                dead.append(state)
    return frozenset(state for state, count in out.items() if count)


def _way(
    edges: Mapping[State, Sequence[LoopStep]],
    live: frozenset[State],
    start: State,
    end: State,
    longest: int | None,
) -> tuple[LoopStep, ...] | None:
    """Give the shortest way from one state to another."""
    came: dict[State, LoopStep | None] = {start: None}
    todo = deque([(start, 0)])
    while todo:
        state, length = todo.popleft()
        if state == end:
            way: list[LoopStep] = []
            step = came[state]
            while step is not None:
                way.append(step)
                step = came[step.before]
            return tuple(way[::-1])
        if longest is not None and length > longest:
            return None
        for step in edges[state]:
            if step.after in live and step.after not in came:
                came[step.after] = step
                todo.append((step.after, length + 1))
    return None


def _with(state: State, changed: Mapping[int, int]) -> State:
    made = list(state)
    for pod, at in changed.items():
        made[pod] = at
    return tuple(made)


def _larger(used: int, least: int, other: int, its: int) -> bool:
    """Compare shares as fractions; who is promised nothing and uses something is in front of everybody."""
    if not least or not its:
        return (used if not least else 0, used) > (other if not its else 0, other)
    return used * its > other * least
