"""Plugins of one's own under guard: what they do wrongly is named, before it decides anything.

An answer of the wrong shape would be stretched over all nodes without a word, and an exception of Python's
own would not say whose it is. The library's own plugins go unguarded: a look at each answer costs time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Final, cast

import numpy as np

from koordcore.errors import KoordcoreError, ManifestError, ModelError
from koordcore.framework.evaluator import Evaluator, Refusal, Reserved
from koordcore.framework.plugin import Plugin
from koordcore.model.decisions import Shortfall

_ASKED_OF_PLUGINS: Final = (
    *("placed", "removed", "follow", "moved", "rereads", "preferred", "remarks", "match", "tied"),
    *("together", "ways", "countable", "outranks", "may_preempt", "refuse_beside", "evicted"),
)
_KNOWN: Final = 1024
"""Classes that are remembered: some make one for each evaluator."""
_TRUTHS: Final = frozenset({"fits", "unresolvable"})
_ASKED: Final = ("sources", "lacks", "together", "needs_company")


def misshapen(question: str, answer: object, number: int, kind: type, *, joined: bool = False) -> str:
    """Say what is wrong with an answer about some nodes; empty where it is an array of the right kind.

    Parameters
    ----------
    question
        What was asked.
    number
        How many nodes it was asked about.
    kind
        ``np.bool_`` for truth values, ``np.integer`` for whole numbers.
    joined
        It may have a row for each of several classes, ``(C, n)``.
    """
    if isinstance(answer, np.ndarray):
        shape = answer.shape[1:] if joined and answer.ndim == 2 else answer.shape
        # An array that is made of no nodes is one of floats, whatever it would have held.
        if shape == (number,) and (not number or np.issubdtype(answer.dtype, kind)):
            return ""
    shown = repr(answer)
    if isinstance(answer, np.ndarray):
        shown = f"an array of {answer.dtype} of shape {answer.shape}"
    what = "truth values" if kind is np.bool_ else "whole numbers"
    return f"{question} for {number} nodes: expected {number} {what}, got {shown[:100]}"


def bare(plugin: Plugin) -> None:
    """Take a plugin out of guard, for those who look at what it does wrongly themselves."""
    if vars(type(plugin)).get("guards"):
        plugin.__class__ = type(plugin).__mro__[1]


def guarded(kind: type[Plugin], name: str) -> type[Plugin]:
    """Give a plugin's class with what it does wrongly named, under the name that the policy calls it by."""
    return _guarded(cast("Any", kind), name)


@lru_cache(maxsize=_KNOWN)
def _guarded(kind: Any, name: str) -> type[Plugin]:
    made: dict[str, Any] = {
        "guards": True,
        "name": kind.name,
        "__module__": kind.__module__,
        "__doc__": kind.__doc__,
    }

    def request_of(self: Any, pod: Any) -> Any:
        try:
            found = kind.request_of(self, pod)
            hash(found)
        except ManifestError:
            raise
        except Exception as error:
            # One pod at which a plugin chokes stops nobody else.
            return Refusal(_blame(name, "request_of", error))
        return found

    def evaluator(self: Any, pod: Any, request: Any) -> Evaluator:
        found = _named(name, "evaluator", kind.evaluator)(self, pod, request)
        if not isinstance(found, Evaluator):
            raise ModelError(f"plugin {name}: evaluator: expected an Evaluator, got {found!r:.100}")
        return _watched(found, name)

    start = _named(name, "__init__", cast("Any", kind).__init__)
    made |= {"__init__": start, "request_of": request_of, "evaluator": evaluator}
    for one in _ASKED_OF_PLUGINS:
        if getattr(kind, one) is not getattr(Plugin, one):
            made[one] = _named(name, one, getattr(kind, one))
    return type(kind.__name__, (kind,), made)


def _blame(name: str, asked: str, error: Exception) -> str:
    return f"plugin {name}: {asked}: {type(error).__name__}: {error}"


