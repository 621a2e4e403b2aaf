"""Profiles of hypothesis: few examples by default, many at night; ``CI`` selects its own derandomised one."""

from hypothesis import HealthCheck, settings

# No test may depend on how busy the machine is.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("dev", untimed, max_examples=50)
settings.register_profile("nightly", untimed, max_examples=5000)
if settings.get_current_profile_name() == "default":
    settings.load_profile("dev")
