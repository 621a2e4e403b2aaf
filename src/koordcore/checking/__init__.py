"""Is it legal: an independent check of a result against the snapshot it was made from.

Nothing here imports the kernels, the allocators or the workspace; a checker that shares code with what it
checks would share its mistakes. Everything is added up anew from the frozen records.
"""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.checking.entry import (
        check_certificate as check_certificate,
        verify as verify,
    )
    from koordcore.checking.moves import verify_moves as verify_moves
    from koordcore.checking.violation import (
        Violation as Violation,
        ViolationKind as ViolationKind,
    )
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.checking.entry": ("check_certificate", "verify"),
            "koordcore.checking.moves": ("verify_moves",),
            "koordcore.checking.violation": ("Violation", "ViolationKind"),
        },
    )
