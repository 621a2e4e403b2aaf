"""Policies that place tasks on nodes with cards: the six of the FGD experiment, and ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from inspect import signature
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias, runtime_checkable

import numpy as np

from koordcore._blame import shown
from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.scoring.foresight import Foresight
from koordcore.scoring.fragmentation import (
    FragmentationGradient,
    FragmentationMeasure,
    WorkloadMix,
    score_best_fit,
    score_dot_product,
    score_gpu_clustering,
    score_gpu_packing,
)
from koordcore.scoring.gpu_share import GpuDemand, GpuNode, first_free_slots, fullest_slots


class PolicyName(StrEnum):
    """What can be asked for by name."""

    RANDOM = "random"
    DOT_PRODUCT = "dotprod"
    GPU_CLUSTERING = "gpuclustering"
    GPU_PACKING = "gpupacking"
    BEST_FIT = "bestfit"
    FGD = "fgd"
    FORESIGHT = "foresight"


@runtime_checkable
class ScoredPolicy(Protocol):
    """Takes the node with the highest score, the first one in the order of ranks among equals."""

    def score(self, node: GpuNode, demand: GpuDemand) -> int:
        """Rate a node on which the task fits, by a whole number between -2^62 and 2^62.

        Equal nodes and demands must give equal scores.
        """

    def slots(self, node: GpuNode, demand: GpuDemand) -> tuple[int, ...]:
        """Choose the cards on the node that was taken."""


@runtime_checkable
class DrawnPolicy(Protocol):
    """Draws among the nodes that fit, without rating them."""

    def draw(self, turn: int, nodes: int) -> int:
        """Choose one of ``nodes`` in the given turn, counted from 0."""

    def drawn_slots(self, turn: int, node: GpuNode, demand: GpuDemand) -> tuple[int, ...]:
        """Choose the cards."""


GpuPolicy: TypeAlias = ScoredPolicy | DrawnPolicy
_BOUND: Final = 1 << 62


@record
class _Scored:
    """A score that reads nothing but node and demand, with the fullest card for a share."""

    rate: Callable[[GpuNode, GpuDemand], int]

    def score(self, node: GpuNode, demand: GpuDemand) -> int:
        return self.rate(node, demand)

    def slots(self, node: GpuNode, demand: GpuDemand) -> tuple[int, ...]:
        return fullest_slots(node, demand)


_WORD: Final = (1 << 64) - 1


def mixed(seed: int, turn: int) -> int:
    """Scramble a seed and a counter into 64 bits (SplitMix64): the same on every machine and for ever."""
    word = (seed * 0xD1342543DE82EF95 + (turn + 1) * 0x9E3779B97F4A7C15) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


def below(bound: int, seed: int, turn: int) -> int:
    """Draw a number from 0 up to ``bound`` - 1; the bias is under ``bound`` / 2^64.

    Parameters
    ----------
    bound
        At least 1.
    seed, turn
        What the number is drawn from: the same give the same.
    """
    return mixed(seed, turn) * bound >> 64


@record
class _Random:
    """Every node that fits is as likely as any other, and so is every card for a share."""

    seed: int

    def draw(self, turn: int, nodes: int) -> int:
        return below(nodes, self.seed, 2 * turn)

    def drawn_slots(self, turn: int, node: GpuNode, demand: GpuDemand) -> tuple[int, ...]:
        if not demand.shared:
            return first_free_slots(node, demand)
        fitting = [slot for slot, left in enumerate(node.cards) if left >= demand.milli]
        return (fitting[below(len(fitting), self.seed, 2 * turn + 1)],)


def _fgd(mix: WorkloadMix, _nodes: Sequence[GpuNode], _seed: int) -> GpuPolicy:
    return FragmentationGradient(FragmentationMeasure(mix.typical()))


def _foresight(mix: WorkloadMix, nodes: Sequence[GpuNode], _seed: int) -> GpuPolicy:
    return Foresight(mix, nodes)


_MAKERS: Final[Mapping[PolicyName, Callable[[WorkloadMix, Sequence[GpuNode], int], GpuPolicy]]] = (
    MappingProxyType(
        {
            PolicyName.RANDOM: lambda _mix, _nodes, seed: _Random(seed),
            PolicyName.DOT_PRODUCT: lambda _mix, _nodes, _seed: _Scored(score_dot_product),
            PolicyName.GPU_CLUSTERING: lambda _mix, _nodes, _seed: _Scored(score_gpu_clustering),
            PolicyName.GPU_PACKING: lambda _mix, _nodes, _seed: _Scored(score_gpu_packing),
            PolicyName.BEST_FIT: lambda _mix, _nodes, _seed: _Scored(score_best_fit),
            PolicyName.FGD: _fgd,
            PolicyName.FORESIGHT: _foresight,
        }
    )
)


_LIBRARY: Final = frozenset({_Scored, _Random, FragmentationGradient, Foresight})


@record(eq=False)
class OwnScored:
    """A policy of one's own whose answers are looked at, since wrong ones would be misread in silence."""

    policy: ScoredPolicy

    def score(self, node: GpuNode, demand: GpuDemand) -> int:
        """Rate a node as the policy does, by a whole number."""
        found: object = self.policy.score(node, demand)
        if type(found) is int and -_BOUND < found < _BOUND:
            return found
        if isinstance(found, int | np.integer) and -_BOUND < found < _BOUND:
            return int(found)
        raise _misread(self.policy, "score", "a whole number between -2^62 and 2^62", found)

    def slots(self, node: GpuNode, demand: GpuDemand) -> tuple[int, ...]:
        """Choose cards as the policy does, of those that will do."""
        return _own_slots(self.policy, "slots", node, demand, self.policy.slots(node, demand))


