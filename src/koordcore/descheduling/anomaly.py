"""Is a hot node hot for long: the anomaly detector as a value (``utils/anomaly``)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.durations import MINUTE
from koordcore.model.rebalance import AnomalyCondition

_DEFAULT: Final = AnomalyCondition()


class DetectorState(StrEnum):
    """What a detector thinks of its node."""

    OK = "ok"
    ANOMALY = "anomaly"


@record(kw_only=True)
class Detector:
    """Counts sightings of one node.

    Parameters
    ----------
    condition
        How many sightings change the state, and how long an anomaly lasts.
    state, abnormal, normal
        The state and the sightings of either kind in a row.
    expires
        Moment (nanoseconds) after which an anomaly is forgotten.
    touched
        Moment of the last use.
    """

    condition: AnomalyCondition = _DEFAULT
    state: DetectorState = DetectorState.OK
    abnormal: int = 0
    normal: int = 0
    expires: int = 0
    touched: int = 0

    def at(self, now: int) -> Detector:
        """Give the state at a moment: an anomaly that has run out, or was normal long enough, is over."""
        if self.state is DetectorState.ANOMALY and (
            self.expires < now or self.normal > self.condition.consecutive_normalities
        ):
            return self.cleared(now)
        return attrs.evolve(self, touched=now)

    def cleared(self, now: int) -> Detector:
        """Give a detector that has seen nothing."""
        return attrs.evolve(self, state=DetectorState.OK, abnormal=0, normal=0, touched=now)

    def seen(self, *, abnormal: bool, now: int) -> Detector:
        """Count one sighting.

        More abnormal ones in a row than the condition allows make an anomaly, which further ones do not
        prolong; enough normal ones end it.
        """
        one = self.at(now)
        if abnormal:
            one = attrs.evolve(one, abnormal=one.abnormal + 1, normal=0)
            over = one.abnormal > one.condition.consecutive_abnormalities
            if one.state is DetectorState.OK and over:
                timeout = one.condition.timeout
                lasts = timeout if timeout > 0 else MINUTE
                one = attrs.evolve(one.cleared(now), state=DetectorState.ANOMALY, expires=now + lasts)
            return one
        one = attrs.evolve(one, normal=one.normal + 1, abnormal=0)
        over = one.normal > one.condition.consecutive_normalities
        return one.cleared(now) if one.state is DetectorState.ANOMALY and over else one

    def reset(self, now: int) -> Detector:
        """End an anomaly; sightings counted towards one stay, as upstream keeps them."""
        one = self.at(now)
        return one.cleared(now) if one.state is DetectorState.ANOMALY else one


_NONE: Final[immutabledict[str, Detector]] = immutabledict()


@record
class Detectors:
    """The detectors of all nodes, by name; those not touched for a while are forgotten.

    Parameters
    ----------
    by_node
        Node name to detector.
    """

    by_node: immutabledict[str, Detector] = _NONE

    def live(self, now: int, timeout: int) -> Detectors:
        """Forget what was not touched for ``timeout`` nanoseconds."""
        kept = {name: one for name, one in self.by_node.items() if now - one.touched <= timeout}
        return self if len(kept) == len(self.by_node) else Detectors(immutabledict(kept))

    def seen(self, node: str, condition: AnomalyCondition, *, abnormal: bool, now: int) -> Detectors:
        """Count one sighting of a node; its detector is made at the first."""
        one = self.by_node.get(node, Detector(condition=condition))
        return Detectors(self.by_node.set(node, one.seen(abnormal=abnormal, now=now)))

    def reset(self, nodes: Iterable[str], now: int) -> Detectors:
        """End the anomalies of some nodes."""
        changed = {name: self.by_node[name].reset(now) for name in nodes if name in self.by_node}
        return Detectors(immutabledict({**self.by_node, **changed})) if changed else self

    def anomalous(self, node: str) -> bool:
        """Tell whether a node counts as abnormal."""
        one = self.by_node.get(node)
        return one is not None and one.state is DetectorState.ANOMALY


NO_DETECTORS: Final = Detectors()
