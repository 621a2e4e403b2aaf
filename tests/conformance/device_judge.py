"""Judge placements, hints, scores and sequences of devices with the independent checker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs

from koordcore.protocol.device_object import GPU_MODEL, GPU_PARTITION_POLICY, parse_partition_table
from koordcore.topology.devices import HOPPER_MODELS, hopper_model
from tests.conformance.core import ADAPTERS, Case, Verdict, difference, equality
from tests.reference import devices as checker

__all__ = [
    "judge_hints",
    "judge_partitions",
    "judge_placement",
    "judge_request",
    "judge_score",
    "judge_sequence",
]

Found = tuple[Verdict, str]
DEAD_END: Final = "node(s) Device Joint-Allocate rules violation"
SCOPED: Final = {"Insufficient Topology Scoped GPU Devices", "node(s) missing GPU Device Topology Tree"}
DONE: Final = {"stage": "done", "code": "Success", "reasons": []}


# --- other spellings of the same --------------------------------------------------------------------------


def _same_as(case: Case, given: Any, answer: Any) -> bool:
    """Whether the answer is that to another input."""
    adapter, _ = ADAPTERS[case.subject]
    other = adapter(attrs.evolve(case, input=given))
    return not difference(json.loads(json.dumps(other)), answer)


def judge_request(case: Case, answer: Any) -> Found:
    """Equal, or what the spelling that the reference reads is answered (ruling 12)."""
    verdict, detail = equality(case, answer)
    if verdict is not Verdict.WRONG:
        return verdict, detail
    text = json.dumps(case.input)
    respelled = text.replace('"koordinator.sh/gpu-shared"', '"koordinator.sh/gpu.shared"')
    if respelled != text and _same_as(case, json.loads(respelled), answer):
        return Verdict.RULED, "ruling 12: koordinator.sh/gpu-shared is read as gpu.shared"
    return verdict, detail


def judge_partitions(case: Case, answer: Any) -> Found:
    """Equal, or a table, a model or a place of the policy that the reference does not read."""
    verdict, detail = equality(case, answer)
    if verdict is not Verdict.WRONG:
        return verdict, detail
    annotations = case.input["device"]["metadata"].get("annotations") or {}
    if parse_partition_table(annotations).aliases:
        given = json.loads(json.dumps(case.input))
        given["device"]["metadata"]["annotations"] |= {
            checker.PREFIX + "gpu-partitions": json.dumps(_plain_table(annotations))
        }
        if _same_as(case, given, answer):
            return Verdict.RULED, "ruling 12: this spelling of the table is read"
    policy = (case.input["node"]["metadata"].get("labels") or {}).get(GPU_PARTITION_POLICY)
    if policy and not (case.input["device"]["metadata"].get("labels") or {}).get(GPU_PARTITION_POLICY):
        given = json.loads(json.dumps(case.input))
        metadata = given["device"]["metadata"]
        metadata["labels"] = {**(metadata.get("labels") or {}), GPU_PARTITION_POLICY: policy}
        if _same_as(case, given, answer):
            return Verdict.RULED, "DEV-30: the Node's policy counts where the Device names none"
    text = annotations.get(checker.PREFIX + "gpu-partitions", "")
    sized = _sized(json.loads(text)) if "minors" in text else None
    if sized is not None and json.dumps(sized) != json.dumps(json.loads(text)):
        given = json.loads(json.dumps(case.input))
        given["device"]["metadata"]["annotations"][checker.PREFIX + "gpu-partitions"] = json.dumps(sized)
        adapter, _ = ADAPTERS[case.subject]
        other = adapter(attrs.evolve(case, input=given)) | {"index": answer["index"]}
        if not difference(json.loads(json.dumps(other)), answer):
            return Verdict.RULED, "DEV-36: a partition that is no set of as many cards is passed over"
    return _model_spelled_otherwise(case, answer, (verdict, detail))


def _sized(table: Any) -> Any:
    """Leave out partitions of another number of cards than they stand under."""
    if not isinstance(table, Mapping) or not all(isinstance(entries, list) for entries in table.values()):
        return table
    return {
        size: [one for one in entries if str(len(set(one.get("minors") or ()))) == size]
        for size, entries in table.items()
    }


def _plain_table(annotations: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Write a table as the reference reads it: lists per count, link types inside, scores as numbers."""
    raw = json.loads(annotations[checker.PREFIX + "gpu-partitions"])
    table: dict[str, list[dict[str, Any]]] = {}
    for count, entries in raw.items():
        groups = entries.items() if isinstance(entries, Mapping) else [(None, entries)]
        for link, group in groups:
            for one in group:
                plain = {**one, "allocationScore": int(one.get("allocationScore", 0))}
                if link is not None:
                    plain["gpuLinkType"] = link
                table.setdefault(count, []).append(plain)
    return table


