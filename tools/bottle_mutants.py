"""Plant mistakes into journal and mirror, one at a time, and let the bottle find them.

    python -m tools.bottle_mutants [--only NUMBER ...] [--search CPU] [--sound]

Each mistake is planted into a copy of the sources. It is killed when a rule of some world does not hold. Which
world that was, and what has to come from outside for it, stands in ``bottle_kills.json``; this runs them again.
``--search`` looks for a world where that one kills no more, for so many seconds of CPU, shrinks it and writes it down.
``--sound`` runs the worlds without any mistake: every rule holds in all of them.
"""

# ruff: noqa: E501 - a mistake stands on one line, as the line does that it replaces

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
JOURNAL, EFFECTS, MIRROR, FEED, WRITING = "journal", "effects", "mirror", "feed", "writing"
MUTANTS: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("a later pod of the name is taken for the one meant", EFFECTS, '["uid"] != request.uid', '["uid"] == ""'),
    ("a rival's knowledge is not waited for", JOURNAL, "and mirror.followed(kind) < version", "and False"),
    ("a batch is done before it is", JOURNAL, "return not (self.left or self.done) and", "return"),
    ("no answer is taken for a refusal", WRITING, " if one.status and is_final(one.request, one.status)]", "]"),
    ("bindings are taken for done", EFFECTS, 'seen = "nodeName" in pod["spec"]', "seen = True"),
    ("a budget's refusal is not final", EFFECTS, 'if request.subresource == "eviction" and status == 429:', "if False:"),
    ("what is refused for good is kept", JOURNAL, "for one in self.left if one.about not in about)", "for one in self.left)"),
    ("calls are read in another order", JOURNAL, "for one in calls)", "for one in reversed(calls))"),
    ("who is gone is kept", MIRROR, 'if what == "DELETED":', 'if what == "GONE":'),
    ("a relist takes nobody away", MIRROR, "self._objects[kind] = ready", "self._objects[kind] = {**self._objects.get(kind, {}), **ready}"),
    ("a watch does not tell how far it is", MIRROR, "        self._followed[kind] = max(self.followed(kind), version)\n", ""),
    ("a list does not tell how far it is", MIRROR, "self._followed[kind] = self._complete_to[kind] = version", "self._complete_to[kind] = version"),
    ("a relist is not read", FEED, "        self._changes += self._reader.relist(", "        if kind != 'Pod' or self.mirror.changes < 12:\n            self._changes += self._reader.relist("),
    ("ends are not read", FEED, "if kept is not None:", 'if kept is not None and what != "DELETED":'),
    ("the first of several changes is lost", FEED, "tuple(self._changes), []", "tuple(self._changes[len(self._changes) > 1 :]), []"),
    ("the journal is written over a rival's", WRITING, '"resourceVersion": self._version}', '"resourceVersion": ""}'),
    ("nothing is written down before it is done", WRITING, "        answer = yield from _ask(put)\n        if answer.done:", "        self._batch = batch\n        return True\n        answer = yield from _ask(put)\n        if answer.done:"),
    ("what a kill has left is left", WRITING, "        yield from self.carry_out()\n        return found", "        self._batch = Batch()\n        return found"),
    ("effects are not waited for", WRITING, "elif (yield Await(self._settled, _ECHO)):", "elif True:"),
    ("what was done is taken for seen", JOURNAL, "return mirror.knows(answer.request.about, int(version))", "return True"),
)  # fmt: skip
KILLS: Final = ROOT / "tools" / "bottle_kills.json"
RUN: Final = """
import json, sys, time
from koordcore.simulate.world import FaultProfile, injections, own_scheduler, run_world, shrink_world
short = dict(seconds=95, storm=42, calm=50, nodes=3, arrival=900)
light = dict(short, cards=0, quotas=0, gangs=0, budgets=0)
dense = [
    FaultProfile(**light | dict(name="crowd", storm=85, calm=10, nodes=2, arrival=250, most=40, schedulers=2, slow=500, unanswered=20)),
    FaultProfile(**light | dict(name="guarded", arrival=500, most=50, budgets=1000, crash=3000, lag=1500)),
    FaultProfile(**short | dict(name="broken", schedulers=2, quotas=0, arrival=500, most=20, kill=2500, unanswered=120, late=80, busy=80, freeze=4000)),
    FaultProfile(**short | dict(name="deaf", cut=700, gone=600, slow=2500, arrival=500, most=20, delete=1200, lost=40)),
]
dense = {one.name: one for one in dense}
asked = json.load(sys.stdin)
def say(run):
    one = run.breaches[0]
    kept = [i.number for i in run.injections if i.number not in run.without]
    what = " ".join(one.what.split())
    print(json.dumps({"seed": run.seed, "world": run.profile.name, "kept": kept, "rule": one.rule.value, "what": what[:160]}))
def live(seed, name, kept=None):
    known = injections(seed, dense[name])
    without = frozenset() if kept is None else frozenset(i.number for i in known) - frozenset(kept)
    return run_world(seed, dense[name], own_scheduler, without=without)
for kill in (one for one in asked["kills"] if one["world"] in dense):
    run = live(kill["seed"], kill["world"], kill["kept"])
    if run.breaches:
        say(run)
        sys.exit(1)
begin, seed = time.process_time(), asked["first"]
while time.process_time() - begin < asked["search"]:
    for name in dense:
        run = live(seed, name)
        if run.breaches:
            say(shrink_world(run, own_scheduler, tries=asked["tries"]))
            sys.exit(1)
        if time.process_time() - begin > asked["search"]:
            break
    seed += 1
"""


