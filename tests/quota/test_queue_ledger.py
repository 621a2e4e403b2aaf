"""Kueue's queues and cohorts: what is borrowed, what is not lent, and whose bound refuses."""

from __future__ import annotations

from koordcore.model.kueue import ClusterQueue, Cohort, FlavorQuota, ResourceGroup
from koordcore.quota.kueue import QueueLedger, QueueShortfall, open_queues

GPU, CPU = "f/gpu", "f/cpu"


def groups(
    nominal: dict[str, int], lending: dict[str, int] | None = None, borrowing: dict[str, int] | None = None
) -> tuple[ResourceGroup, ...]:
    flavor = FlavorQuota(flavor="f", nominal=nominal, lending=lending or {}, borrowing=borrowing or {})
    return (ResourceGroup(resources=tuple(nominal), flavors=(flavor,)),)


def queue(
    name: str,
    cohort: str,
    nominal: dict[str, int],
    lending: dict[str, int] | None = None,
    borrowing: dict[str, int] | None = None,
) -> ClusterQueue:
    return ClusterQueue(name=name, cohort=cohort, groups=groups(nominal, lending, borrowing))


def admitted(ledger: QueueLedger, name: str, amounts: dict[str, int], key: str = "d/w") -> QueueLedger:
    found = ledger.admit(key, name, amounts)
    assert isinstance(found, QueueLedger), found
    return found


def refused(ledger: QueueLedger, name: str, amounts: dict[str, int]) -> QueueShortfall:
    found = ledger.admit("d/w", name, amounts)
    assert isinstance(found, QueueShortfall)
    return found


def test_a_queue_borrows_what_others_of_its_cohort_leave_and_no_more() -> None:
    ledger = open_queues([queue("a", "team", {"gpu": 3}), queue("b", "team", {"gpu": 5})], [])
    full = admitted(ledger, "a", {GPU: 8})
    assert full.used("a") == {GPU: 8}
    assert not full.borrows("a", {})
    assert full.borrows("a", {GPU: 0})
    assert not ledger.borrows("a", {GPU: 3})
    assert ledger.borrows("a", {GPU: 4})
    short = refused(ledger, "a", {GPU: 9})
    assert short == QueueShortfall(
        where="Cohort team",
        flavor="f",
        resource="gpu",
        asked=9,
        used=0,
        limit=8,
        message="Cohort team: 9 gpu of flavor f asked, 0 of 8 used or kept",
    )
    held = refused(admitted(ledger, "b", {GPU: 4}), "a", {GPU: 5})
    assert (held.asked, held.used, held.limit) == (5, 4, 8)


def test_a_queue_is_refused_by_its_own_borrowing_limit_first() -> None:
    quotas = [queue("a", "team", {"gpu": 3}, borrowing={"gpu": 2}), queue("b", "team", {"gpu": 5})]
    ledger = admitted(open_queues(quotas, []), "a", {GPU: 1})
    short = refused(ledger, "a", {GPU: 5})
    assert (short.where, short.asked, short.used, short.limit) == ("ClusterQueue a", 5, 1, 5)
    assert short.message == "ClusterQueue a: 5 gpu of flavor f asked, 1 of 5 used"
    assert admitted(ledger, "a", {GPU: 4}).used("a") == {GPU: 5}


def test_a_queue_without_a_cohort_has_its_own_and_nothing_else() -> None:
    ledger = open_queues([queue("a", "", {"gpu": 3}), queue("b", "", {"gpu": 5})], [])
    assert admitted(ledger, "a", {GPU: 3}).used("a") == {GPU: 3}
    assert refused(ledger, "a", {GPU: 4}).where == "ClusterQueue a"


def test_whoever_has_nothing_of_its_own_borrows_the_first_unit() -> None:
    ledger = open_queues([queue("a", "team", {"gpu": 3}), queue("b", "team", {"cpu": 5})], [])
    assert ledger.borrows("b", {GPU: 1})
    assert not ledger.borrows("b", {GPU: 0})


def test_what_is_not_lent_stays_for_its_queue_resource_by_resource() -> None:
    """``b`` lends all its CPUs and one GPU of five."""
    quotas = [
        queue("a", "team", {"cpu": 2, "gpu": 3}),
        queue("b", "team", {"cpu": 4, "gpu": 5}, lending={"cpu": 4, "gpu": 1}),
    ]
    ledger = open_queues(quotas, [])
    assert ledger.kept["ClusterQueue b"] == {CPU: 0, GPU: 4}
    short = refused(ledger, "a", {GPU: 5})
    assert (short.where, short.used, short.limit) == ("Cohort team", 4, 8)
    borrowed = admitted(ledger, "a", {GPU: 4, CPU: 6})
    assert admitted(borrowed, "b", {GPU: 4}, "d/v").used("b") == {GPU: 4}
    assert refused(borrowed, "b", {GPU: 5}).where == "Cohort team"
    # What the queue uses itself counts once.
    own = admitted(ledger, "b", {GPU: 3}, "d/v")
    assert admitted(own, "a", {GPU: 4}).used("a") == {GPU: 4}
    assert refused(own, "a", {GPU: 5}).used == 4


def test_what_left_is_free_again_and_what_is_not_lent_is_held_again() -> None:
    quotas = [queue("a", "team", {"gpu": 3}), queue("b", "team", {"gpu": 5}, lending={"gpu": 1})]
    ledger = open_queues(quotas, [])
    busy = ledger.with_usage("d/v", "b", {GPU: 5})
    assert refused(busy, "a", {GPU: 4}).used == 5
    idle = busy.without_usage("d/v", "b", {GPU: 5})
    assert idle.used("b") == {}
    assert admitted(idle, "a", {GPU: 4}).used("a") == {GPU: 4}
    assert refused(idle, "a", {GPU: 5}).used == 4


