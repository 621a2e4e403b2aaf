"""A cluster to try schedulers on: objects in, schedulers started and killed, figures out."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from examples.kubernetes.api import Api, Listing, Object, RefusedError, UnreachableError
from examples.kubernetes.testbed.apiserver import Server
from examples.kubernetes.testbed.kubelets import Kubelets
from examples.kubernetes.testbed.world import GROUPS
from koordcore.controlplane import RESOURCES

__all__ = ["Bed", "Patient", "Process"]

T = TypeVar("T")


class Patient:
    """An API server that is asked again for as long as it does not answer, or is busy.

    Not for schedulers: they have to get along with a server that fails them.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self.watch = api.watch
        self.closed = False

    def list_all(self, path: str) -> Listing:
        """List all objects under a path."""
        return self._insist(lambda: self._api.list_all(path))

    def send(self, method: str, path: str, body: Object | None = None, content_type: str = "") -> Object:
        """Make one request, several times if need be, and give the answer."""
        return self._insist(lambda: self._api.send(method, path, body, content_type))

    def _insist(self, ask: Callable[[], T]) -> T:
        while True:
            try:
                return ask()
            except (UnreachableError, RefusedError) as error:
                if self.closed or (isinstance(error, RefusedError) and not error.passing):
                    raise
                time.sleep(0.5)


class Process:
    """A scheduler in a process of its own.

    Parameters
    ----------
    kubeconfig
        Of the server.
    log
        Where it writes its log.
    settings
        Fields of its settings, as flags.
    """

    def __init__(self, kubeconfig: Path, log: Path, **settings: Any) -> None:
        flags = [f"--{name}={value}" for name, value in settings.items()]
        command = [
            sys.executable,
            "-m",
            "examples.kubernetes",
            "--verbose",
            f"--kubeconfig={kubeconfig}",
            *flags,
        ]
        with log.open("ab") as out:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out)
        self.cycles: list[dict[str, Any]] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                self.cycles.append(json.loads(line))
                self._ready.set()
            except ValueError:  # cut off by a kill
                return

    def wait_ready(self, timeout: float) -> None:
        """Wait until it has looked around and finished what it found; that is its first report."""
        self._ready.wait(timeout)

    @property
    def dead(self) -> bool:
        """Whether it has ended, by itself or not."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """End it at once, in whatever it is doing."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join(5)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class Bed:
    """The cluster with its stand-in kubelets.

    Parameters
    ----------
    api
        Speaks with the server.
    server
        The server.
    log
        Log of all schedulers.
    """

    def __init__(self, api: Api, server: Server, log: Path) -> None:
        self.api, self.server, self.log = Patient(api), server, log
        self._pool = ThreadPoolExecutor(16)
        self.kubelets = Kubelets(self.api)

    def define(self, definitions: Iterable[Object]) -> None:
        """Make the kinds of Koordinator known, and wait until they can be listed."""
        for one in definitions:
            self.api.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", one)
        for path in RESOURCES.values():
            while True:
                try:
                    self.api.list_all(path)
                    break
                except RefusedError:
                    time.sleep(0.1)

    def permit(self, objects: Iterable[Object]) -> None:
        """Give the scheduler's account its rights."""
        for one in objects:
            group = one["apiVersion"] if "/" in one["apiVersion"] else ""
            namespace = one["metadata"].get("namespace", "")
            parts = ("apis", group) if group else ("api", one["apiVersion"])
            where = ("namespaces", namespace) if namespace else ()
            self.api.send("POST", "/".join(("", *parts, *where, f"{one['kind'].lower()}s")), one)

    def open(self, objects: Iterable[tuple[str, Object]]) -> None:
        """Make what stands there from the beginning, and start the kubelets."""
        self.create(objects)
        self.kubelets.start()

    def create(self, objects: Iterable[tuple[str, Object]]) -> None:
        """Make objects; pods after everything else."""
        listed = list(objects)
        for pods in (False, True):
            chosen = [one for one in listed if one[0].endswith("/pods") is pods]
            list(self._pool.map(self._make, chosen))

    def bring(self, one: tuple[str, Object]) -> None:
        """Make an object, and do not wait."""
        self._pool.submit(self._make, one)

    def _make(self, one: tuple[str, Object]) -> None:
        try:
            self.api.send("POST", *one)
        except RefusedError as error:
            if error.status != 409:  # made before, and the answer was lost
                raise

    def scheduler(self, *, port: int | None = None, **settings: Any) -> Process:
        """Start a scheduler, which reaches the server by its own port or by another one."""
        kubeconfig = self.server.scheduler
        if port is not None:
            found = json.loads(kubeconfig.read_text())
            found["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
            kubeconfig = kubeconfig.with_name(f"{kubeconfig.name}-{port}")
            kubeconfig.write_text(json.dumps(found))
        return Process(kubeconfig, self.log, **settings)

    @property
    def port(self) -> int:
        """Where the server listens."""
        found = json.loads(self.server.kubeconfig.read_text())
        return int(found["clusters"][0]["cluster"]["server"].rpartition(":")[2])

    def end(self, names: Iterable[str]) -> None:
        """Delete pods, and wait until they are gone."""
        gone = set(names)
        list(self._pool.map(self.drop, sorted(gone)))
        self._wait_gone(lambda: gone.isdisjoint(self.kubelets.pods), len(gone))

    def close(self) -> None:
        """Stop the kubelets."""
        self.api.closed = True
        self.kubelets.stop()
        self._pool.shutdown(cancel_futures=True)

    def clear(self) -> None:
        """Delete all pods, groups and quotas, and wait until they are gone."""
        for collection in (GROUPS, *(RESOURCES[kind] for kind in ("PodGroup", "ElasticQuota", "Pod"))):
            for item in self.api.list_all(collection).items:
                head, _, plural = collection.rpartition("/")
                metadata = item["metadata"]
                path = f"{head}/namespaces/{metadata['namespace']}/{plural}/{metadata['name']}"
                self._pool.submit(self._delete, path)
        self._wait_gone(lambda: not self.kubelets.pods, len(self.kubelets.pods))

    def _wait_gone(self, are_gone: Callable[[], bool], number: int) -> None:
        # A busy server on two cores deletes some fifty a second.
        assert self.kubelets.wait(are_gone, 120 + number / 50), "pods do not go"

    def drop(self, name: str) -> None:
        """Delete a pod, and do not wait."""
        self._delete(f"/api/v1/namespaces/default/pods/{name}")

    def _delete(self, path: str) -> None:
        try:
            self.api.send("DELETE", path, {"gracePeriodSeconds": 0})
        except RefusedError as error:
            if error.status != 404:
                raise

    def running(self, prefix: str = "") -> int:
        """How many pods have a node."""
        return len(self.kubelets.running(prefix))

    def until(self, *, pods: int, seconds: float, prefix: str = "", moves: int | None = None) -> None:
        """Wait until so many pods have a node, so many more have come or gone, or the time is over."""
        before = self.kubelets.moves

        def reached() -> bool:
            enough = moves is not None and self.kubelets.moves - before >= moves
            return enough or self.running(prefix) >= pods

        self.kubelets.wait(reached, seconds)
