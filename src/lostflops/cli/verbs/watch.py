"""`lostflops watch`: follow a job while it runs."""

import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lostflops.cli.output import JobArgument, JsonOption, command, show
from lostflops.cli.scope import ModelFlopsOption, PeakOption

if TYPE_CHECKING:
    from lostflops.live.board import Board, StepLine
    from lostflops.live.follow import Follower
    from lostflops.live.notices import Notice
    from lostflops.live.otel import Exporter
    from lostflops.live.utilization import Utilization
    from lostflops.live.watching import WatchInterval

EXAMPLE = "lostflops watch run --prometheus /var/lib/node_exporter/lostflops.prom"
_LINES_PER_HEADING = 40
_INGESTED = "run.json"
"""The file that an ingest writes (`FILE_NAME` in store/manifest.py, whose import would delay the first line)."""


class PeakDtype(StrEnum):
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    FP32 = "fp32"
    TF32 = "tf32"


def watch(
    run: JobArgument,
    *,
    once: Annotated[bool, typer.Option("--once", help="Show what has been recorded so far, and exit.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.05, metavar="S", help="Seconds between updates.")
    ] = 1.0,
    last: Annotated[int, typer.Option("--last", min=0, metavar="N", help="Past steps to show at the start.")] = 20,
    wait: Annotated[
        float,
        typer.Option("--wait", min=0, metavar="S", help="Seconds to wait for missing ranks before showing a step."),
    ] = 10.0,
    patience: Annotated[
        float, typer.Option("--patience", min=0, metavar="S", help="Exit after this many seconds without new data.")
    ] = 600.0,
    model_flops: ModelFlopsOption = None,
    peak_tflops: PeakOption = None,
    dtype: Annotated[
        PeakDtype | None,
        typer.Option("--dtype", help="Dtype of the peak to use for MFU.", show_default=False),
    ] = None,
    prometheus: Annotated[
        Path | None,
        typer.Option(
            "--prometheus", metavar="FILE", help="Write metrics to this text file (*.prom).", show_default=False
        ),
    ] = None,
    otlp: Annotated[
        str | None,
        typer.Option("--otlp", metavar="ENDPOINT", help="Send metrics to this OTLP endpoint.", show_default=False),
    ] = None,
    otel: Annotated[bool, typer.Option("--otel", help="The same, to the endpoint set in OTEL_* variables.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Follow a job while it runs.

    One line per step: time, data share, throughput, memory, MFU, and the rank that enqueues collectives last. Shows
    which ranks stop reporting. Ends with a summary (Ctrl-C). With --json, prints one object per line.
    """
    from lostflops.collect.capture import FOLDER
    from lostflops.core.errors import NotARun
    from lostflops.live.board import Board
    from lostflops.live.follow import Follower
    from lostflops.live.otel import exporter
    from lostflops.live.utilization import Utilization
    from lostflops.live.watching import AFTER_END, WatchInterval

    folder, is_ingested = run / FOLDER, (run / _INGESTED).is_file()
    if is_ingested and not folder.is_dir():
        raise NotARun(f"{run} was made from traces, so there is no job to follow. To read it: {command('report', run)}")
    if once and not folder.is_dir():
        raise NotARun(f"{run} has no capture; record one with {command('run', '--out', run)} -- COMMAND")
    intervals = WatchInterval(interval, patience, once)
    if is_ingested:  # a run is ingested when its job has ended, or of some windows while it goes on
        intervals = WatchInterval(interval, min(patience, AFTER_END), once, after_end=0.0)
    sender = exporter(otlp, os.environ) if otlp or otel else None
    screen = _Screen(
        utilization=Utilization(model_flops, peak_tflops, dtype.value if dtype else None),
        as_json=as_json,
        prometheus=prometheus,
        sender=sender,
    )
    if not folder.is_dir() and not as_json:
        print(f"Waiting for {folder}.", flush=True)
    board, follower = Board(wait=wait), Follower(folder=folder)
    with suppress(KeyboardInterrupt):
        _follow(follower, board, intervals, screen, last)
    _end(run, follower, board, screen)


@dataclass(slots=True, kw_only=True)
class _Screen:
    """The outputs that lines are written to."""

    utilization: "Utilization"
    as_json: bool
    prometheus: Path | None
    sender: "Exporter | None"
    mfu: float | None = None
    lines: int = 0

    def say(self, item: "StepLine | Notice", board: "Board") -> None:
        from lostflops.live.board import StepLine
        from lostflops.live.wording import HEADING, notice_json, step_json, step_text

        if not isinstance(item, StepLine):
            print(json.dumps(notice_json(item)) if self.as_json else item.text)
            return
        attempt = board.attempts[item.attempt]
        self.mfu = self.utilization.mfu(item.time, attempt)
        if self.as_json:
            print(json.dumps(step_json(item, self.mfu)))
            return
        if not self.lines and (reason := self.utilization.reason(attempt)):
            print(f"MFU is unknown: {reason}.")
        if not self.lines or (sys.stdout.isatty() and self.lines % _LINES_PER_HEADING == 0):
            print(HEADING)
        print(step_text(item, self.mfu))
        self.lines += 1

    def export(self, board: "Board") -> None:
        from lostflops.live import prometheus
        from lostflops.live.metrics import collect

        if self.prometheus is None and self.sender is None:
            return
        samples = collect(board, self.mfu, time.time() - time.monotonic())
        if self.prometheus is not None:
            prometheus.write(self.prometheus, samples)
        if self.sender is not None:
            self.sender.update(samples)


def _follow(follower: "Follower", board: "Board", pace: "WatchInterval", screen: _Screen, last: int) -> None:
    from lostflops.live.board import StepLine
    from lostflops.live.watching import watch as look

    is_past = True
    for said in look(follower, board, pace):
        steps = [item for item in said if isinstance(item, StepLine)]
        hidden = {id(item) for item in steps[: len(steps) - last]} if is_past and len(steps) > last else set()
        is_past = is_past and not said
        for item in said:
            if id(item) not in hidden:
                screen.say(item, board)
        sys.stdout.flush()
        screen.export(board)


def _end(run: Path, follower: "Follower", board: "Board", screen: _Screen) -> None:
    from lostflops.live.summary import summary

    screen.export(board)
    if screen.sender is not None:
        screen.sender.close()
    result = summary(board, follower)
    if screen.as_json:
        print(json.dumps({**result.to_json(), "kind": "summary"}))
        return
    print()
    next_command, other_command = _next(run, board)
    show(replace(result, next_command=next_command, other_command=other_command), as_json=False)


def _next(run: Path, board: "Board") -> tuple[str, str]:
    """Return what to run next: a run has a report only when its job has ended."""
    if board.is_ended:
        return command("report", run), ""
    if not board.totals.times:
        return command("watch", run), ""
    return command("snap", run, "--steps", "3"), command("hang", run)
