"""Plant mistakes into journal and mirror, one at a time, and let the bottle find them.

    python -m tools.bottle_mutants [--only NUMBER ...] [--seconds CPU]

Each mistake is planted into a copy of the sources. A mistake is killed when a rule of some world does not
hold, or when hardly any pod starts. The worlds are short, and more goes wrong in them than in those of the profiles
that they are made from; ``--sound`` runs them without any mistake.
"""

# ruff: noqa: E501 - a mistake stands on one line, as the line does that it replaces

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
JOURNAL, MIRROR, FEED, WRITING, TURN = "journal", "mirror", "feed", "writing", "turn"
MUTANTS: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("a later pod of the name is taken for the one meant", JOURNAL, '["uid"] != _uid(request)', '["uid"] == ""'),
    ("a rival's knowledge is not waited for", JOURNAL, " and mirror.followed(\"Pod\") >= self.seen", ""),
    ("a batch is done before it is", JOURNAL, "return not self.left and", "return"),
    ("evictions are taken for done", JOURNAL, "            return False\n", "            return True\n"),
    ("bindings are taken for done", JOURNAL, '            return "nodeName" in pod["spec"]\n', "            return True\n"),
    ("a budget's refusal is not final", JOURNAL, 'if request.subresource == "eviction" and status == 429:', "if False:"),
    ("what is refused for good is kept", JOURNAL, "if one.about not in about", "if True"),
    ("calls are read in another order", JOURNAL, "for one in calls)", "for one in reversed(calls))"),
    ("who is gone is kept", MIRROR, 'if what == "DELETED":', 'if what == "GONE":'),
    ("a relist takes nobody away", MIRROR, "self._objects[kind] = ready", "self._objects[kind] = {**self._objects.get(kind, {}), **ready}"),
    ("a watch does not tell how far it is", MIRROR, '        self._followed[kind] = int(item["metadata"]["resourceVersion"])\n        if', "        if"),
    ("a list does not tell how far it is", MIRROR, "        self._followed[kind] = int(version)\n", ""),
    ("a relist is not read", FEED, "        self._changes += self._reader.relist(version_of(kind), kind, ready)\n", "        if kind != 'Pod' or self.mirror.changes < 12:\n            self._changes += self._reader.relist(version_of(kind), kind, ready)\n"),
    ("ends are not read", FEED, "if kept is not None:", 'if kept is not None and what != "DELETED":'),
    ("the first of several changes is lost", FEED, "tuple(self._changes), []", "tuple(self._changes[len(self._changes) > 1 :]), []"),
    ("the journal is written over a rival's", WRITING, '"resourceVersion": self._version}', '"resourceVersion": ""}'),
    ("nothing is written down before it is done", WRITING, "        answer = yield from _ask(put)\n        if answer.done:", "        self._batch = batch\n        return True\n        answer = yield from _ask(put)\n        if answer.done:"),
    ("what a kill has left is left", WRITING, "        yield from self.carry_out()\n        return found", "        self._batch = Batch()\n        return found"),
    ("effects are not waited for", WRITING, "elif (yield Await(self._settled, _ECHO)):", "elif True:"),
    ("evictions do not name the uid", TURN, 'body["deleteOptions"] = {"preconditions": {"uid": pod.uid}}', 'body["deleteOptions"] = {"preconditions": {"uid": ""}}'),
)  # fmt: skip
RUN: Final = """
import sys, time
import attrs
from koordcore.simulate.world import named_profile, own_scheduler, run_world
short = dict(seconds=100, storm=45, calm=50, arrival=900, nodes=4)
dense = [
    attrs.evolve(named_profile("rivals"), name="rivals", **short, kill=1500, unanswered=100),
    attrs.evolve(named_profile("kills"), name="kills", **short, kill=700, unanswered=120, busy=100, late=40, schedulers=2),
    attrs.evolve(named_profile("hurricane"), name="hurricane", **short, delete=900, gone=600, cut=900, slow=2500),
    attrs.evolve(named_profile("network"), name="network", **short, delete=1500, crash=1500, gone=600, budgets=600),
]
begin, seed = time.process_time(), 0
while time.process_time() - begin < float(sys.argv[1]):
    for profile in dense:
        run = run_world(seed, profile, own_scheduler)
        if run.breaches:
            sys.exit(f"seed {seed} {profile.name}: {run.breaches[0].rule}: {run.breaches[0].what[:60]}")
        if run.counts.get("begin", 0) < 3:
            sys.exit(f"seed {seed} {profile.name}: only {run.counts.get('begin', 0)} pods start")
        if time.process_time() - begin > float(sys.argv[1]):
            break
    seed += 1
"""


def main() -> int:
    """Plant each mistake; 1 where one lives."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", type=int, action="append", help="this one only, by its number; repeat it")
    parser.add_argument("--seconds", type=float, default=120.0, help="CPU that each may take (120)")
    parser.add_argument("--sound", action="store_true", help="plant nothing, and see that every rule holds")
    asked = parser.parse_args()
    if asked.sound:
        return subprocess.run([sys.executable, "-c", RUN, str(asked.seconds)], check=False).returncode
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
            env = {**os.environ, "PYTHONPATH": folder}
            done = subprocess.run(
                [sys.executable, "-c", RUN, str(asked.seconds)],
                env=env,
                capture_output=True,
                text=True,
                check=False,
            )
            path.write_text(text, encoding="utf-8")
            lived += not done.returncode
            last = (done.stderr.strip().splitlines() or ["LIVES"])[-1]
            print(f"{number:2}  {what}: {last if done.returncode else 'LIVES'}", flush=True)
    return int(lived > 0)


if __name__ == "__main__":
    raise SystemExit(main())
