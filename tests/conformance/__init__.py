"""Conformance with the reference system: cases in, verdicts out.

``python -m tests.conformance`` runs every case of every folder given. An *adapter* turns one case's input
into the library's answer; a *judge* compares the answer with what the case expects. Adapters live in
``adapters/``, one module per room, and register themselves with :func:`subject`.
"""

from tests.conformance.core import Case, Judgement, Missing, Verdict, equality, subject

__all__ = ["Case", "Judgement", "Missing", "Verdict", "equality", "subject"]
