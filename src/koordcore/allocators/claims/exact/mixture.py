"""Numbers of equal entities by option, as a small integer program (pattern formulation of cutting stock)."""

from __future__ import annotations

from collections.abc import Sequence

from koordcore._cpsat import OutcomeStatus, Program, solve
from koordcore.allocators.claims.exact.entities import Option, TooMany
from koordcore.allocators.claims.table import bits
from koordcore.model.certificates import Limits

_LIMITS = Limits(deterministic_time=5.0)


def mix(
    options: Sequence[tuple[Option, ...]], plain: Sequence[int], wanted: Sequence[int]
) -> tuple[list[int], list[list[int]]] | None:
    """Choose an option for each entity so that everything wanted is served.

    Parameters
    ----------
    options
        By entity; equal entities, which stand behind each other, have the very same tuple.
    plain
        By type: devices that stand for themselves.
    wanted
        By type: how many devices.

    Returns
    -------
    tuple of list of int and list of list of int, or None
        Option by entity, and plain devices by type; ``None`` where it is proven that there is no choice.

    Raises
    ------
    TooMany
        When the budget ends without an answer.
    """
    program = Program()
    groups: list[tuple[tuple[Option, ...], list[int]]] = []
    for place, mine in enumerate(options):
        if groups and groups[-1][0] is mine:
            groups[-1][1].append(place)
        else:
            groups.append((mine, [place]))
    counts = [[program.integer(0, len(places)) for _ in mine] for mine, places in groups]
    for (_, places), variables in zip(groups, counts, strict=True):
        program.require([(one, 1) for one in variables], at_most=len(places))
    classes = _plain_classes(plain)
    shares = {
        (kind, number): program.integer(0, len(devices))
        for number, (kinds, devices) in enumerate(classes)
        for kind in kinds
    }
    for number, (kinds, devices) in enumerate(classes):
        program.require([(shares[kind, number], 1) for kind in kinds], at_most=len(devices))
    for kind, count in enumerate(wanted):
        terms = [
            (variable, option.vector[kind])
            for (mine, _), variables in zip(groups, counts, strict=True)
            for option, variable in zip(mine, variables, strict=True)
        ]
        terms += [(variable, 1) for (one, _), variable in shares.items() if one == kind]
        program.require(terms, at_least=count)
    outcome = solve(program, limits=_LIMITS)
    if outcome.status is OutcomeStatus.INFEASIBLE:
        return None
    if not outcome.solved:
        raise TooMany
    chosen = [0] * len(options)
    for (_, places), variables in zip(groups, counts, strict=True):
        free = iter(places)
        for number, variable in enumerate(variables):
            for _ in range(outcome.values[variable]):
                chosen[next(free)] = number
    given: list[list[int]] = [[] for _ in wanted]
    for number, (kinds, devices) in enumerate(classes):
        rest = list(devices)
        for kind in kinds:
            for _ in range(outcome.values[shares[kind, number]]):
                given[kind].append(rest.pop(0))
    return chosen, given


def _plain_classes(plain: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    found: dict[tuple[int, ...], list[int]] = {}
    everything = 0
    for mask in plain:
        everything |= mask
    for device in bits(everything):
        kinds = tuple(kind for kind, mask in enumerate(plain) if mask >> device & 1)
        found.setdefault(kinds, []).append(device)
    return [(list(kinds), devices) for kinds, devices in found.items()]
