"""What recording costs a training step.

    python benchmarks/collector.py --rounds 400 --processes 5
    python benchmarks/collector.py --automatic 5

Always on: single steps with the collector off, on and off again, in one process and one training loop; the two off
arms show what the machine's noise alone makes of it. Then whole processes, recorded and not, in turn. In a window: our
windows against torch's profiler with the same options, and with modules and samples beside, in turn. Ratios are of
medians, round by round, with 95% bootstrap intervals; CPU time is of the whole process, our threads included, and
suffers less from others. With `--automatic`: whole processes that are not recorded and that are recorded as `lostflops
run` does by default, in turn: their means over all steps, since a median would not see the windows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from lostflops.collect.attach import attach
from lostflops.collect.capture import WindowRequest, rank_file, read_frames
from lostflops.collect.command import recorded_environment
from lostflops.collect.open_window import OpenWindow
from lostflops.collect.sampler import Sampler
from lostflops.collect.settings import DEFAULT_OPTIONS, Settings

CHILD = 40
AUTOMATIC = 80
"""Steps that hold both automatic windows."""
WINDOW = 5
WARM_UP = 15
BOOTSTRAPS = 2000


class Times(NamedTuple):
    wall: float
    cpu: float


Block = list[Times]


class Loop:
    """A small transformer on the CPU: some 1,500 operations a step."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        layer = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
        self._model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), foreach=False)
        data = torch.utils.data.TensorDataset(torch.randn(64, 72, 128))
        self._loader = torch.utils.data.DataLoader(data, batch_size=8)
        self._batches = iter(self._loader)

    def step(self) -> None:
        batch = next(self._batches, None)
        if batch is None:
            self._batches = iter(self._loader)
            batch = next(self._batches)
        self._optimizer.zero_grad()
        self._model(batch[0]).square().mean().backward()
        self._optimizer.step()

    def block(self, steps: int = 1, between: Callable[[], None] = lambda: None) -> Block:
        return [timed(lambda: (self.step(), between())) for _ in range(steps)]


def timed(action: Callable[[], Any]) -> Times:
    wall, cpu = time.perf_counter(), time.process_time()
    action()
    return Times(time.perf_counter() - wall, time.process_time() - cpu)


def ratio(above: Sequence[Block], below: Sequence[Block], field: int) -> tuple[float, float, float]:
    """Median over rounds of the ratio of a round's medians, and its interval over rounds that are drawn anew.

    Arms of one round follow each other, so that what else the machine does meets both.
    """
    chance = random.Random(0)
    pairs = zip(above, below, strict=True)
    ratios = [median(t[field] for t in first) / median(t[field] for t in second) for first, second in pairs]
    drawn = sorted(median(chance.choices(ratios, k=len(ratios))) for _ in range(BOOTSTRAPS))
    return median(ratios), drawn[int(0.025 * BOOTSTRAPS)], drawn[int(0.975 * BOOTSTRAPS)]


def show(name: str, above: Sequence[Block], below: Sequence[Block]) -> None:
    said = ["{:.3f} ({:.3f} to {:.3f})".format(*ratio(above, below, field)) for field in (0, 1)]
    step = median(t.wall for b in below for t in b) * 1e3
    print(f"| {name} | {step:.0f} ms | {said[0]} | {said[1]} |", flush=True)


def always_on(folder: Path, rounds: int) -> None:
    recorder = attach(Settings(folder=folder, steps="none", overhead=1.0))
    assert recorder is not None
    loop = Loop()
    loop.block(WARM_UP)
    arms: dict[str, list[Block]] = {"off": [], "on": [], "off again": []}
    for _ in range(rounds):
        for name, blocks in arms.items():
            recorder.is_off = name != "on"
            blocks.append(loop.block())
    recorder.is_off = False
    around = [before + after for before, after in zip(arms["off"], arms["off again"], strict=True)]
    show("on / off, in one process", arms["on"], around)
    show("off / off (noise)", arms["off again"], arms["off"])
    show_own(folder)
    in_window(recorder, loop, rounds)


def show_own(folder: Path) -> None:
    """What the collector says of itself: time on the training thread, of steps that were on throughout."""
    time.sleep(1)
    frames, _ = read_frames(rank_file(folder, 0))
    steps = [record for frame in frames for record in frame.records if record["kind"] == "step"][WARM_UP:]
    whole = median(step["stop"] - step["start"] for step in steps)
    own = median(step["own"] for step in steps)
    print(
        f"| own time on the training thread | {whole / 1e6:.1f} ms | {own / whole:.2%} ({own / 1e3:.0f} us) | |",
        flush=True,
    )


