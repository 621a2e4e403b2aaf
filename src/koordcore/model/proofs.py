"""Questions in plain integers, and what proves an answer to one of them.

A certificate carries the question that was answered and its evidence, so that
:func:`koordcore.checking.certificates.check_certificate` can repeat the proof without anything that decided.
The arrays of a question belong to whoever asked it; nobody writes to them. Questions with arrays are equal to
themselves alone, all else that stands here to what says the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from koordcore._record import record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    IntVector: TypeAlias = NDArray[np.int64]
    IntMatrix: TypeAlias = NDArray[np.int64]
    BoolVector: TypeAlias = NDArray[np.bool_]

DEEPEST: Final = 200
"""Cases within cases that a proof may have."""


@record
class LinearRow:
    """``lower <= terms <= upper``, binding only when every condition (variable, wanted value) holds.

    Parameters
    ----------
    variables, coefficients
        The expression; no variable stands twice.
    lower, upper
        Bounds, inclusive; ``None`` for none.
    conditions
        Variables of 0 or 1, each with the value that it must have for the row to bind.
    """

    variables: tuple[int, ...]
    coefficients: tuple[int, ...]
    lower: int | None
    upper: int | None
    conditions: tuple[tuple[int, bool], ...] = ()


@record
class LinearStage:
    """One part of the objective, to be minimised: constant and linear terms.

    Parameters
    ----------
    levels
        What the values 0, 1, 2, … stand for in the certificate, rising; empty where they stand for
        themselves.
    """

    terms: tuple[tuple[int, int], ...]
    constant: int = 0
    levels: tuple[int, ...] = ()


@record(kw_only=True)
class LinearProblem:
    """Integers within ranges under linear rows, to be chosen so that the stages are lexicographically least.

    Parameters
    ----------
    lower, upper
        Range of every variable, inclusive.
    rows
        What must hold.
    stages
        The parts of the objective, one for each place of the certificate.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    rows: tuple[LinearRow, ...]
    stages: tuple[LinearStage, ...] = ()


@record
class Leaf:
    """Rows added up so that nothing better is left within the ranges that lead here.

    Parameters
    ----------
    weights
        Pairs of row and weight. Rows are counted as in the problem, then come the earlier stages, each equal
        to its optimum. A positive weight takes the upper bound of a row, a negative one the lower.
    scale
        Weight of the stage itself; 0 where the sum alone shows that nothing is left at all.
    """

    weights: tuple[tuple[int, int], ...]
    scale: int


@record
class Branch:
    """Two cases: a variable is at most a value, or above it."""

    variable: int
    at: int
    below: ProofTree
    above: ProofTree


ProofTree: TypeAlias = Leaf | Branch
"""What a proof is made of: sums of rows, one for each of the cases told apart."""


@record
class LinearEvidence:
    """An answer of a linear problem, and for every stage why nothing is better.

    Parameters
    ----------
    values
        The answer; empty where there is none.
    trees
        One per stage; a single one where there is no answer.
    """

    values: tuple[int, ...]
    trees: tuple[ProofTree, ...]


@record
class EvictionEvidence:
    """Who leaves: places among the pods that may, shape (victims,)."""

    leaving: tuple[int, ...]


Evidence: TypeAlias = LinearEvidence | EvictionEvidence
"""An answer, and what shows that nothing is better where that does not follow from the question alone."""