def _named(name: str, asked: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Let an exception of a method say whose it is; those of the library say enough."""

    @wraps(method)
    def call(*args: Any, **given: Any) -> Any:
        try:
            return method(*args, **given)
        except KoordcoreError:
            raise
        except Exception as error:
            raise ModelError(_blame(name, asked, error)) from error

    return call


def _watched(found: Evaluator, name: str) -> Evaluator:
    kind = type(found)
    if kind.__module__.partition(".")[0] != "koordcore" and "guards" not in vars(kind):
        try:
            found.__class__ = _watching(cast("Any", kind), name)
        except TypeError:  # its instances are laid out in a way of their own
            return found
    return found


@lru_cache(maxsize=_KNOWN)
def _watching(kind: Any, name: str) -> type[Evaluator]:
    made: dict[str, Any] = {"guards": True, "__slots__": (), "__module__": kind.__module__}
    joined = kind.together is not Evaluator.together
    own = {
        one: getattr(kind, one)
        for one in (*_CHECKS, *_ASKED)
        if getattr(kind, one) is not getattr(Evaluator, one)
    }
    for one, method in own.items():
        named = _named(name, one, method)
        made[one] = _checked(name, one, named, joined=joined) if one in _CHECKS else named
    if "allocate" in made:
        made["allocate"] = _kept(name, made["allocate"])
    return type(kind.__name__, (kind,), made)


def _checked(name: str, asked: str, method: Callable[..., Any], *, joined: bool) -> Callable[..., Any]:
    check = _CHECKS[asked]

    @wraps(method)
    def call(self: Any, *args: Any) -> Any:
        answer = method(self, *args)
        wrong = check(answer, *args, joined=joined)
        if wrong:
            raise ModelError(f"plugin {name}: {wrong}")
        if isinstance(answer, np.ndarray) and not answer.size:
            return answer.astype(np.bool_ if asked in _TRUTHS else np.int64)
        return answer

    return call


def _kept(name: str, allocate: Callable[..., Any]) -> Callable[..., Any]:
    """Hold a plugin to its word: where ``fits`` says yes there is something to give."""

    @wraps(allocate)
    def call(self: Any, pod: Any, view: Any) -> Any:
        answer = allocate(self, pod, view)
        if isinstance(answer, Shortfall):
            fits = self.fits(view)
            if fits is None or fits.all():
                raise ModelError(f"plugin {name}: allocate: {answer.reason}, and fits takes the pod there")
        return answer

    return call


def _of_nodes(question: str, kind: type) -> Callable[..., str]:
    def check(answer: Any, view: Any, *_: Any, joined: bool) -> str:
        return "" if answer is None else misshapen(question, answer, view.size, kind, joined=joined)

    return check


def _each(question: str, kind: type) -> Callable[..., str]:
    def check(answer: Any, _: Any, *, joined: bool) -> str:
        del joined
        wrong = not isinstance(answer, tuple | list) or not all(isinstance(one, kind) for one in answer)
        return f"{question}: expected a tuple of {kind.__name__}, got {answer!r:.100}" if wrong else ""

    return check


def _restriction(answer: Any, *, joined: bool) -> str:
    del joined
    if answer is None or (isinstance(answer, np.ndarray) and answer.ndim == 1 and answer.dtype == np.bool_):
        return ""
    return f"restriction: expected a truth value for each node or None, got {answer!r:.100}"


def _reasons(answer: Any, view: Any, *, joined: bool) -> str:
    del joined
    if not isinstance(answer, tuple | list):
        return f"reasons: expected a sequence of pairs, got {answer!r:.100}"
    for one in answer:
        if not isinstance(one, tuple) or len(one) != 2 or not isinstance(one[0], str):
            return f"reasons: expected pairs of a text and truth values, got {one!r:.100}"
        wrong = misshapen(f"reasons: {one[0]}", one[1], view.size, np.bool_)
        if wrong:
            return wrong
    return ""


def _normalised(answer: Any, raw: Any, feasible: Any, *, joined: bool) -> str:
    del joined
    wrong = misshapen("normalise", answer, len(raw), np.integer)
    if wrong or not len(answer):
        return wrong
    there = answer[feasible]
    if len(there) and not 0 <= there.min() <= there.max() <= 100:
        return f"normalise: scores from {there.min()} to {there.max()}, not within 0..100"
    return ""


def _a_refusal(answer: Any, *, joined: bool) -> str:
    del joined
    if answer is None or isinstance(answer, Refusal):
        return ""
    return f"refuse: expected a Refusal or None, got {answer!r:.100}"


def _given(answer: Any, *_: Any, joined: bool) -> str:
    del joined
    if answer is None or isinstance(answer, Reserved | Shortfall):
        return ""
    return f"allocate: expected a Reserved, a Shortfall or None, got {answer!r:.100}"


_CHECKS: Final[dict[str, Callable[..., str]]] = {
    "fits": _of_nodes("fits", np.bool_),
    "scores": _of_nodes("scores", np.integer),
    "slots": _of_nodes("slots", np.integer),
    "unresolvable": _of_nodes("unresolvable", np.bool_),
    "reasons": _reasons,
    "restriction": _restriction,
    "shortfalls": _each("shortfalls", Shortfall),
    "details": _each("details", str),
    "normalise": _normalised,
    "refuse": _a_refusal,
    "allocate": _given,
}
