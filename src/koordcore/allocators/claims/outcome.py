"""What comes of an attempt to allocate claims on a node: a closed union, to be consumed by ``match``."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

from koordcore._record import record
from koordcore.model.certificates import Certificate
from koordcore.model.claims import ClaimAllocation


class ClaimErrorKind(StrEnum):
    """What ends an attempt without an answer (section 11)."""

    CLASS_NOT_FOUND = "class-not-found"
    CEL_COMPILE = "cel-compile"
    CEL_RUNTIME = "cel-runtime"
    ALL_INCOMPLETE = "all-incomplete"
    ALL_INVALID = "all-invalid"
    ALL_CONSTRAINT = "all-constraint"
    LIMIT = "limit"
    INVALID_POOL = "invalid-pool"
    CAPACITY = "capacity"
    DERIVED = "derived"
    FEATURE_OFF = "feature-off"
    UNSUPPORTED = "unsupported"
    NODE_SELECTOR = "node-selector"
    TIMEOUT = "timeout"


OF_SELECTORS: Final = frozenset({ClaimErrorKind.CEL_COMPILE, ClaimErrorKind.CEL_RUNTIME})
"""What selectors lead to: devices on which they err are left out as long as something fits without them."""


@record
class ClaimError:
    """Nothing can be said about the claims: an object of the cluster, or the claims themselves, are wrong.

    Parameters
    ----------
    on_node
        Other nodes may still answer; otherwise the claims fail on all of them.
    """

    kind: ClaimErrorKind
    text: str
    on_node: bool = False


@record(kw_only=True)
class ClaimShortfall:
    """What one request lacks on a node.

    Parameters
    ----------
    claim, request
        Name of the claim, and ``main`` or ``main/sub``; several with ``and`` between them where they stand in
        each other's way.
    reason
        What stands in the way.
    wanted
        Devices asked for.
    suitable
        Devices that the request could have if nobody held any.
    free
        Devices of these that one request could have now, all at once; of several requests, each taken alone.
    """

    claim: str
    request: str
    reason: str
    wanted: int
    suitable: int
    free: int

    def __str__(self) -> str:
        return f"claim {self.claim}, request {self.request}: {self.reason}"


@record
class ClaimsAllocated:
    """The claims fit.

    Parameters
    ----------
    allocations
        One per claim, in their order.
    certificate
        How good the choice is: places of the alternatives taken, devices with binding conditions, options
        lost; ``None`` in first-fit mode, which makes no claim.
    """

    allocations: tuple[ClaimAllocation, ...]
    certificate: Certificate | None = None


@record
class ClaimsRefused:
    """It is proven that the claims do not fit.

    Parameters
    ----------
    shortfalls
        What each request that cannot be served lacks; where every request could be served alone, one entry
        for those that stand in each other's way. Empty in an answer of ``choose_devices``.
    """

    shortfalls: tuple[ClaimShortfall, ...] = ()


ClaimOutcome: TypeAlias = ClaimsAllocated | ClaimsRefused | ClaimError
