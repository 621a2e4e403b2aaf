"""The page in a real browser: what it draws, what a click does, that it asks nobody for anything."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

from koordcore import ClusterSnapshot, Node, report, schedule
from tests.reporting.browser import needs_browser, opened
from tests.reporting.clusters import example, large, preempted

pytestmark = needs_browser


def said(drawn: str) -> Any:
    found = re.search(r"<title>(.*?)</title>", drawn, re.DOTALL)
    assert found is not None
    return json.loads(unescape(found.group(1)))


def words(drawn: str) -> str:
    """Give what a reader sees: no script, no tags."""
    body = re.sub(r"<(script|style|title|noscript).*?</\1>", " ", drawn, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


def test_every_card_of_the_example_is_drawn_with_its_holder(tmp_path: Path) -> None:
    then = """
    const tips = [...document.querySelectorAll("[data-node] .card")].map((card) => card.tip());
    say({ cards: tips.length, shared: tips.filter((tip) => tip.includes("notebook-0")),
          requests: performance.getEntriesByType("resource").length });
    """
    told = said(opened(report(example()), tmp_path, then=f"setTimeout(() => {{ {then} }}, 500);"))
    shared = "gpu 0\ndefault/notebook-0 50 %\ndefault/notebook-1 50 %"
    assert told == {"cards": 32, "shared": [shared], "requests": 0}


def test_a_search_leaves_the_nodes_and_marks_the_cards_that_it_is_about(tmp_path: Path) -> None:
    then = """
    const all = (what) => [...document.querySelectorAll(what)];
    setTimeout(() => say([all("[data-node]").map((one) => one.dataset.node), all(".card.hit").length]), 500);
    """
    nodes, hit = said(opened(report(example()), tmp_path, at="q=default%2Fpretrain", then=then))
    assert (sorted(nodes), hit) == (["gpu-b2-1", "gpu-b2-2"], 16)


def test_the_queue_shows_the_reason_and_the_nearest_node(tmp_path: Path) -> None:
    seen = words(opened(report(example()), tmp_path, at="view=queue&outcome=no+place"))
    assert "5 Insufficient nvidia.com/gpu" in seen
    assert "nearest: gpu-b1-1, lacks 8 gpu" in seen
    assert "default/web-0" not in seen


def test_equal_members_of_a_gang_share_a_row_until_it_is_opened(tmp_path: Path) -> None:
    page, at = report(example()), "view=queue"
    assert "default/pretrain-1" not in words(opened(page, tmp_path, at=at))
    click = 'document.querySelectorAll("button.others").forEach((one) => one.click());'
    assert "default/pretrain-1" in words(opened(page, tmp_path, at=at, then=click))


def test_a_click_on_a_node_tells_of_its_cards_and_the_back_button_closes_it(tmp_path: Path) -> None:
    then = """
    setTimeout(() => {
      document.querySelector('[data-node="gpu-b1-1"]').click();
      const side = document.getElementById("side");
      const told = side.innerText;
      history.back();
      const found = ["PCIe pcie-3", "default/notebook-2 50 %"].map((one) => told.includes(one));
      setTimeout(() => say([...found, side.hidden]), 300);
    }, 500);
    """
    assert said(opened(report(example()), tmp_path, then=then)) == [True, True, True]


def test_a_preemption_is_stepped_through(tmp_path: Path) -> None:
    then = """
    const drawn = () => [...document.querySelectorAll(".plan .card")];
    const look = () => drawn().map((card) => card.tip().split("\\n")[1]);
    const steps = [look()];
    for (const name of ["victims have left", "the job runs"]) {
      [...document.querySelectorAll(".plan .chip")].find((one) => one.textContent === name).click();
      steps.push(look());
    }
    say(steps.map((step) => [...new Set(step)].map((one) => one.split(" ")[0]).sort()));
    """
    assert said(opened(report(preempted()), tmp_path, at="view=plans", then=then)) == [
        ["default/old"],
        ["idle"],
        ["default/new", "idle"],
    ]


def test_no_text_of_a_cluster_runs_as_a_script(tmp_path: Path) -> None:
    drawn = opened(report(preempted(), title="mine"), tmp_path, at="view=quotas")
    assert "<title>mine</title>" in drawn
    assert "document.title='taken over'" in words(drawn)


def test_a_waterfall_names_what_binds(tmp_path: Path) -> None:
    seen = words(opened(report(preempted()), tmp_path, at="view=quotas&quota=a"))
    assert "koordinator-root-quota shares 8" in seen
    assert "What binds:" in seen


def test_a_large_cluster_draws_what_is_in_view_and_no_more(tmp_path: Path) -> None:
    """That is what makes it open at once; nodes follow as one scrolls."""
    then = "setTimeout(() => say(document.querySelectorAll('[data-node]').length), 2000);"
    drawn = said(opened(report(large()), tmp_path, then=then, lazily=True))
    assert 0 < drawn < 500


def test_nothing_is_wider_than_a_phone(tmp_path: Path) -> None:
    """Every view stands in a frame of 390 pixels without scrolling sideways."""
    then = """
    document.body.style.width = "390px";
    const views = ["cluster", "queue", "gangs", "quotas", "plans"];
    say(views.filter((view) => { go({ view }); return document.getElementById("view").scrollWidth > 390; }));
    """
    assert said(opened(report(preempted()), tmp_path, then=then, width=500)) == []


def test_the_tab_of_the_view_stays_in_sight_where_the_screen_gets_narrow(tmp_path: Path) -> None:
    then = """
    const place = () => document.querySelector('#tabs [aria-selected="true"]').getBoundingClientRect().right;
    setTimeout(() => {
      const before = place();
      document.body.style.width = "300px";
      dispatchEvent(new Event("resize"));
      say([before > 300, place() <= 301]);
    }, 500);
    """
    assert said(opened(report(preempted()), tmp_path, at="view=plans", then=then, width=500)) == [True, True]


def test_a_domain_that_all_nodes_are_in_is_said_once_and_names_are_whole(tmp_path: Path) -> None:
    names = [f"ip-10-0-0-{number}.eu-west-1.compute.internal" for number in range(3)]
    snapshot = ClusterSnapshot(
        nodes=[Node(name=name, allocatable={"cpu": 8000, "pods": 9}) for name in names]
    )
    page = report(schedule(snapshot))
    drawn = words(opened(page, tmp_path, then="setTimeout(() => say(1), 300);"))
    assert "names of nodes end in .eu-west-1.compute.internal" in drawn
    assert "ip-10-0-0-0 ip-10-0-0-1 ip-10-0-0-2" in drawn
