"""What may happen next in a small closed world by rules that move pods.

Nobody comes, ends or fails. ``docs/loops.md`` has the rules in words, and why they end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, product

from koordcore.simulate.loop_rules import Defragments, Kept, LoopRules, Preempts, Reclaims
from koordcore.simulate.loop_worlds import GONE, LEAVING, NOMINATED, WAITS, LoopStep, LoopWorld, State


class LoopMoves:
    """What can happen in one world.

    Parameters
    ----------
    world, rules
        Where, and by which rules.
    """

    def __init__(self, world: LoopWorld, rules: LoopRules) -> None:
        self.world, self.rules = world, rules
        self._amounts = [pod.amount for pod in world.pods]
        self._priorities = [pod.priority for pod in world.pods]
        self._quotas = [pod.quota for pod in world.pods]
        self._chains = [world.chain(quota) for quota in self._quotas]
        pods = range(len(world.pods))
        self._members = [
            sorted((one for one in pods if quota in self._chains[one]), key=self._rank)
            for quota in range(len(world.quotas))
        ]
        """The pods of each quota and of those below it, the most important first."""
        self._out = WAITS if rules.recreated else GONE
        self._known: dict[State, tuple[list[int], list[int]]] = {}

    def _rank(self, pod: int) -> tuple[int, int]:
        return -self._priorities[pod], pod

    # -- sums --------------------------------------------------------------------------------------------

    def load(self, state: State, node: int) -> int:
        """What runs on a node."""
        return self._sums(state)[0][node]

    def held(self, state: State, quota: int, pod: int) -> int:
        """What a quota uses, with the claims that a pod has to heed."""
        return self.used(state, quota) + sum(
            self._amounts[one]
            for one in self._members[quota]
            if state[one] >= NOMINATED and one != pod and self._kept(state, one, pod)
        )

    def used(self, state: State, quota: int) -> int:
        """What runs of a quota."""
        return self._sums(state)[1][quota]

    def _sums(self, state: State) -> tuple[list[int], list[int]]:
        """What runs on each node, and of each quota; its last entry is for those without one."""
        found = self._known.get(state)
        if found is None:
            found = self._known[state] = [0] * len(self.world.nodes), [0] * (len(self.world.quotas) + 1)
            for at, amount, chain in zip(state, self._amounts, self._chains, strict=True):
                if 0 <= at < NOMINATED:
                    found[0][at % LEAVING] += amount
                    for quota in chain:
                        found[1][quota] += amount
        return found

    def within(self, state: State, pod: int) -> bool:
        """Whether a pod that does not run stays within its quota's min, and within that of all above."""
        return self._quotas[pod] >= 0 and not self._beyond(state, pod)

    def _beyond(self, state: State, pod: int) -> list[int]:
        """Give the quotas of a pod's chain that would go beyond their min with it."""
        mine, quotas = self._amounts[pod], self.world.quotas
        chain = self._chains[pod]
        return [one for one in chain if self.held(state, one, pod) + mine > quotas[one][0]]

    def admitted(self, state: State, pod: int, *, claims: bool = False) -> bool:
        """Whether a pod's quota lets it run, beside what runs and perhaps claims that it has to heed."""
        if self._quotas[pod] < 0:
            return True
        for quota in self._chains[pod]:
            used = self.held(state, quota, pod) if claims else self.used(state, quota)
            if used + self._amounts[pod] > self.world.quotas[quota][1]:
                return False
        return True

    def promised(self, state: State, pod: int) -> int:
        """How much of a pod lies within its quota's min: what those before it leave of that.

        Before it are the more important; of those as important who runs, who waits for room that was made for
        him, and who only waits, and of these again the first by name. Quotas above have no say: what is
        promised to one is promised to those below it first.
        """
        quota = self._quotas[pod]
        if quota < 0:
            return 0
        left, mine = self.world.quotas[quota][0], self._standing(state, pod)
        for one in self._members[quota]:
            if state[one] >= 0 and self._standing(state, one) < mine:
                left -= self._amounts[one]
        return max(0, min(left, self._amounts[pod]))

    def _standing(self, state: State, pod: int) -> tuple[int, int, int]:
        at = state[pod]
        return -self._priorities[pod], 2 if at < 0 else int(at >= NOMINATED), pod

    def room(self, state: State, pod: int, node: int) -> int:
        """What a node has for a pod, beside those for whom room is kept."""
        left = self.world.nodes[node] - self.load(state, node)
        for other, at in enumerate(state):
            if at == NOMINATED + node and other != pod and self._kept(state, other, pod):
                left -= self._amounts[other]
        return left

    def _kept(self, state: State, waiting: int, pod: int) -> bool:
        kept = self.rules.kept
        if kept is Kept.NOBODY:
            return False
        more = self._priorities[waiting] >= self._priorities[pod]
        if kept is not Kept.BORROWERS:
            return more
        if not self.rules.partly:
            other = self._quotas[waiting] != self._quotas[pod]
            return more or (other and self.within(state, waiting) and not self.within(state, pod))
        first, second = self.promised(state, waiting) > 0, self.promised(state, pod) > 0
        return more if first == second else first

    def fits(self, state: State, pod: int, node: int) -> bool:
        """Whether a pod can be placed beside those who wait for the same node."""
        return self.room(state, pod, node) >= self._amounts[pod] and self.admitted(state, pod)

    def fits_now(self, state: State, settled: State, pod: int, node: int) -> bool:
        """Whether it can be placed beside those as well who have to go and still hold their room."""
        if not self.fits(settled, pod, node):
            return False
        going = [0] * len(self.world.nodes)
        for one, at in enumerate(state):
            if LEAVING <= at < NOMINATED:
                going[at - LEAVING] += self._amounts[one]
        if self.room(settled, pod, node) - going[node] < self._amounts[pod] or not self.admitted(state, pod):
            return False
        # Who is more important and waits for nobody to go has his turn before.
        left = {
            quota for one, at in enumerate(state) if LEAVING <= at < NOMINATED for quota in self._chains[one]
        }
        ready = {
            one: WAITS
            for one, at in enumerate(settled)
            if at >= NOMINATED
            and self._priorities[one] > self._priorities[pod]
            and not going[at - NOMINATED]
            and left.isdisjoint(self._chains[one])
        }
        return self.admitted(_with(settled, ready), pod, claims=True)

    def settled(self, state: State) -> State:
        """Give the state that all come to who have to go: what may be done is judged by it."""
        if not self.rules.graceful or not any(LEAVING <= at < NOMINATED for at in state):
            return state
        return tuple(self._out if LEAVING <= at < NOMINATED else at for at in state)

    # -- rules -------------------------------------------------------------------------------------------

    def steps(self, state: State) -> Iterator[LoopStep]:
        """Give all that may happen next."""
        settled = self.settled(state)
        first = [
            pod
            for pod, at in enumerate(state)
            if at >= NOMINATED and self.fits_now(state, settled, pod, at - NOMINATED)
        ]
        for pod, at in enumerate(state):
            if LEAVING <= at < NOMINATED:
                yield LoopStep("ends", pod, at - LEAVING, (), state, _with(state, {pod: self._out}))
            elif any(self._priorities[one] > self._priorities[pod] for one in first):
                continue  # They have their turn before.
            elif pod in first:
                yield LoopStep("places", pod, at - NOMINATED, (), state, _with(state, {pod: at - NOMINATED}))
            elif at >= NOMINATED:
                yield from self._elsewhere(state, settled, pod, at - NOMINATED)
            elif at == WAITS:
                yield from self.comes(state, pod)
            elif at >= 0:
                yield from self._moves(state, pod, at)
        if self.rules.revoke:
            yield from self._revokes(state, settled)

    def _elsewhere(self, state: State, settled: State, pod: int, node: int) -> Iterator[LoopStep]:
        """Give what a pod may do whose room is not free now: go where nobody is promised any, or give up."""
        fitting = [
            other
            for other in range(len(self.world.nodes))
            if self.fits_now(state, settled, pod, other)
            and self.load(state, other) + self._claimed(state, other) + self._amounts[pod]
            <= self.world.nodes[other]
        ]
        for other in fitting:
            yield LoopStep("places", pod, other, (), state, _with(state, {pod: other}))
        if not fitting and not self.fits(settled, pod, node):
            yield LoopStep("gives up", pod, -1, (), state, _with(state, {pod: WAITS}))

    def comes(self, state: State, pod: int) -> Iterator[LoopStep]:
        """Give what a pod may do that waits and has been promised nothing."""
        settled = self.settled(state)
        nodes = range(len(self.world.nodes))
        fitting = [node for node in nodes if self.fits_now(state, settled, pod, node)]
        for node in fitting:
            yield LoopStep("places", pod, node, (), state, _with(state, {pod: node}))
        if fitting:
            return
        awaited = [] if state is settled else [node for node in nodes if self.promises(settled, pod, node)]
        for node in awaited:
            yield LoopStep("awaits", pod, node, (), state, _with(state, {pod: NOMINATED + node}))
        if state is not settled:
            # Nobody has to count on who goes anyhow, as the library does not on who is no less important.
            yield from self._takes(state, settled, pod, beside=True)
        if not awaited:
            yield from self._takes(state, settled, pod)
            yield from self._defragments(state, settled, pod)

    def promises(self, settled: State, pod: int, node: int) -> bool:
        """Whether a node is a pod's once all have left who have to go, beside all claims that it heeds."""
        return self.fits(settled, pod, node) and self.admitted(settled, pod, claims=True)

    def _sent(self, state: State, pods: Sequence[int]) -> dict[int, int]:
        """Tell where pods are once they have been told to go."""
        return {one: LEAVING + state[one] if self.rules.graceful else self._out for one in pods}

    def _takes(self, state: State, settled: State, pod: int, *, beside: bool = False) -> Iterator[LoopStep]:
        """Evict others for a pod: the fewest of each kind that make room and get it admitted.

        Perhaps beside those who go anyhow.
        """
        running = [one for one, at in enumerate(settled) if 0 <= at < LEAVING]
        for rule, allowed in (("preempts", self._preempted), ("reclaims", self._reclaimed)):
            alone = [one for one in running if allowed(settled, pod, (one,))]
            for node in range(len(self.world.nodes) if alone else 0):
                enough: list[set[int]] = []
                for size in range(1, len(alone) + 1):
                    for some in combinations(alone, size):
                        if any(less <= set(some) for less in enough) or not allowed(settled, pod, some):
                            continue
                        left = _with(settled, dict.fromkeys(some, WAITS))
                        now = _with(state, dict.fromkeys(some, WAITS)) if beside else left
                        if self.promises(left, pod, node) and self.fits_now(now, left, pod, node):
                            enough.append(set(some))
                            after = _with(state, self._sent(state, some) | {pod: NOMINATED + node})
                            yield LoopStep(rule, pod, node, some, state, after)

    def _defragments(self, state: State, settled: State, pod: int) -> Iterator[LoopStep]:
        """Have others make way for a pod who all fit elsewhere: the fewest."""
        how = self.rules.defragment
        if how is Defragments.NOBODY or not self.admitted(settled, pod, claims=True):
            return
        nodes = range(len(self.world.nodes))
        for node in nodes:
            there = [one for one, at in enumerate(settled) if at == node]
            others = [at for at in nodes if at != node]
            enough: list[set[int]] = []
            for size in range(1, len(there) + 1):
                for some in combinations(there, size):
                    if any(less <= set(some) for less in enough):
                        continue
                    for ends in product(others, repeat=size):
                        moved = _with(settled, dict(zip(some, ends, strict=True)))
                        if not self._all_hold(moved, set(ends)) or not self.promises(moved, pod, node):
                            continue
                        enough.append(set(some))
                        out = self._sent(state, some)
                        if how is Defragments.MOVES:
                            out = dict(zip(some, ends, strict=True))
                        after = _with(state, out | {pod: NOMINATED + node})
                        yield LoopStep("makes way", pod, node, some, state, after)

    def _all_hold(self, state: State, nodes: Collection[int]) -> bool:
        """Whether nodes hold what runs on them beside all room that is kept there, for whomever."""
        return all(
            self.load(state, node) + self._claimed(state, node) <= self.world.nodes[node] for node in nodes
        )

    def _claimed(self, state: State, node: int) -> int:
        return sum(self._amounts[one] for one, at in enumerate(state) if at == NOMINATED + node)

    def _preempted(self, state: State, pod: int, victims: Sequence[int]) -> bool:
        rules, priorities, quotas = self.rules, self._priorities, self._quotas
        mine = quotas[pod]
        if rules.preemption is Preempts.NOBODY or any(priorities[one] >= priorities[pod] for one in victims):
            return False
        if rules.preemption is Preempts.OWN_QUOTA:
            return all(quotas[one] == mine for one in victims)
        if not rules.promises or self.within(state, pod):
            return True
        others = [one for one in victims if quotas[one] not in (-1, mine)]
        return all(self._lent(state, one, pod) for one in others)

    def _reclaimed(self, state: State, pod: int, victims: Sequence[int]) -> bool:
        how, mine = self.rules.reclaim, self._quotas[pod]
        if how is Reclaims.NOBODY or mine < 0 or any(self._quotas[one] in (-1, mine) for one in victims):
            return False
        if how is Reclaims.BEYOND_MIN:
            above = self._beyond(state, pod)
            if mine in above or any(not set(above) <= set(self._chains[one]) for one in victims):
                return False  # where a quota above would go beyond its min, others below it have to give
            return self._given_back(state, pod, victims)
        own = self.used(state, mine)
        if how is Reclaims.LARGER_SHARE:
            return all(
                _larger(self.used(state, self._quotas[one]), self._least(one), own, self._least(pod))
                for one in victims
            )
        after = _with(state, dict.fromkeys(victims, WAITS))
        own += self._amounts[pod]
        return all(
            not _larger(own, self._least(pod), self.used(after, self._quotas[one]), self._least(one))
            for one in victims
        )

    def _least(self, pod: int) -> int:
        return self.world.quotas[self._quotas[pod]][0]

    def _lost(self, state: State, victim: int, pod: int) -> int:
        """How much within a min a victim has, its quota's or one's above that is not above the pod as well.

        A claim fills none of it before it runs.
        """
        return max(
            (
                self._lost_of(state, victim, quota)
                for quota in self._chains[victim]
                if quota not in self._chains[pod]
            ),
            default=0,
        )

    def _lost_of(self, state: State, victim: int, quota: int) -> int:
        left = self.world.quotas[quota][0]
        for one in self._members[quota]:
            if one == victim:
                break
            if 0 <= state[one] < LEAVING:
                left -= self._amounts[one]
        return max(0, min(left, self._amounts[victim]))

    def _lent(self, state: State, victim: int, pod: int) -> bool:
        """Whether a pod runs on what its quota uses beyond its min: all of it, or by the old rule a part."""
        lost = self._lost(state, victim, pod)
        return not lost if self.rules.partly else lost < self._amounts[victim]

    def _given_back(self, state: State, pod: int, victims: Sequence[int]) -> bool:
        """Whether victims lie beyond their quotas' min; in part is enough for who is no more important.

        What those as important as the pod lose within their min has to be less than the pod gains.
        """
        gain, mine = self._amounts[pod], self._priorities[pod]
        for one in victims:
            lost = self._lost(state, one, pod)
            if lost >= self._amounts[one]:
                return False
            if lost and self.rules.partly:
                if self._priorities[one] > mine:
                    return False
                gain -= lost if self._priorities[one] == mine else 0
        return gain > 0

    def _revokes(self, state: State, settled: State) -> Iterator[LoopStep]:
        for quota, (_, most) in enumerate(self.world.quotas):
            if quota not in self.world.above and self.used(settled, quota) > most:
                one = next(one for one in reversed(self._members[quota]) if 0 <= settled[one] < LEAVING)
                after = _with(state, self._sent(state, (one,)))
                yield LoopStep("revokes", one, state[one], (one,), state, after)

    def _moves(self, state: State, pod: int, at: int) -> Iterator[LoopStep]:
        if not (self.rules.spread or self.rules.pack):
            return
        for node in range(len(self.world.nodes)):
            # Nobody moves to room that is kept, for whomever.
            here, there = self.load(state, at), self.load(state, node) + self._amounts[pod]
            if node == at or there + self._claimed(state, node) > self.world.nodes[node]:
                continue
            if (self.rules.spread and there < here) or (self.rules.pack and there > here):
                yield LoopStep("moves", pod, node, (pod,), state, _with(state, {pod: node}))


def starts(world: LoopWorld) -> Iterator[State]:
    """Give every way to place the pods within what the nodes have."""

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
