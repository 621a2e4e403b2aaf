"""What may be asked of a class of pods as a whole, whatever the nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from koordcore.framework.evaluator import Scope
from koordcore.framework.plugin import Plugin

if TYPE_CHECKING:
    from koordcore.framework.roles import Roles
    from koordcore.framework.static_result import Part


class ClassQuestions:
    """What the parts of a class of pods say of themselves.

    Attributes
    ----------
    parts
        Plugins that have something to say about the pods, in filter order.
    """

    parts: list[Part]
    _roles: Roles

    @property
    def looks_elsewhere(self) -> bool:
        """A filter looks at more than the node in question."""
        return bool(self._roles.cluster_filters)

    @property
    def heeds_unnamed(self) -> bool:
        """Such a filter does not name who is in the way on other nodes (:meth:`Plugin.reaching`)."""
        return any(type(part.owner).reaching is Plugin.reaching for part in self._roles.cluster_filters)

    @property
    def undercounts(self) -> bool:
        """Nodes may take more such pods together than was told last."""
        return any(part.setting.filters and part.evaluator.undercounts for part in self.parts)

    @property
    def shares(self) -> bool:
        """A filter may let the pod share on a node what others have brought there."""
        return any(part.setting.filters and part.evaluator.shares() for part in self.parts)

    @property
    def needs_company(self) -> bool:
        """A filter may take more once other pods have come."""
        return any(part.setting.filters and part.evaluator.needs_company() for part in self.parts)

    @property
    def counts_beyond_amounts(self) -> bool:
        """A filter other than that of amounts looks at what runs on a node or in the cluster."""
        filters = (part.evaluator for part in self.parts if part.setting.filters)
        counting = (one for one in filters if one.scope is not Scope.STATIC and "fits" in one.answers)
        return any(one.amounts is None for one in counting)
