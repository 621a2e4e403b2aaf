"""How many pods of a workload may be away at once."""

from __future__ import annotations

import re
from typing import Final

from koordcore.errors import ManifestError
from koordcore.model.rebalance import Share

_MAX_DIGITS: Final = 100
_PERCENT: Final = re.compile(r"[+-]?[0-9]+\Z", re.ASCII)
_LARGEST: Final = 2**63 - 1
_MANY, _FEW = 10, 4


def check_share(share: Share) -> None:
    """Refuse a text that is no percentage, in the words of Kubernetes' ``IntOrString``.

    Raises
    ------
    ManifestError
        When the text has no percent sign at its end, or no integer before it.
    """
    if isinstance(share, str):
        _percent(share)


def _percent(text: str) -> int:
    if not text.endswith("%"):
        raise ManifestError.at("", "invalid value for IntOrString: invalid type: string is not a percentage")
    digits = text[:-1]
    shown = digits.replace("\\", "\\\\").replace('"', '\\"')
    if not _PERCENT.match(digits):
        problem = f'strconv.Atoi: parsing "{shown}": invalid syntax'
    elif len(digits) > _MAX_DIGITS or not -_LARGEST - 1 <= int(digits) <= _LARGEST:
        problem = f'strconv.Atoi: parsing "{shown}": value out of range'
    else:
        return int(digits)
    raise ManifestError.at("", f'invalid value for IntOrString: invalid value "{shown}%": {problem}')


def scaled_share(share: Share, replicas: int) -> int:
    """Take a count as it is and a percentage of the replicas rounded down (never up).

    Raises
    ------
    ManifestError
        When a text is no percentage.
    """
    if isinstance(share, int):
        return share
    return replicas * _percent(share) // 100


def max_unavailable(replicas: int, share: Share | None) -> int:
    """Compute how many pods may be unavailable, or migrating, at once.

    Rounding never gives 0: at least one pod may go, and never more than there are. Without a share it is a
    tenth of a large workload (more than 10 pods), two pods of a middling one and one of a small one
    (``GetMaxUnavailable`` and ``GetMaxMigrating`` in ``controllers/migration/util``). Negative shares pass
    through.

    Parameters
    ----------
    replicas
        Pods that the workload wants.
    share
        Count or percentage; ``None`` where the configuration says nothing.

    Raises
    ------
    ManifestError
        When a text is no percentage.

    Examples
    --------
    >>> max_unavailable(6, "80%"), max_unavailable(50, "0%"), max_unavailable(11, None), max_unavailable(0, 3)
    (4, 1, 1, 0)
    """
    if share is not None:
        limit = scaled_share(share, replicas) or 1
    elif replicas > _MANY:
        limit = scaled_share("10%", replicas)
    else:
        limit = 2 if replicas >= _FEW else 1
    return min(limit, replicas)
