"""``--live`` against a server that answers as an API server does, by the official client and a kubeconfig."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from koordcore.cli import main
from koordcore.cli.live import ExpiredError, read_live
from koordcore.controlplane.kinds import CORE, GROUPS, JOBS
from koordcore.errors import ModelError
from koordcore.manifests.front_door_kinds import OPENERS, TRAIN_JOB
from koordcore.manifests.koordinator import KOORDINATOR
from koordcore.manifests.kubernetes import KUBERNETES
from koordcore.manifests.kueue import KUEUE

TOKEN = "let-me-in"
NODE = {"status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "9"}}}
POD = {
    "spec": {
        "schedulerName": "default-scheduler",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "6"}}}],
    }
}


def listed(kind: str, version: str, *items: tuple[str, dict[str, Any]], more: str = "") -> dict[str, Any]:
    return {
        "kind": f"{kind}List",
        "apiVersion": version,
        "metadata": {"continue": more} if more else {},
        "items": [{"metadata": {"name": name}, **rest} for name, rest in items],
    }


class Server(ThreadingHTTPServer):
    """Two nodes on two pages, three pods, a kind in an older version, one that is forbidden."""

    asked: list[tuple[str, str]]
    page: bytes = b""
    """What it says to everybody, where it is no API server."""

    def answer(self, path: str, following: str) -> tuple[int, dict[str, Any]]:
        if path == "/api/v1/nodes":
            return 200, listed("Node", "v1", ("n2", NODE)) if following else listed(
                "Node", "v1", ("n1", NODE), more="2"
            )
        if path == "/api/v1/pods":
            return 200, listed("Pod", "v1", *((name, POD) for name in "abc"))
        if path == "/apis":
            groups = {"kueue.x-k8s.io": ("v1beta2", "v1beta1"), "scheduling.k8s.io": ("v1",)}
            return 200, {
                "kind": "APIGroupList",
                "groups": [
                    {"name": name, "versions": [{"groupVersion": f"{name}/{one}"} for one in versions]}
                    for name, versions in groups.items()
                ],
            }
        if path == "/apis/kueue.x-k8s.io/v1beta1/resourceflavors":
            return 200, listed("ResourceFlavor", "kueue.x-k8s.io/v1beta1", ("old", {"spec": {}}))
        if path == "/apis/scheduling.k8s.io/v1/priorityclasses":
            return 403, {"kind": "Status", "message": "priorityclasses is forbidden for you"}
        return 404, {"kind": "Status", "message": "there is no such thing"}


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        following = parse_qs(asked.query).get("continue", [""])[0]
        self.server.asked.append((asked.path, following))
        code, body = self.server.answer(asked.path, following)
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            code, body = 401, {"kind": "Status", "message": "Unauthorized"}
        data = self.server.page or json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing on standard error."""


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    made.asked = []
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def kubeconfig(folder: Path, server: Server, token: str = TOKEN) -> str:
    path = folder / "config"
    name = "test"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The client's module that knows where the kubeconfig is."""
    pytest.importorskip("kubernetes", reason="the extra `live` is not installed")
    from kubernetes.config import kube_config  # type: ignore[import-not-found, unused-ignore]  # optional

    return kube_config


Run = tuple[int, str, str]


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> Run:
    code = main(argv)
    out = capsys.readouterr()
    return code, out.out, out.err