def in_window(recorder: Any, loop: Loop, rounds: int) -> None:
    def ours(options: frozenset[str]) -> Block:
        recorder.settings = replace(recorder.settings, options=options)
        window = OpenWindow(recorder, WindowRequest(0, 0, WINDOW), Sampler(recorder.put, recorder.wall))
        window.prepare()
        loop.step()
        window.start(0)
        try:
            return loop.block(WINDOW, lambda: window.next_step(1))
        finally:
            window.stop()

    def theirs() -> Block:
        kinds = [torch.profiler.ProfilerActivity.CPU]
        schedule = torch.profiler.schedule(wait=0, warmup=1, active=WINDOW + 1)
        with torch.profiler.profile(activities=kinds, record_shapes=True, schedule=schedule) as profile:
            loop.step()
            profile.step()
            return loop.block(WINDOW, profile.step)

    plain, all_options = frozenset({"shapes"}), DEFAULT_OPTIONS
    arms: dict[str, list[Block]] = {"plain": [], "theirs": [], "all": [], "none": []}
    ours(all_options), theirs()
    recorder.is_off = True
    for _ in range(max(1, rounds // 10)):
        arms["plain"].append(ours(plain))
        arms["theirs"].append(theirs())
        arms["all"].append(ours(all_options))
        loop.step()
        arms["none"].append(loop.block(WINDOW))
    show("our window / torch.profiler, both with shapes", arms["plain"], arms["theirs"])
    show("our window with modules and samples / torch.profiler", arms["all"], arms["theirs"])
    show("our window with modules and samples / none", arms["all"], arms["none"])
    show("torch.profiler / none", arms["theirs"], arms["none"])


def whole_processes(folder: Path, processes: int) -> None:
    environments = {
        "off": dict(os.environ),
        "on": recorded_environment(os.environ, Settings(folder=folder, steps="none")),
    }
    arms: dict[str, list[Block]] = {"off": [], "on": []}
    for _ in range(processes):
        for name, environment in environments.items():
            words = [sys.executable, __file__, "--child"]
            said = subprocess.run(words, env=environment, capture_output=True, check=True).stdout
            arms[name].append([Times(*found) for found in json.loads(said)])
    show("on / off, whole processes", arms["on"], arms["off"])


def automatic(folder: Path, processes: int) -> None:
    """What both automatic windows cost: with their steps, by step of a window, and between them."""
    arms: dict[str, list[Block]] = {"off": [], "on": []}
    for number in range(processes):
        settings = Settings(folder=folder / str(number))
        for name, environment in (("off", dict(os.environ)), ("on", recorded_environment(os.environ, settings))):
            words = [sys.executable, __file__, "--child", "--automatic", "1"]
            said = subprocess.run(words, env=environment, capture_output=True, check=True).stdout
            arms[name].append([Times(*found) for found in json.loads(said)])
    inside = _profiled(folder / "0")
    print(f"Steps that a window disturbed: {min(inside)} to {max(inside)}, {len(inside)} of {AUTOMATIC}\n")
    print("| | step | wall time | CPU time |\n|---|--:|--:|--:|")
    chosen = {
        "all steps from 3 on": set(range(3, AUTOMATIC)),
        "steps of windows": inside,
        "other steps from 3 on": set(range(3, AUTOMATIC)) - inside,
    }
    for name, steps in chosen.items():
        show(name, *([[_mean(block, steps)] for block in arms[arm]] for arm in ("on", "off")))


def _profiled(folder: Path) -> set[int]:
    frames, _ = read_frames(rank_file(folder, 0))
    return {r["step"] for frame in frames for r in frame.records if r["kind"] == "step" and r["profiled"]}


def _mean(block: Block, steps: set[int]) -> Times:
    own = [block[step] for step in sorted(steps)]
    return Times(*(sum(times) / len(own) for times in zip(*own, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--automatic", type=int, default=0, metavar="PROCESSES", help="measure the default windows")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        loop = Loop()
        loop.block(0 if chosen.automatic else WARM_UP)
        print(json.dumps(loop.block(AUTOMATIC if chosen.automatic else CHILD)))
        return
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    if chosen.automatic:
        with tempfile.TemporaryDirectory() as folder:
            automatic(Path(folder), chosen.automatic)
        return
    print("| | step | wall time | CPU time |\n|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        whole_processes(Path(folder) / "processes", chosen.processes)
        always_on(Path(folder) / "one", chosen.rounds)


if __name__ == "__main__":
    main()
