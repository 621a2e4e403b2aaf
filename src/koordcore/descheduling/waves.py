"""In which order moves are carried out so that nothing is asked for too much at any step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from koordcore.descheduling.moves import Movable, MoveProblem
from koordcore.errors import ModelError
from koordcore.model.moves import Move
from koordcore.model.pods import PodKey


def in_waves(problem: MoveProblem, targets: Mapping[PodKey, str]) -> tuple[Move, ...] | None:
    """Order moves so that no node is asked for more than it has at any step, and no limit is passed.

    All moves of a wave may be carried out together: a target has room for them before anything of that wave
    has left, and no node both takes and gives in one wave, so devices and CPUs are not counted on before
    they are free. Where an order allows it, no node gets hot on the way either. Where moves wait for each
    other in a ring, the cheapest pod of them leaves first and starts again once there is room.

    Parameters
    ----------
    problem
        The hosts before any move, and what may be on its way at once.
    targets
        Pod to the node that it moves to. Targets in an order in which they could be carried out one by one
        are always carried out without rings.

    Returns
    -------
    tuple of Move or None
        By wave, then by pod; ``None`` where a ring needs more pods on their way than the limits allow.
    """
    steps = _Steps(problem, targets)
    while steps.waiting:
        going = steps.ready(claims=True, cool=True) or steps.ready(cool=True) or steps.ready()
        if going:
            steps.carry_out(going)
        elif not steps.take_down():
            return None
        steps.wave += 1
    return tuple(sorted(steps.moves, key=lambda move: (move.arrives, move.pod)))


def wave_prices(problem: MoveProblem, moves: Sequence[Move]) -> tuple[int, ...]:
    """Give the cost of the moves that arrive in each wave."""
    costs = {one.pod: one.cost for one in problem.movable}
    prices = [0] * (max((move.arrives for move in moves), default=-1) + 1)
    for move in moves:
        prices[move.arrives] += costs[move.pod]
    return tuple(prices)


class _Steps:
    """The cluster while moves are carried out; private to one call."""

    def __init__(self, problem: MoveProblem, targets: Mapping[PodKey, str]) -> None:
        self._targets = targets
        self._movable = {one.pod: one for one in problem.movable if one.pod in targets}
        touched = {*targets.values(), *(one.node for one in self._movable.values())}
        self._hosts = {host.name: host for host in problem.hosts if host.name in touched}
        self._requested = {name: dict(host.requested) for name, host in self._hosts.items()}
        self._usage = {name: dict(host.usage) for name, host in self._hosts.items()}
        self._most = [group.most for group in problem.at_once]
        self._groups: dict[PodKey, list[int]] = {}
        for index, group in enumerate(problem.at_once):
            for pod in group.pods:
                self._groups.setdefault(pod, []).append(index)
        self._down: dict[PodKey, int] = {}
        self.waiting = list(targets)
        self.moves: list[Move] = []
        self.wave = 0

    def ready(self, *, claims: bool = False, cool: bool = False) -> list[PodKey]:
        """List the moves of the next wave, in the order of the targets.

        Parameters
        ----------
        claims
            A move that has to wait keeps others from taking the room that it waits for.
        cool
            Targets stay below their thresholds, too.
        """
        asked: dict[str, Counter[str]] = {}
        used: dict[str, Counter[str]] = {}
        taking, giving = set[str](), set[str]()
        busy = Counter(group for key in self._down for group in self._groups.get(key, ()))
        going = []
        for key in self.waiting:
            one, target = self._movable[key], self._targets[key]
            more, heat = asked.setdefault(target, Counter()), used.setdefault(target, Counter())
            fits = self._fits(one, target, more) and not (cool and self._heats(one, target, heat))
            moving = key not in self._down
            apart = target not in giving and not (moving and one.node in taking)
            groups = self._groups.get(key, ()) if moving else ()
            free = all(busy[group] < self._most[group] for group in groups)
            if fits and apart and free:
                going.append(key)
                taking.add(target)
                busy.update(groups)
                if moving:
                    giving.add(one.node)
            elif not claims:
                continue
            more.update(one.requests)
            heat.update(one.usage)
        return going

    def _fits(self, one: Movable, target: str, more: Mapping[str, int]) -> bool:
        now, room = self._requested[target], self._hosts[target].allocatable
        return all(
            now.get(name, 0) + more.get(name, 0) + amount <= room.get(name, 0)
            for name, amount in one.requests.items()
            if amount
        )

    def _heats(self, one: Movable, target: str, more: Mapping[str, int]) -> bool:
        now = self._usage[target]
        return any(
            now.get(name, 0) + more.get(name, 0) + one.usage.get(name, 0) > limit
            for name, limit in self._hosts[target].high.items()
        )

    def carry_out(self, going: list[PodKey]) -> None:
        """Let all of these arrive, and those leave that stand yet."""
        for key in going:
            one, target = self._movable[key], self._targets[key]
            leaves = self._down.get(key, self.wave)
            self.moves.append(Move(pod=key, source=one.node, target=target, leaves=leaves, arrives=self.wave))
            self._change(target, one, 1)
            if key not in self._down:
                self._change(one.node, one, -1)
            self._down.pop(key, None)
        gone = set(going)
        self.waiting = [key for key in self.waiting if key not in gone]

    def take_down(self) -> bool:
        """Let the cheapest pod leave that may; ``False`` where the limits let none."""
        standing = [key for key in self.waiting if key not in self._down]
        if not standing:
            raise ModelError("the moves end with a node that is asked for more than it has")
        busy = Counter(group for key in self._down for group in self._groups.get(key, ()))
        free = [
            key
            for key in standing
            if all(busy[group] < self._most[group] for group in self._groups.get(key, ()))
        ]
        if not free:
            return False
        first = min(free, key=lambda key: (self._movable[key].cost, key))
        self._down[first] = self.wave
        self._change(self._movable[first].node, self._movable[first], -1)
        return True

    def _change(self, node: str, one: Movable, sign: int) -> None:
        for now, amounts in ((self._requested[node], one.requests), (self._usage[node], one.usage)):
            for name, amount in amounts.items():
                now[name] = now.get(name, 0) + sign * amount
