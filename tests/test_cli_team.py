"""``torchrun -m edgewise fit``: one voice, the same files, and a way on after a lost process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgewise.cli import main

FIT = ["fit", "wine", "--max-outer-iterations", "2", "--seed", "1", "--threads", "1"]


def torchrun(folder, *more):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    work = [*command, "-m", "edgewise", *FIT, *more]
    return subprocess.Popen(work, cwd=folder, text=True, **pipes)


def iterations(checkpoint):
    try:
        with checkpoint.open("rb") as file:
            return len(json.loads(file.readline())["progress"]["history"])
    except (FileNotFoundError, ValueError):
        return 0


def worker(agent, rank):
    """The process that an agent of torchrun has started under a number."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == agent and f"RANK={rank}" in (entry / "environ").read_text().split("\0"):
                return int(entry.name)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # gone by now, or somebody else's
    raise AssertionError(f"there is no process {rank}")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
def test_a_killed_fit_goes_on_to_the_files_of_one_process(tmp_path):
    with pytest.raises(SystemExit) as ended:
        main([*FIT, "--out", str(tmp_path / "alone")])
    assert ended.value.code == 0

    agent = torchrun(tmp_path, "--checkpoint", "state")
    while not iterations(tmp_path / "state.process-1"):
        assert agent.poll() is None, agent.communicate()
        time.sleep(0.02)
    os.kill(worker(agent.pid, 1), signal.SIGKILL)
    _, errors = agent.communicate(timeout=120)
    assert agent.returncode != 0
    (ours,) = [line for line in errors.splitlines() if line.startswith("edgewise: ")]
    assert ours.startswith("edgewise: process 1 of 2 was lost")
    again = f"-m edgewise {' '.join(FIT)} --checkpoint state"
    assert ours.endswith(f". To go on: torchrun --nproc-per-node 2 {again}")

    agent = torchrun(tmp_path, "--checkpoint", "state", "--out", "team", "--json")
    printed, errors = agent.communicate(timeout=120)
    assert agent.returncode == 0, errors
    metrics = json.loads(printed)  # one object, so one process spoke
    assert metrics["processes"] == 2
    assert min(metrics["received_bytes_of_each"]) > 0
    for name in ("edges.csv", "predictions.csv"):
        assert (tmp_path / "team" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


@pytest.mark.parametrize(("rank", "spoken"), [(0, "edgewise: edgewise datasets works in"), (1, "")])
def test_other_commands_refuse_torchrun_with_one_voice(rank, spoken, monkeypatch, capsys):
    launched = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}
    for name, value in launched.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(SystemExit) as ended:
        main(["datasets"])
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(spoken)
    assert captured.err.count("\n") == bool(spoken)
