"""Names of labels, and what else has to be spelt as they are (Kubernetes' ``IsQualifiedName``)."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_LONGEST, _LONGEST_PREFIX = 63, 253
_SPELT: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_SUBDOMAIN: Final = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character"
)


def name_part_fault(name: str) -> str | None:
    """Say what is wrong with the part of a name that follows the slash; ``None`` where nothing is.

    Examples
    --------
    >>> name_part_fault("")
    'name part must be non-empty'
    """
    if not name:
        return "name part must be non-empty"
    if len(name) > _LONGEST:
        return f"name part must be no more than {_LONGEST} bytes"
    return None if _NAME.fullmatch(name) else f"name part {_SPELT}"


def label_name_fault(name: str) -> str | None:
    """Say why a text is no name of a label, ``zone`` or ``example.com/zone``; ``None`` where it is one."""
    prefix, slash, rest = name.rpartition("/")
    if "/" in prefix:
        return f"a qualified name {_SPELT} with an optional DNS subdomain prefix and '/'"
    if slash and not prefix:
        return "prefix part must be non-empty"
    if len(prefix) > _LONGEST_PREFIX:
        return f"prefix part must be no more than {_LONGEST_PREFIX} bytes"
    if prefix and not _PREFIX.fullmatch(prefix):
        return _SUBDOMAIN
    return name_part_fault(rest)