@record(eq=False)
class _OwnDrawn:
    """The same for one that draws."""

    policy: DrawnPolicy

    def draw(self, turn: int, nodes: int) -> int:
        found: object = self.policy.draw(turn, nodes)
        if not isinstance(found, int | np.integer) or not 0 <= found < nodes:
            raise _misread(self.policy, "draw", f"a whole number from 0 to {nodes - 1}", found)
        return int(found)

    def drawn_slots(self, turn: int, node: GpuNode, demand: GpuDemand) -> tuple[int, ...]:
        return _own_slots(
            self.policy, "drawn_slots", node, demand, self.policy.drawn_slots(turn, node, demand)
        )


def _own_slots(
    policy: GpuPolicy, question: str, node: GpuNode, demand: GpuDemand, found: object
) -> tuple[int, ...]:
    slots = tuple(found) if isinstance(found, Iterable) else ()
    fitting = [slot for slot, left in enumerate(node.cards) if left >= demand.milli]
    known = len(slots) == demand.gpus and all(slot in fitting for slot in slots)
    if not known or len(set(slots)) < len(slots):
        asked = f"{demand.gpus} different cards of {node.name} with {demand.milli} milli left"
        raise _misread(policy, question, asked, found)
    return tuple(map(int, slots))


def _misread(policy: GpuPolicy, question: str, expected: str, found: object) -> ModelError:
    return ModelError(f"policy {type(policy).__name__}: {question}: expected {expected}, got {shown(found)}")


def looked_at(policy: GpuPolicy) -> GpuPolicy:
    """Give a policy such that a wrong answer of one's own ends in a ModelError; the library's as they are."""
    if type(policy) in _LIBRARY:
        return policy
    return _OwnDrawn(policy) if isinstance(policy, DrawnPolicy) else OwnScored(policy)


PolicyLike: TypeAlias = str | GpuPolicy | Callable[..., GpuPolicy]
"""A name, a policy, or a class or function that makes one."""


def make_policy(
    name: PolicyLike, mix: WorkloadMix, *, nodes: Sequence[GpuNode] = (), seed: int = 0
) -> GpuPolicy:
    """Make a policy: one of the library's by its name, or one of your own.

    Parameters
    ----------
    name
        A :class:`PolicyName` or its text; or a policy, which is taken as it is; or a class or function that
        makes one and is called with those of ``mix``, ``nodes`` and ``seed`` that it has parameters for.
    mix
        All the work to be expected; only some policies look at it.
    nodes
        The cluster at the start; only ``foresight`` looks at it.
    seed
        Only ``random`` looks at it.

    Raises
    ------
    ModelError
        When no policy has that name, or what was made is no policy.
    """
    if isinstance(name, str):
        if name not in tuple(PolicyName):
            near = get_close_matches(name, tuple(PolicyName), 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(PolicyName)}"
            raise ModelError(f"no policy {name}{hint}")
        return _MAKERS[PolicyName(name)](mix, nodes, seed)
    if not isinstance(name, type) and isinstance(name, ScoredPolicy | DrawnPolicy):
        return name
    given = {"mix": mix, "nodes": nodes, "seed": seed}
    made = _called(name, given)
    if not isinstance(made, ScoredPolicy | DrawnPolicy):
        label = getattr(name, "__name__", name)
        raise ModelError(f"{label}: no policy: score and slots, or draw and drawn_slots")
    return made


def _called(make: object, given: Mapping[str, object]) -> object:
    """Call a maker with what it has parameters for; ``None`` where Python cannot say which, or it is none."""
    if not callable(make):
        return None
    try:
        wanted = signature(make).parameters
    except ValueError:
        return None
    missing = [
        name
        for name, one in wanted.items()
        if one.default is one.empty
        and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
        and (name not in given or one.kind is one.POSITIONAL_ONLY)
    ]
    if missing:
        label, known = getattr(make, "__name__", make), ", ".join(given)
        raise ModelError(f"{label}: cannot be made: nobody gives it {', '.join(missing)}; there are {known}")
    return make(**{name: given[name] for name in wanted if name in given})
