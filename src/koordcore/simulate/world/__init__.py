"""A cluster in a bottle: a deterministic control plane with faults, for any scheduler."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.simulate.world.engine import (
        injections as injections,
        run_world as run_world,
    )
    from koordcore.simulate.world.own_loop import own_scheduler as own_scheduler
    from koordcore.simulate.world.plug import (
        Act as Act,
        Answered as Answered,
        Books as Books,
        BottledScheduler as BottledScheduler,
        ListAgain as ListAgain,
        Listed as Listed,
        News as News,
        Note as Note,
        Post as Post,
        Rang as Rang,
        SetBell as SetBell,
        Watched as Watched,
    )
    from koordcore.simulate.world.profile import (
        FaultProfile as FaultProfile,
        named_profile as named_profile,
    )
    from koordcore.simulate.world.shrinking import shrink_world as shrink_world
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.simulate.world.engine": ("injections", "run_world"),
            "koordcore.simulate.world.own_loop": ("own_scheduler",),
            "koordcore.simulate.world.plug": (
                "Act",
                "Answered",
                "Books",
                "BottledScheduler",
                "ListAgain",
                "Listed",
                "News",
                "Note",
                "Post",
                "Rang",
                "SetBell",
                "Watched",
            ),
            "koordcore.simulate.world.profile": ("FaultProfile", "named_profile"),
            "koordcore.simulate.world.shrinking": ("shrink_world",),
        },
    )
