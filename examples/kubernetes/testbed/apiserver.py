"""An API server on the loopback interface: built on the first use, started, stopped.

``python -m examples.kubernetes.testbed.apiserver`` runs one until interrupted and prints its kubeconfig.
Needed are Go, OpenSSL, and etcd (Debian's ``etcd-server``); building takes a quarter of an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

__all__ = ["Server", "build", "cache_folder", "running"]

_VERSION: Final = "1.37.1"
_MODULE: Final = "k8s.io/kubernetes"
_PATIENCE: Final = 120.0
_ACCOUNT: Final = "system:serviceaccount:kube-system:koordcore"
_GATES: Final = (
    "GenericWorkload",
    "TopologyAwareWorkloadScheduling",
    "CompositePodGroup",
    "PodGroupPreemptionPolicy",
    "DRAWorkloadResourceClaims",
)
"""What Kubernetes' own groups of pods need."""


def cache_folder(given: Path | None) -> Path:
    """Where the server's binary is kept: as asked, or among the user's caches."""
    home = os.environ.get("XDG_CACHE_HOME")  # noqa: TID251  # a tool for people, not the library
    return given or Path(home or Path.home() / ".cache") / "koordcore"


def build(cache: Path) -> Path:
    """Build kube-apiserver from the Go module proxy, unless it is there, and say so."""
    binary = cache / f"kube-apiserver-{_VERSION}"
    if binary.exists():
        _say(f"using {binary}, which was built before")
        return binary
    go = _tool("go", "/usr/local/go/bin")
    with tempfile.TemporaryDirectory() as folder:
        _say(f"building kube-apiserver {_VERSION}: a quarter of an hour on two cores, once")
        _say(f"  1 of 2: downloading {_MODULE} v{_VERSION} from the Go module proxy")
        download = [go, "mod", "download", "-json", f"{_MODULE}@v{_VERSION}"]
        found = json.loads(subprocess.run(download, cwd=folder, check=True, stdout=subprocess.PIPE).stdout)
        # The modules that live in Kubernetes' own repository have no versions in its go.mod.
        declared = Path(found["GoMod"]).read_text()
        staged = re.findall(r"^\s*(\S+) => \./staging/", declared, re.MULTILINE)
        lines = [
            "module apiserver",
            *re.findall(r"^go \S+", declared, re.MULTILINE),
            f"require {_MODULE} v{_VERSION}",
            *(f"replace {name} => {name} v0.{_VERSION.partition('.')[2]}" for name in sorted(staged)),
        ]
        Path(folder, "go.mod").write_text("\n".join(lines) + "\n")
        cache.mkdir(parents=True, exist_ok=True)
        partly = binary.with_name(f"{binary.name}.part")
        _say(f"  2 of 2: compiling it and {len(staged)} modules of Kubernetes' own repository")
        command = [go, "build", "-mod=mod", "-p=2", "-ldflags=-s -w", "-o", str(partly)]
        subprocess.run(["nice", *command, f"{_MODULE}/cmd/kube-apiserver"], cwd=folder, check=True)
        partly.rename(binary)
    _say(f"built {binary}")
    return binary


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _given(path: Path) -> Path:
    """Take a server that is there already."""
    if not os.access(path, os.X_OK):
        raise SystemExit(f"{path}: no kube-apiserver that can be run")
    _say(f"using {path}, as asked")
    return path


def _tool(name: str, *further: str) -> str:
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(further))
    if found is None:
        raise SystemExit(f"{name} is needed and not installed")
    return found


@attrs.frozen
class Server:
    """A server that runs.

    Parameters
    ----------
    kubeconfig
        How it is reached by who may do everything.
    scheduler
        How it is reached by the scheduler's account, which may do what ``rbac.yaml`` gives it.
    etcd
        Where its etcd listens.
    """

    kubeconfig: Path
    scheduler: Path
    etcd: str

    def forget(self) -> None:
        """Let etcd forget all versions but the last: who asks for what has happened since one is told 410."""
        revision = self._ask("range", {"key": "AA=="})["header"]["revision"]
        self._ask("compaction", {"revision": revision, "physical": True})

    def _ask(self, what: str, question: object) -> Any:
        data = json.dumps(question).encode()
        with urllib.request.urlopen(f"{self.etcd}/v3/kv/{what}", data, timeout=30) as answer:
            return json.load(answer)