def test_a_cluster_is_read_through_its_kubeconfig(
    server: Server,
    config: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", kubeconfig(tmp_path, server))
    code, out, err = run(capsys, "schedule", "--live", "--context", "test")
    assert code == 1
    assert "2 of 3 pods placed on 2 nodes · 1 unschedulable" in out
    told = "priorityclasses is forbidden for you: it is not looked at"
    assert err == f"warning: --live: /apis/scheduling.k8s.io/v1/priorityclasses: {told}\n"
    assert ("/api/v1/nodes", "2") in server.asked
    older = [path for path, _ in server.asked if path.endswith("/resourceflavors")]
    assert older == [f"/apis/kueue.x-k8s.io/{one}/resourceflavors" for one in ("v1beta2", "v1beta1")]
    assert not [path for path, _ in server.asked if "secret" in path or "ray.io" in path]
    code, out, _ = run(capsys, "report", "--live", "-q", "-o", str(tmp_path / "page.html"))
    assert (code, "2 nodes" in out) == (0, True)


@pytest.mark.parametrize(
    ("token", "argv", "told"),
    [
        ("another", (), "/apis: 401 Unauthorized"),
        (TOKEN, ("--context", "nowhere"), "the kubeconfig has no context nowhere; there are test\n"),
        (TOKEN, ("--context", "tests"), "the kubeconfig has no context tests; did you mean test?\n"),
    ],
    ids=["who", "where", "slip"],
)
def test_a_refusal_is_a_line(
    server: Server,
    config: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    token: str,
    argv: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", kubeconfig(tmp_path, server, token))
    code, out, err = run(capsys, "inspect", "--live", *argv)
    assert (code, out) == (2, "")
    assert err.startswith("koordcore: --context: " if argv else "koordcore: --live: ")
    assert told in err
    assert err.count("\n") == 1


def test_a_server_that_is_gone_is_a_line(
    server: Server,
    config: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = kubeconfig(tmp_path, server)
    server.socket.close()
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", path)
    code, out, err = run(capsys, "inspect", "--live")
    host = f"http://127.0.0.1:{server.server_port}"
    assert (code, out, err) == (2, "", f"koordcore: --live: {host}: Connection refused\n")


def test_what_a_dump_may_hold_is_asked_of_a_live_cluster() -> None:
    """A kind that the loader learns is listed, too; configurations are files, CronJobs make no pods now."""
    known = {*KUBERNETES, *KOORDINATOR, *KUEUE, *OPENERS, TRAIN_JOB}
    elsewhere = {"ConfigMap", "CronJob", "KubeSchedulerConfiguration"}
    asked = {("", kind) for kind in CORE} | {
        (group, kind) for group, kinds in {**GROUPS, **JOBS}.items() for kind in kinds
    }
    lowered = {(group, kind.lower()) for group, kind in known if kind not in elsewhere}
    plurals = {
        (
            group,
            f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}es" if kind.endswith("ss") else f"{kind}s",
        )
        for group, kind in lowered
    }
    others = {
        ("", "services"),  # kept as they are: who spreads over zones reads their selectors
        ("trainer.kubeflow.org", "clustertrainingruntimes"),
        ("trainer.kubeflow.org", "trainingruntimes"),
    }
    assert asked == plurals | others


def test_pages_that_expire_are_taken_as_a_whole() -> None:
    """As kubectl does it; what had come of the pages does not come twice."""
    asked: list[dict[str, str]] = []

    def fetch(path: str, query: dict[str, str]) -> dict[str, Any] | None:
        if path != "api/v1/nodes":
            return (
                {"groups": []} if path == "apis" else listed("Pod", "v1") if path.endswith("pods") else None
            )
        asked.append(query)
        if "continue" in query:
            raise ExpiredError("410 The provided continue parameter is too old")
        rest = () if "limit" in query else (("n2", NODE),)
        return listed("Node", "v1", ("n1", NODE), *rest, more="2" if "limit" in query else "")

    assert [one.raw for one in read_live(fetch)] == [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, **NODE} for name in ("n1", "n2")
    ]
    assert len(asked) == 3


@pytest.mark.parametrize(
    "page", [b"<html>Log in</html>", b"[]", b"[" * 100_000], ids=["html", "list", "deep"]
)
def test_what_is_no_api_server_is_told(
    page: bytes,
    server: Server,
    config: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.page = page
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", kubeconfig(tmp_path, server))
    code, _, err = run(capsys, "schedule", "--live")
    assert code == 2
    assert "the answer is no JSON object: is this an API server?" in err


def pods_of(answer: dict[str, Any]) -> list[Any]:
    """Read a cluster whose server gives this answer when it is asked for pods."""

    def fetch(path: str, query: dict[str, str]) -> dict[str, Any] | None:
        if path == "api/v1/pods":
            return answer
        return {"groups": []} if path == "apis" else listed("Node", "v1") if path.endswith("nodes") else None

    return [one.raw for one in read_live(fetch)]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"kind": "Status", "status": "Failure", "message": "too busy"}, "the answer is no list: too busy"),
        ({"items": [POD]}, "the answer is no list"),
        ({"kind": "PodList", "items": {"a": POD}}, "the answer is no list"),
        ({"kind": "PodList", "items": "abc"}, "the answer is no list"),
        (listed("Pod", "v1", more="2"), "the server gives the same page again and again"),
    ],
    ids=["status", "kindless", "mapping", "text", "same page"],
)
def test_an_answer_that_is_no_list_of_pods_is_told(answer: dict[str, Any], told: str) -> None:
    """It was taken for a cluster without pods, or ended the command as a defect, or never ended."""
    with pytest.raises(ModelError, match=f"^--live: /api/v1/pods: {told}$"):
        pods_of(answer)


