"""Cases whose difference nobody has explained yet; the runner shows them as wrong."""

from __future__ import annotations

from typing import Final

OPEN: Final = {
    "cycle.sequence": {
        "s039-mixed": "the runtime share in one message is 410m CPU above what the ledger's own total leaves",
    },
}
"""Subject to case to what differs; a case that passes again has to leave the list."""