def main() -> int:
    """Plant each mistake; 1 where one lives."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=int, action="append", help="this one only, by its number; repeat it")
    parser.add_argument(
        "--search", type=float, default=0.0, metavar="CPU", help="seconds for each that lives (0)"
    )
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first that is searched (0)")
    parser.add_argument(
        "--tries", type=int, default=60, metavar="N", help="runs that may be made to shrink one (60)"
    )
    parser.add_argument("--sound", action="store_true", help="plant nothing, and see that every rule holds")
    asked = parser.parse_args()
    known: dict[str, Any] = json.loads(KILLS.read_text(encoding="utf-8")) if KILLS.exists() else {}
    order = {"kills": [], "first": asked.first, "search": asked.search, "tries": asked.tries}
    if asked.sound:
        return int(bool(_live(ROOT / "src", {**order, "kills": list(known.values())})))
    lived = 0
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "koordcore"
        shutil.copytree(ROOT / "src" / "koordcore", package, ignore=shutil.ignore_patterns("__pycache__"))
        for number, (what, module, old, new) in enumerate(MUTANTS, 1):
            if asked.only and number not in asked.only:
                continue
            path = package / "controlplane" / f"{module}.py"
            text = path.read_text(encoding="utf-8")
            if text.count(old) < 1:
                raise SystemExit(f"{number}: {module} has no {old!r}")
            path.write_text(text.replace(old, new, 1), encoding="utf-8")
            kill = _live(Path(folder), {**order, "kills": [known[what]] if what in known else []})
            path.write_text(text, encoding="utf-8")
            lived += kill is None
            print(f"{number:2}  {what}: {_told(kill)}", flush=True)
            if kill is not None and asked.search:
                known[what] = kill
                lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in known.items())
                KILLS.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return int(lived > 0)


def _live(sources: Path, order: dict[str, Any]) -> dict[str, Any] | None:
    """Run worlds with these sources; the first in which a rule does not hold, or ``None``."""
    env = {**os.environ, "PYTHONPATH": str(sources), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(order),
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return None
    if not done.stdout:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _told(kill: dict[str, Any] | None) -> str:
    if kill is None:
        return "LIVES"
    return f"{kill['rule']} ({kill['world']} {kill['seed']}, {len(kill['kept'])} from outside): {kill['what'][:90]}"


if __name__ == "__main__":
    raise SystemExit(main())