@contextmanager
def running(cache: Path, binary: Path | None = None) -> Iterator[Server]:
    """Run etcd and kube-apiserver for as long as the block lasts.

    Parameters
    ----------
    cache
        Folder in which the server is built where none is given.
    binary
        A kube-apiserver that is there.
    """
    binary = build(cache) if binary is None else _given(binary)
    etcd = _tool("etcd", "/usr/sbin", "/usr/local/bin")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # or the servers would outlive us
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="koordcore-")))
        clients, peers, port = _free_ports(3)
        token, narrow = secrets.token_hex(16), secrets.token_hex(16)
        accounts = f"{token},admin,admin,system:masters\n{narrow},{_ACCOUNT},{_ACCOUNT}\n"
        (folder / "tokens").write_text(accounts)
        key = folder / "accounts.key"
        subprocess.run(
            [_tool("openssl"), "genrsa", "-out", str(key), "2048"], check=True, capture_output=True
        )
        stack.enter_context(_process(_etcd(etcd, folder, clients, peers), folder / "etcd.log"))
        stack.enter_context(_process(_apiserver(binary, folder, clients, port), folder / "apiserver.log"))
        found = {"kubeconfig": token, "kubeconfig-scheduler": narrow}
        for name, secret in found.items():
            (folder / name).write_text(json.dumps(_kubeconfig(folder, port, secret)))
        _await_ready(f"https://127.0.0.1:{port}/readyz", token, folder)
        yield Server(*(folder / name for name in found), f"http://127.0.0.1:{clients}")


def _etcd(binary: str, folder: Path, clients: int, peers: int) -> list[str]:
    at, to = f"http://127.0.0.1:{clients}", f"http://127.0.0.1:{peers}"
    flags = {
        "data-dir": folder / "etcd",
        "listen-client-urls": at,
        "advertise-client-urls": at,
        "listen-peer-urls": to,
        "initial-advertise-peer-urls": to,
        "initial-cluster": f"default={to}",
        "unsafe-no-fsync": "true",  # nothing of this outlives the run
    }
    return [binary, *(f"--{name}={value}" for name, value in flags.items())]


def _apiserver(binary: Path, folder: Path, clients: int, port: int) -> list[str]:
    flags = {
        "etcd-servers": f"http://127.0.0.1:{clients}",
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": port,
        "cert-dir": folder / "certs",
        "token-auth-file": folder / "tokens",
        "authorization-mode": "RBAC",
        "service-account-issuer": "https://koordcore.invalid",
        "service-account-key-file": folder / "accounts.key",
        "service-account-signing-key-file": folder / "accounts.key",
        "service-cluster-ip-range": "10.0.0.0/24",
        "endpoint-reconciler-type": "none",  # nobody looks for a server on a loopback address
        "feature-gates": ",".join(f"{gate}=true" for gate in _GATES),
        "runtime-config": "scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true",
        # Else its cache knows what etcd has forgotten.
        "watch-cache-sizes": "pods#0",
        # Both wait for controllers that are not here: one for accounts, one for kubelets that are ready.
        "disable-admission-plugins": "ServiceAccount,TaintNodesByCondition",
    }
    return [str(binary), *(f"--{name}={value}" for name, value in flags.items())]


def _kubeconfig(folder: Path, port: int, token: str) -> dict[str, object]:
    server = {
        "server": f"https://127.0.0.1:{port}",
        "certificate-authority": str(folder / "certs" / "apiserver.crt"),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testbed", "cluster": server}],
        "users": [{"name": "who", "user": {"token": token}}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "who"}}],
        "current-context": "testbed",
    }


@contextmanager
def _process(command: Sequence[str], log: Path) -> Iterator[None]:
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _await_ready(url: str, token: str, folder: Path) -> None:
    certificate = folder / "certs" / "apiserver.crt"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        time.sleep(0.2)
        if certificate.exists():
            try:
                context = ssl.create_default_context(cafile=str(certificate))
                with urllib.request.urlopen(request, context=context):
                    return
            except (OSError, urllib.error.URLError):
                continue
    tail = (folder / "apiserver.log").read_text(errors="replace")[-2000:]
    raise SystemExit(f"the API server did not come up:\n{tail}")


def main() -> None:
    """Run a server until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, help="folder of the binary; a folder of the user's caches")
    parser.add_argument("--kube-apiserver", type=Path, help="a server that is there; nothing is built then")
    arguments = parser.parse_args()
    with running(cache_folder(arguments.cache), arguments.kube_apiserver) as server:
        print(server.kubeconfig, flush=True)
        try:
            while True:
                time.sleep(3600)
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
