"""Why here, why not there, what would help."""

from koordcore.explain.pod import Explanation, Help, NodeVerdict, explain

__all__ = ["Explanation", "Help", "NodeVerdict", "explain"]