def test_a_broken_item_leaves_the_others() -> None:
    """What is no object is named by who reads the objects; nothing in a list is needed but its kind."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    answer = {"kind": "PodList", "metadata": "?", "items": [None, 3, {"metadata": {"name": "a"}}]}
    assert pods_of(answer) == [None, 3, pod]
    assert pods_of({"kind": "PodList", "items": None, "metadata": None}) == []


@pytest.mark.parametrize("groups", [[None], [{"name": "policy"}], "abc"], ids=["nothing", "bare", "text"])
def test_groups_that_are_none_are_told(groups: Any) -> None:
    with pytest.raises(ModelError, match="--live: /apis: the answer is no list of groups"):
        list(read_live(lambda path, _: {"groups": groups} if path == "apis" else None))


@pytest.mark.parametrize("text", [b"{", b"[]", b"\xff\xfe\x00"], ids=["cut", "list", "binary"])
def test_a_broken_kubeconfig_is_a_line(
    text: bytes,
    config: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "config"
    path.write_bytes(text)
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    code, out, err = run(capsys, "inspect", "--live")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("koordcore: --live: the kubeconfig cannot be read: ")


@pytest.mark.parametrize("command", ["no-such-plugin", "false"])
def test_a_plugin_that_gives_no_credentials_is_a_line(
    command: str,
    server: Server,
    config: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The client would log it and ask on as nobody, which a server may answer for some kinds."""
    path = Path(kubeconfig(tmp_path, server))
    written = json.loads(path.read_text(encoding="utf-8"))
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": command}
    written["users"][0]["user"] = {"exec": plugin}
    path.write_text(json.dumps(written), encoding="utf-8")
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    code, out, err = run(capsys, "inspect", "--live")
    assert (code, out, err.count("\n"), server.asked) == (2, "", 1, [])
    assert err.startswith("koordcore: --live: the kubeconfig's credentials cannot be had: ")


def test_a_plugin_gives_the_token(
    server: Server,
    config: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = Path(kubeconfig(tmp_path, server))
    written = json.loads(path.read_text(encoding="utf-8"))
    version = "client.authentication.k8s.io/v1"
    told = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": TOKEN}}
    plugin = {"apiVersion": version, "command": "echo", "args": [json.dumps(told)]}
    written["users"][0]["user"] = {"exec": plugin}
    path.write_text(json.dumps(written), encoding="utf-8")
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    code, out, _ = run(capsys, "inspect", "--live", "-q")
    assert (code, "2 nodes" in out) == (0, True)
