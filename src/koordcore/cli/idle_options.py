"""Options that would change nothing beside others: refused, since whoever types one means something by it."""

from __future__ import annotations

import argparse

from koordcore.errors import ModelError


def need_use_of(arguments: argparse.Namespace, why: str, *flags: str) -> None:
    """Refuse options that were given although nothing reads them here.

    Parameters
    ----------
    arguments
        As they were typed; whoever was left out is ``None`` or ``False``.
    why
        What the option is about, after its name.
    flags
        The options.

    Raises
    ------
    ModelError
        With the first of them that was given.
    """
    for flag in flags:
        value = getattr(arguments, flag.removeprefix("--").replace("-", "_"))
        if value is not None and value is not False:
            raise ModelError(f"{flag}: {why}")