def _model_spelled_otherwise(case: Case, answer: Any, found: Found) -> Found:
    labels = case.input["node"]["metadata"].get("labels") or {}
    model = labels.get(GPU_MODEL, "")
    if hopper_model(model) and model not in HOPPER_MODELS:
        given = json.loads(json.dumps(case.input))
        plain = model.removeprefix("NVIDIA-").partition("-")[0]
        given["node"]["metadata"]["labels"][GPU_MODEL] = plain
        if _same_as(case, given, answer):
            return Verdict.RULED, "model names as the driver reports them have the built-in table"
    return found


# --- placements -------------------------------------------------------------------------------------------


def _faults(scene: Mapping[str, Any], placed: Mapping[str, Any]) -> list[str]:
    return [*checker.violations(scene, placed), *checker.misstated(scene, placed)]


def judge_placement(case: Case, answer: Any) -> Found:
    """Equal; or legal and better by the documented objective; or the reference's own answer is illegal."""
    verdict, detail = equality(case, answer)
    placed = answer.get("allocated")
    illegal = _faults(case.input, placed) if placed else []
    if case.ruled:
        return _judge_ruled(case, placed, illegal)
    expected = case.expectations[0]
    if verdict is Verdict.EQUAL:
        return verdict, detail
    if illegal:
        return Verdict.WRONG, f"illegal: {illegal}"
    around = {key: one for key, one in answer.items() if key != "allocated"}
    if placed and difference(DONE, around):
        return Verdict.WRONG, detail
    if "feasible" in expected:
        same = bool(placed) == expected["feasible"]
        return (Verdict.EQUAL, "") if same else (Verdict.WRONG, detail)
    theirs = expected.get("allocated")
    unsound = checker.violations(case.input, theirs) if theirs else []
    if unsound and (placed or _refused(answer)):
        return Verdict.RULED, f"the reference places illegally: {unsound}"
    if placed and theirs:
        ours, other = checker.objective(case.input, placed), checker.objective(case.input, theirs)
        return (Verdict.BETTER, f"{ours} before {other}") if ours < other else (Verdict.WRONG, detail)
    same = checker.Wanted(case.input["pod"]).joint.get("requiredScope") == "SamePCIe"
    if placed and (same or expected["stage"] == "reserve" or DEAD_END in expected["reasons"]):
        return Verdict.BETTER, "ruling 3: placed where the reference runs into a dead end"
    if checker.scope_binds_partition(case.input) and _refused(answer) and set(answer["reasons"]) & SCOPED:
        return Verdict.RULED, "ruling 21: a partition must satisfy the required topology scope"
    policy = (case.input["node"]["metadata"].get("labels") or {}).get(GPU_PARTITION_POLICY)
    if policy and not (case.input["device"]["metadata"].get("labels") or {}).get(GPU_PARTITION_POLICY):
        given = json.loads(json.dumps(case.input))
        metadata = given["device"]["metadata"]
        metadata["labels"] = {**(metadata.get("labels") or {}), GPU_PARTITION_POLICY: policy}
        if _same_as(case, given, answer):
            return Verdict.RULED, "DEV-30: the Node's policy counts where the Device names none"
    return _model_spelled_otherwise(case, answer, (verdict, detail))


