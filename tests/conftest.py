"""Profiles of hypothesis: the same few examples on every run, or many that chance draws (``nightly``).

A test never depends on chance: what it draws follows from the test's own code, and what once failed stands
beside it as an example. Chance belongs to the campaigns: ``python -m campaigns properties`` draws others for
every law.
"""

from hypothesis import HealthCheck, settings

# No test may depend on how busy the machine is.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
settings.register_profile("dev", untimed, max_examples=8, derandomize=True)
settings.register_profile("nightly", untimed, max_examples=5000)
# Hypothesis itself chooses "ci" where it sees one.
if settings.get_current_profile_name() in ("default", "ci"):
    settings.load_profile("dev")