@record(eq=False, kw_only=True)
class TreeProblem:
    """Equal members to be put on the leaves of a tree, gathered as well as possible.

    The objective has these parts, all to be minimised: members placed, negated; domains opened, per depth in
    ``order``, and behind a depth of ``even`` the squares of the members of its domains, bound ones included,
    less the squares of the bound ones alone; how far the used domains stay behind the nearest one of their
    depth, from the nodes up (absent where nothing is near); slots of the used domains, from the nodes up;
    what the members are worth, negated (absent without ``worth``). Slots of a domain are those of its
    children, rounded down so that with the bound members they are a multiple.

    Parameters
    ----------
    parent
        Parent of every domain, those above first; the root is 0, shape (T,).
    depth
        Depth of every domain, shape (T,); the leaves are the last.
    slots, bound, near
        Of every leaf, in the order of the tree, shape (leaves,): most members that it takes; members that it
        has already; pods to be near to.
    multiples
        Per depth: the members of a domain, bound ones included, are a multiple of it.
    must_depth
        All members lie in one domain of this depth; 0 for no such rule, -1 for a layer that the tree does not
        have. Where there are bound members the domain has some of them.
    order
        Depths in the order in which opened domains count; one with bound members is open already.
    least, size
        Members that must be placed at least, and at most.
    even
        Depths over whose domains members lie as evenly as they can.
    snug
        How many leaves are opened counts behind the slots of the used domains; then the leaves stand last in
        ``order``.
    worth
        What a member is worth on each leaf, shape (leaves,); ``None`` for nothing.
    """

    parent: IntVector
    depth: IntVector
    slots: IntVector
    bound: IntVector
    near: IntVector
    multiples: tuple[int, ...]
    must_depth: int
    order: tuple[int, ...]
    least: int
    size: int
    even: tuple[int, ...] = ()
    worth: IntVector | None = None
    snug: bool = False


@record(eq=False, kw_only=True)
class EvictionProblem:
    """Members that want room, and pods that may be evicted for them at the least damage.

    The objective is that of :class:`~koordcore.model.preemption.Damage`. A pod of a job is lost with all of
    its job once more than the job's slack leave.

    Parameters
    ----------
    request
        What each member asks for, shape (R,); all are alike.
    members
        How many have to be placed.
    free
        What is free on every node, shape (R, N); may be negative.
    most
        Members that each node takes at most, shape (N,); 0 where none may run.
    home
        Domain of every node, -1 for none, shape (N,); all members go into one of them.
    node, priority, job
        Of every pod that may leave, shape (V,).
    amounts
        What each of them gives back, shape (R, V).
    slack
        Pods of every job that may leave without breaking it, shape (J,).
    breakable
        Which jobs may be broken, shape (J,).
    rest
        What is left to choose once the highest priority is known to be needed, where counting does not say
        more; over the same objective.
    restart
        What restarting each pod costs, shape (V,); ``None`` for nothing.
    """

    request: IntVector
    members: int
    free: IntMatrix
    most: IntVector
    home: IntVector
    node: IntVector
    priority: IntVector
    job: IntVector
    amounts: IntMatrix
    slack: IntVector
    breakable: BoolVector
    rest: LinearProblem | None = None
    restart: IntVector | None = None


@record(eq=False, kw_only=True)
class CoolingProblem:
    """Hosts that use too much, and pods that may leave them.

    The objective has these parts, all to be minimised: hosts that stay hot; what exceeds their limits then,
    in permille of their shares, each resource of a host rounded up; pods that move; what moving them costs.
    Where the pods go is left out, so that this is a bound.

    Parameters
    ----------
    excess
        What each host uses beyond its limits, shape (R, H); not positive where it does not.
    share
        What the permille are taken of, shape (R, H); at least 1.
    host, cost
        Of every pod that may leave, shape (V,). Costs are not negative.
    amounts
        What each of them uses, shape (R, V).
    """

    excess: IntMatrix
    share: IntMatrix
    host: IntVector
    cost: IntVector
    amounts: IntMatrix


@record(eq=False, kw_only=True)
class VacatingProblem:
    """Slots to be made free on the hosts of one block, and pods that may leave them.

    The objective has these parts, all to be minimised: slots that are missing; pods that move; what moving
    them costs, which is at least 1 for each. Where the pods go is left out, so that this is a bound.

    Parameters
    ----------
    request, count
        What a slot takes, shape (R,), and how many are wanted.
    free
        What is free on every host, shape (R, H); may be negative.
    most, home
        Slots that each host may have, and its block, -1 for none, shape (H,).
    host
        Of every pod that may leave, shape (V,).
    amounts
        What each of them gives back, shape (R, V).
    """

    request: IntVector
    count: int
    free: IntMatrix
    most: IntVector
    home: IntVector
    host: IntVector
    amounts: IntMatrix


Problem: TypeAlias = LinearProblem | TreeProblem | EvictionProblem | CoolingProblem | VacatingProblem
"""What a proof is about."""