def _refused(answer: Mapping[str, Any]) -> bool:
    """Whether an answer has the form of a refusal, with a reason."""
    return (
        set(answer) == {"stage", "code", "reasons"}
        and answer["stage"] in ("prefilter", "filter")
        and answer["code"] in ("Unschedulable", "UnschedulableAndUnresolvable")
        and bool(answer["reasons"])
    )


def _judge_ruled(case: Case, placed: Any, illegal: list[str]) -> Found:
    if illegal:
        return Verdict.WRONG, f"illegal: {illegal}"
    better = case.raw.get("better")
    if better:
        places = [
            checker.Machine(case.input).place("gpu", part["minor"]) for part in (placed or {}).get("gpu", [])
        ]
        spread = len({place[0] for place in places if place}), len(set(places))
        if not placed or spread > (better["numaNodes"], better["pcieSwitches"]):
            return Verdict.WRONG, f"spread over {spread}"
    return Verdict.RULED, str(case.raw.get("ruling", ""))


# --- hints ------------------------------------------------------------------------------------------------


def judge_hints(case: Case, answer: Any) -> Found:
    """Equal; or every mask holds by itself, none of the reference's is missing, and only the 500 moved."""
    verdict, detail = equality(case, answer)
    given = answer.get("hints")
    masks = [hint["mask"] for hint in next(iter(given.values()), [])] if given else []
    if case.ruled:
        lacking = [mask for mask in case.raw.get("feasibleMasks", []) if mask not in masks]
        return (Verdict.WRONG, f"hints {masks} lack {lacking}") if lacking else (verdict, detail)
    if verdict is not Verdict.WRONG or not masks:
        return verdict, detail
    expected = case.expectations[0]
    around = {key: one for key, one in answer.items() if key != "hints"}
    if difference({"stage": "hints", "code": "Success", "reasons": []}, around):
        return verdict, detail
    theirs: Mapping[tuple[int, ...], Any] = {}
    if expected.get("hints"):
        if set(given) != set(expected["hints"]):
            return verdict, detail
        theirs = {tuple(hint["mask"]): hint for hint in next(iter(expected["hints"].values()))}
    elif checker.Wanted(case.input["pod"]).joint.get("requiredScope") != "SamePCIe":
        return verdict, detail
    wrong = _hint_faults(case, given, theirs)
    if wrong:
        return Verdict.WRONG, f"{detail}\n{wrong}"
    note = "rulings 3 and 5: every mask holds, and 500 marks the cards that the node would give"
    return Verdict.RULED, note


def _hint_faults(
    case: Case, given: Mapping[str, list[dict[str, Any]]], theirs: Mapping[tuple[int, ...], Any]
) -> list[str]:
    """Check each hint against the allocation inside its mask, and that against the rules."""
    (entries, *rest) = given.values()
    wrong = [] if all(other == entries for other in rest) else ["types differ"]
    masks = [tuple(hint["mask"]) for hint in entries]
    if masks != sorted(set(masks), key=lambda mask: (len(mask), sum(1 << numa for numa in mask))):
        wrong.append("masks out of order")
    wrong += [f"{mask} lacks" for mask in theirs if mask not in masks]
    allocate, _ = ADAPTERS["device.allocate"]
    placed = {}
    for mask in masks:
        scene = {**case.input, "numaAffinity": list(mask)}
        inside = allocate(attrs.evolve(case, input=scene)).get("allocated")
        if not inside:
            wrong.append(f"{mask} does not serve")
            continue
        placed[mask] = frozenset(part["minor"] for part in inside.get("gpu", ()))
        wrong.extend(_faults(scene, json.loads(json.dumps(inside))))
    fewest, widest = min(map(len, masks)), max(placed, key=len, default=())
    for mask, hint in zip(masks, entries, strict=True):
        if set(hint) != {"mask", "preferred", "score"} or hint["preferred"] != (len(mask) == fewest):
            wrong.append(f"{mask}: preferred")
        elif hint["score"] != (500 if placed.get(mask) == placed.get(widest, ()) else 0):
            wrong.append(f"{mask}: score")
    return wrong


