"""Which gangs start together, and which come before others that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def cores(gang_id: str, lists: Callable[[str], Iterable[str]]) -> list[tuple[str, ...]]:
    """Sort a gang and all that it waits for into those that start together, in the order of their turns.

    Gangs that list each other, over however many others, start together. One that is listed by them and lists
    none of them starts for itself, whatever becomes of them: it comes before them.

    Parameters
    ----------
    gang_id
        It is in the last core.
    lists
        For which gangs a gang waits.
    """
    # Tarjan's components without recursion: a chain of gangs may be long.
    seen, lowest = {gang_id: 0}, {gang_id: 0}
    path, on_path = [gang_id], {gang_id}
    calls = [(gang_id, iter(lists(gang_id)))]
    found: list[tuple[str, ...]] = []
    while calls:
        name, rest = calls[-1]
        other = next((one for one in rest if one not in seen or one in on_path), None)
        if other is None:
            calls.pop()
            if calls:
                above = calls[-1][0]
                lowest[above] = min(lowest[above], lowest[name])
            if lowest[name] == seen[name]:
                start = path.index(name)
                found.append(tuple(sorted(path[start:])))
                on_path.difference_update(path[start:])
                del path[start:]
        elif other in seen:
            lowest[name] = min(lowest[name], seen[other])
        else:
            seen[other] = lowest[other] = len(seen)
            path.append(other)
            on_path.add(other)
            calls.append((other, iter(lists(other))))
    return found
