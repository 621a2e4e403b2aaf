"""Ctrl-C at any moment: one line, code 130, within a second of grace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENDS = "koordcore: interrupted\n"
posix = pytest.mark.skipif(os.name != "posix", reason="signals of a terminal")


HEARS = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""As in a terminal, also where the tests themselves run in the background, which ignores Ctrl-C."""


def interrupted(code: str) -> tuple[int, str, str]:
    """Run a program that says ``ready``, press Ctrl-C, and give how it ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HEARS + textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        while process.stdout.readline() not in ("ready\n", ""):
            pass
        try:
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()  # else who does not end would be waited for without end
        return process.returncode, out, err


@posix
def test_while_it_starts() -> None:
    """Some module is being read; it does not come back in time."""
    code, out, err = interrupted(
        """
        import builtins, sys, time
        read = builtins.__import__
        def slowly(name, *rest):
            if name.startswith("koordcore.cli.words"):
                print("ready", flush=True)
                time.sleep(30)
            return read(name, *rest)
        builtins.__import__ = slowly
        sys.argv = ["koordcore", "schedule", "examples/gpu-cluster.yaml"]
        from koordcore.__main__ import run
        run()
        """
    )
    assert (code, out, err) == (130, "", ENDS)


@posix
def test_in_a_callback_of_the_first_import() -> None:
    """Python drops what is raised there; the key counts all the same."""
    code, out, err = interrupted(
        """
        import builtins, sys, time
        read = builtins.__import__
        def slowly(name, *rest):
            if name.startswith("koordcore.cli.interrupt"):
                print("ready", flush=True)
                try:
                    time.sleep(30)
                except KeyboardInterrupt:
                    pass
            return read(name, *rest)
        builtins.__import__ = slowly
        sys.argv = ["koordcore", "schedule", "examples/gpu-cluster.yaml"]
        from koordcore.__main__ import run
        run()
        """
    )
    assert (code, out, err) == (130, "", ENDS)


@posix
def test_who_is_told_not_to_listen_does_not() -> None:
    """A shell starts what runs in the background so."""
    code, out, _ = interrupted(
        """
        import os, signal, sys
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        from koordcore.__main__ import run
        print("ready", flush=True)
        os.kill(os.getpid(), signal.SIGINT)
        sys.argv = ["koordcore", "--version"]
        sys.exit(run())
        """
    )
    assert code == 0
    assert out.startswith("koordcore ")


@posix
def test_while_python_does_not_listen() -> None:
    """A computation below Python takes long, and hears of no exception."""
    code, out, err = interrupted(
        """
        import sys, time
        from importlib import import_module
        module = import_module("koordcore.cli.main")
        def deaf(arguments):
            print("ready", flush=True)
            while True:
                try:
                    time.sleep(5)
                except KeyboardInterrupt:
                    pass
        module._run = deaf
        sys.argv = ["koordcore", "schedule", "examples/gpu-cluster.yaml"]
        from koordcore.__main__ import run
        run()
        """
    )
    assert (code, out, err) == (130, "", ENDS)


@posix
def test_a_sweep_shows_what_is_done() -> None:
    """Of two runs one is done when Ctrl-C comes: its row is printed, and the workers are gone."""
    code, out, err = interrupted(
        """
        import sys
        import koordcore.cli.simulate as simulate
        import koordcore.simulate.scenario as scenario
        from koordcore.simulate.scenario import Cell, Clock
        cells = [Cell("default", name, 1, Clock.FILL, 1) for name in ("bestfit", "fgd")]
        def sweep(wanted, play, executor, *, store, progress):
            store.save(scenario.play_cell(folder, cells[0]))
            print("ready", flush=True)
            import time
            time.sleep(30)
        from pathlib import Path
        import tempfile
        folder = Path(tempfile.mkdtemp())
        (folder / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\\nn,96000,262144,8,V100\\n")
        head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase"
        head += ",creation_time,deletion_time,scheduled_time"
        rows = [f"p{n},1000,1024,1,1000,,LS,Running,{n},{n + 100},{n}" for n in range(4)]
        (folder / "pods_default.csv").write_text("\\n".join([head, *rows]) + "\\n")
        simulate.sweep = sweep
        words = ["--policy", "bestfit", "--policy", "fgd", "--seed", "1"]
        sys.argv = ["koordcore", "simulate", str(folder), *words]
        from koordcore.__main__ import run
        run()
        """
    )
    assert code == 130
    assert "bestfit" in out
    assert err == "koordcore: 1 of 2 runs are done\n" + ENDS


@posix
def test_with_processes_at_work() -> None:
    """Nothing is said of their semaphores, by whoever cleans up behind the command."""
    code, out, err = interrupted(
        """
        import sys, time
        from importlib import import_module
        from koordcore.cli.pools import WorkerPool
        def busy(arguments):
            with WorkerPool(1) as pool:
                started = pool.submit(abs, -1)
                started.result()
                print("ready", flush=True)
                pool.submit(time.sleep, 30).result()
        import_module("koordcore.cli.main")._run = busy
        sys.argv = ["koordcore", "simulate", "openb"]
        from koordcore.__main__ import run
        run()
        """
    )
    assert (code, out, err) == (130, "", ENDS)