# --- scores -----------------------------------------------------------------------------------------------


def judge_score(case: Case, answer: Any) -> Found:
    """Everything equal but the minors, and these better; or nodes more that joint rules need not refuse."""
    verdict, detail = equality(case, answer)
    if verdict is not Verdict.WRONG or "minors" not in answer or "minors" not in case.expectations[0]:
        return verdict, detail
    expected = case.expectations[0]
    devices = {one["metadata"]["name"]: one for one in case.input["devices"]}
    won = [
        name
        for name, one in expected["filter"].items()
        if DEAD_END in one["reasons"] and answer["filter"].get(name, {}).get("code") == "Success"
    ]
    if difference(_without(expected, won), _without(answer, won)) or not _normalised(answer):
        return verdict, detail
    for node in case.input["nodes"]:
        name = node["metadata"]["name"]
        ours, theirs = answer["minors"].get(name), expected["minors"].get(name)
        if ours == theirs:
            continue
        scene = {
            "node": node,
            "device": devices.get(name),
            "pods": case.input.get("pods", []),
            "pod": case.input["pod"],
        }
        if not ours or _faults(scene, checker.entries(scene, ours)):
            return verdict, detail
        if name in won:
            continue
        if not theirs or not checker.objective(scene, checker.entries(scene, ours)) < checker.objective(
            scene, checker.entries(scene, theirs)
        ):
            return verdict, detail
    return Verdict.BETTER, detail


def _without(answer: Mapping[str, Any], nodes: list[str]) -> dict[str, Any]:
    """Leave nodes out, the minors, and where nodes are left out what depends on all of them."""
    kept = {
        key: one for key, one in answer.items() if key != "minors" and not (nodes and key == "normalized")
    }
    for key in ("filter", "raw"):
        kept[key] = {name: one for name, one in answer[key].items() if name not in nodes}
    return kept


