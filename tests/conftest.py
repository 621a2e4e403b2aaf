"""Profiles of hypothesis: few examples by default, many at night; ``CI`` selects its own derandomised one."""

from hypothesis import settings

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("nightly", max_examples=5000, deadline=None)
if settings.get_current_profile_name() == "default":
    settings.load_profile("dev")
