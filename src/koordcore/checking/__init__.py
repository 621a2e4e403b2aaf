"""Is it legal: an independent check of a result against the snapshot it was made from.

Nothing here imports the kernels, the allocators or the workspace; a checker that shares code with what it
checks would share its mistakes. Everything is added up anew from the frozen records.
"""

from koordcore.checking.entry import check_certificate, verify

__all__ = ["check_certificate", "verify"]