def _normalised(answer: Mapping[str, Any]) -> bool:
    """Whether the scores follow from the raw ones, and both stand for the nodes that pass."""
    passed = {name for name, one in answer["filter"].items() if one["code"] == "Success"}
    best = max(answer["raw"].values(), default=0)
    expected = {name: raw * 100 // best if best else 0 for name, raw in answer["raw"].items()}
    return passed == set(answer["raw"]) == set(answer["minors"]) and expected == answer["normalized"]


# --- sequences --------------------------------------------------------------------------------------------


class _Story:
    """One run of a sequence, checked step by step against what it itself placed before."""

    def __init__(self, case: Case) -> None:
        self.nodes = {node["metadata"]["name"]: node for node in case.input["nodes"]}
        self.devices = {one["metadata"]["name"]: one for one in case.input["devices"]}
        self.held: dict[str, Any] = {}

    def scene(self, pod: Mapping[str, Any], node: str) -> dict[str, Any]:
        return {
            "node": self.nodes[node],
            "device": self.devices.get(node),
            "pods": list(self.held.values()),
            "pod": pod,
        }

    def take(self, event: Mapping[str, Any], step: Mapping[str, Any]) -> list[str]:
        """Follow one step; list what is illegal about it."""
        if "release" in event:
            freed = self.held.pop(event["release"], None) is not None
            return [] if step == {"release": event["release"], "freed": freed} else [f"release: {step}"]
        if not step.get("allocated"):
            return []
        wrong = checker.violations(self.scene(event["pod"], step["node"]), step["allocated"])
        self.held[step["pod"]] = {
            "metadata": {
                **event["pod"]["metadata"],
                "annotations": {checker.PREFIX + "device-allocated": json.dumps(step["allocated"])},
            },
            "spec": {"nodeName": step["node"], "containers": []},
        }
        return wrong

    def unsound(self, pod: Mapping[str, Any], step: Mapping[str, Any]) -> list[str]:
        """List what does not fit together in a step of a state that the reference never saw."""
        if step.get("stage") == "prefilter":
            return []
        metadata = pod["metadata"]
        key = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
        best = max(step["scores"], key=lambda name: step["scores"][name], default=None)
        placed = step.get("allocated")
        good = (
            step["pod"] == key
            and sorted([*step["failed"], *step["scores"]]) == sorted(self.nodes)
            and all(_refused({"stage": "filter", **one}) for one in step["failed"].values())
            and step.get("node") == best
            and step["stage"] == ("filter" if best is None else "done")
        )
        if not good:
            return [f"{step}"]
        return checker.misstated(self.scene(pod, step["node"]), placed) if placed else []


def judge_sequence(case: Case, answer: Any) -> Found:
    """Equal; or parting from the reference by a better or newly found placement, and legal throughout."""
    verdict, detail = equality(case, answer)
    ours, theirs = _Story(case), _Story(case)
    parted = case.ruled
    illegal: list[str] = []
    reference: Mapping[str, Any] = {"steps": [], "placed": 0} if case.ruled else case.expectations[0]
    derived = bool(case.raw.get("derived"))
    if len(answer["steps"]) != len(case.input["events"]):
        return Verdict.WRONG, detail
    for index, event in enumerate(case.input["events"]):
        mine = answer["steps"][index]
        other = reference["steps"][index] if index < len(reference["steps"]) else None
        if other is not None:
            unsound = theirs.take(event, other)
            illegal.extend(unsound)
            if other != mine and not parted:
                if "release" in event:
                    return Verdict.WRONG, detail
                parted = bool(unsound) or _parts_well(ours, event, mine, other)
                if not parted and not derived:
                    return Verdict.WRONG, detail
        wrong = [] if "release" in event or not parted else ours.unsound(event["pod"], mine)
        wrong += ours.take(event, mine)
        if wrong:
            return Verdict.WRONG, f"illegal: step {index}: {wrong}"
    counted = sum(1 for step in answer["steps"] if step.get("stage") == "done")
    if answer["placed"] != counted:
        return Verdict.WRONG, f"placed: {answer['placed']} of {counted}"
    if case.ruled or verdict is Verdict.EQUAL:
        return verdict, detail
    if illegal:
        return Verdict.RULED, f"the reference places illegally: {illegal}"
    if not parted or answer["placed"] < reference["placed"]:
        return Verdict.WRONG, detail
    return Verdict.BETTER, detail


def _parts_well(story: _Story, event: Mapping[str, Any], mine: Any, other: Any) -> bool:
    """Tell whether a step differs for the better, or because a ruling refuses what the reference takes.

    What both say of the other nodes has to be the same.
    """
    pod = event["pod"]
    if mine.get("stage") == "prefilter" or other.get("stage") == "prefilter":
        return False
    refused = [node for node in mine["failed"] if node not in other["failed"]]
    if not all(checker.scope_binds_partition(story.scene(pod, node)) for node in refused):
        return False
    won = [
        node
        for node, why in other["failed"].items()
        if DEAD_END in why["reasons"] and node not in mine["failed"]
    ]
    open_ = {*refused, *won}
    for key in ("failed", "scores"):
        left, right = (
            {node: one for node, one in step[key].items() if node not in open_} for step in (other, mine)
        )
        if difference(left, right):
            return False
    if open_ or mine["pod"] != other["pod"]:
        return bool(mine["pod"] == other["pod"])
    if not (mine.get("allocated") and other.get("allocated") and mine["node"] == other["node"]):
        return False
    scene = story.scene(pod, mine["node"])
    return bool(checker.objective(scene, mine["allocated"]) < checker.objective(scene, other["allocated"]))