def test_cohorts_have_quotas_of_their_own_and_keep_some_of_them() -> None:
    cohorts = [
        Cohort(name="org"),
        Cohort(name="left", parent="org", groups=groups({"gpu": 4}, lending={"gpu": 3})),
        Cohort(name="right", parent="org", groups=groups({"gpu": 1}, borrowing={"gpu": 2})),
    ]
    quotas = [queue("a", "left", {"gpu": 2}), queue("b", "right", {"gpu": 2})]
    ledger = open_queues(quotas, cohorts)
    assert ledger.has["Cohort left"] == {GPU: 6}
    assert ledger.has["Cohort org"] == {GPU: 9}
    assert admitted(ledger, "a", {GPU: 9}).borrowed("Cohort left") == {"gpu": 3}
    assert admitted(ledger, "a", {GPU: 6}).borrowed("Cohort left") == {}
    assert refused(ledger, "a", {GPU: 10}).where == "Cohort org"
    assert admitted(ledger, "b", {GPU: 5}).used("b") == {GPU: 5}
    assert refused(ledger, "b", {GPU: 6}).where == "Cohort right"
    assert {name: dict(there) for name, there in ledger.lendable.items()} == {
        "Cohort left": {"gpu": 9},
        "Cohort org": {"gpu": 6},
        "Cohort right": {"gpu": 5},
    }


def test_amounts_of_one_resource_add_up_over_flavors() -> None:
    both = (
        ResourceGroup(
            resources=("gpu",),
            flavors=(
                FlavorQuota(flavor="f", nominal={"gpu": 2}),
                FlavorQuota(flavor="g", nominal={"gpu": 3}),
            ),
        ),
    )
    ledger = open_queues([ClusterQueue(name="a", cohort="team", groups=both)], [])
    assert ledger.lendable["Cohort team"] == {"gpu": 5}
    more = ledger.with_usage("d/w", "a", {"f/gpu": 4, "g/gpu": 5})
    assert more.borrowed("ClusterQueue a") == {"gpu": 4}
    short = refused(ledger, "a", {"f/gpu": 2, "g/gpu": 4})
    assert (short.flavor, short.limit) == ("g", 3)


def test_who_is_over_in_one_resource_of_one_flavor_still_has_the_others() -> None:
    """As Kueue has it: a request looks at its own flavors and resources alone, and none asks for nothing."""
    both = ResourceGroup(
        resources=("cpu", "gpu"),
        flavors=tuple(FlavorQuota(flavor=name, nominal={"cpu": 9, "gpu": 4}) for name in ("f", "g")),
    )
    for cohort in ("", "team"):
        over = open_queues([ClusterQueue(name="a", cohort=cohort, groups=(both,))], []).with_usage(
            "d/old", "a", {GPU: 6}
        )
        assert admitted(over, "a", {CPU: 1, GPU: 0}).used("a") == {CPU: 1, GPU: 6}
        assert admitted(over, "a", {"g/cpu": 1, "g/gpu": 4}).used("a")["g/gpu"] == 4
        short = refused(over, "a", {CPU: 1, GPU: 1})
        assert (short.flavor, short.resource, short.asked, short.used, short.limit) == ("f", "gpu", 1, 6, 4)


def test_what_a_cohort_is_over_comes_off_what_a_queue_keeps() -> None:
    quotas = [queue("a", "team", {"gpu": 3}), queue("b", "team", {"gpu": 5}, lending={"gpu": 0})]
    over = open_queues(quotas, []).with_usage("d/old", "a", {GPU: 5})
    assert admitted(over, "b", {GPU: 3}).used("b") == {GPU: 3}
    short = refused(over, "b", {GPU: 4})
    assert (short.where, short.asked, short.used, short.limit) == ("Cohort team", 4, 5, 8)


def test_queues_below_cohorts_in_a_circle_have_no_quota_and_say_why() -> None:
    cohorts = [Cohort(name="x", parent="y"), Cohort(name="y", parent="x"), Cohort(name="ok")]
    ledger = open_queues([queue("a", "x", {"gpu": 2}), queue("b", "ok", {"gpu": 3})], cohorts)
    assert ledger.broken == {"a": "its cohorts form a cycle: x -> y -> x"}
    assert admitted(ledger, "b", {GPU: 3}).used("b") == {GPU: 3}


def test_a_circle_above_names_only_those_in_it() -> None:
    cohorts = [Cohort(name="x", parent="y"), Cohort(name="y", parent="z"), Cohort(name="z", parent="y")]
    ledger = open_queues([queue("a", "x", {"gpu": 2})], cohorts)
    assert ledger.broken == {"a": "its cohorts form a cycle: y -> z -> y"}


def test_a_flavor_that_states_no_quota_of_a_covered_resource_has_none() -> None:
    """Its cohort may lend some."""
    (group,) = groups({"gpu": 3})
    covering = (ResourceGroup(resources=("cpu", "gpu"), flavors=group.flavors),)
    alone = ClusterQueue(name="a", groups=covering)
    short = refused(open_queues([alone], []), "a", {"f/cpu": 1})
    assert (short.where, short.limit) == ("ClusterQueue a", 0)
    lender = queue("b", "team", {"cpu": 2})
    admitted(
        open_queues([ClusterQueue(name="a", cohort="team", groups=covering), lender], []), "a", {"f/cpu": 2}
    )
