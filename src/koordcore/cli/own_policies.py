"""Policies of one's own on the command line: ``--policy module:Class``."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from koordcore.cli.words import near
from koordcore.errors import ModelError
from koordcore.scoring.gpu_policies import PolicyLike


def own_policy(text: str) -> PolicyLike | None:
    """Read ``module:name``, from the folder in which the command runs, too; ``None`` for another text.

    Raises
    ------
    ModelError
        When there is no such module or name.
    """
    module, colon, name = text.partition(":")
    if not colon or not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        return None
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # the processes of a sweep are given it, too
    try:
        found = import_module(module)
    except ImportError as error:
        raise ModelError(f"--policy {text}: {error}") from None
    except Exception as error:  # the module is its author's, and so is what it raises
        raise ModelError(f"--policy {text}: {module}: {type(error).__name__}: {error}") from error
    if not hasattr(found, name):
        raise ModelError(f"--policy {text}: {module} has no {name}{near(name, vars(found))}")
    own: PolicyLike = getattr(found, name)
    return own
