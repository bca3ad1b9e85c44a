"""`lostflops calibrate`: measure what a cluster can do."""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.output import JsonOption, command, free, show, tell
from lostflops.cli.plots import PlotOption, check_plot, save_plot

EXAMPLE = "lostflops calibrate --out cluster.json -- torchrun --nproc-per-node 8"
CONTEXT = {"allow_interspersed_args": False}
_DEFAULT = "calibration.json"


def calibrate(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="LAUNCHER",
            help="Command that starts the ranks, after --. Without it, only this device is measured.",
            show_default=False,
        ),
    ] = None,
    *,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help=f"File to write.  [default: {_DEFAULT}]")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, max=86_400, metavar="N", help="Time limit in seconds.")
    ] = 120,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="OPS",
            help="What to measure, e.g. all_reduce,device. With --nccl-tests: the operation of the logs.",
            show_default=False,
        ),
    ] = None,
    shown: Annotated[
        Path | None, typer.Option("--show", metavar="FILE", help="Show an existing calibration.", show_default=False)
    ] = None,
    logs: Annotated[
        list[str] | None,
        typer.Option(
            "--nccl-tests", metavar="LOG", help="Convert logs of nccl-tests to a calibration.", show_default=False
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option("--learn", metavar="RUN", help="Learn from the collectives of a run.", show_default=False),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="FILE", help="Compare with this calibration.", show_default=False),
    ] = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Benchmark collectives, matmuls and memory.

    The launcher starts the ranks as for a training job: torchrun, srun ... python. Each network level is measured
    separately: inside a host, across hosts, all ranks. The file contains every sample. If you cannot run a
    benchmark, convert logs of nccl-tests or learn from the transfers in a recorded run.
    """
    given = words or []
    _refuse_two(shown, logs, run, given if not logs else None)
    check_plot(plot)
    if shown is not None:
        _show(shown, against, plot, as_json)
        return
    path = out or free(Path(_DEFAULT))
    if logs:
        _convert([*logs, *given], path, only)
    elif run is not None:
        _learn(run, path)
    elif not _measure([*given, *_module(path, seconds, only)], path, is_launched=bool(given)):
        tell(
            f"{given[0] if given else sys.executable} succeeded, but there is no new {path} on this host. If rank 0 ran"
            " on another host, the file is there; otherwise no ranks were started."
        )
        return
    tell(f"wrote {path}")
    _show(path, against, plot, as_json)


def _module(path: Path, seconds: float, only: str | None) -> list[str]:
    chosen = ["--only", only] if only else []
    return ["-m", "lostflops.collect.calibrate", "--out", str(path.absolute()), "--seconds", f"{seconds:g}", *chosen]


def _measure(words: list[str], path: Path, is_launched: bool) -> bool:
    """Run the measurement, and return whether it wrote the file on this host. Its output goes to stderr: NCCL prints
    its version on stdout, which may be read as JSON."""
    from lostflops.collect.command import run_command
    from lostflops.core.errors import LostflopsError, UsageError

    if not is_launched:
        if find_spec("torch") is None:
            raise UsageError(f"torch is not installed for {sys.executable}; give a launcher that has it, after --.")
        words = [sys.executable, *words]
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path.absolute().parent} is not a folder; create it, or choose another --out.")
    if path.is_dir():
        raise UsageError(f"{path} is a folder; --out needs a file.")
    before = _stamp(path)
    try:
        status = run_command(words, dict(os.environ), lambda: None, output=sys.stderr.fileno())
    except FileNotFoundError:
        raise UsageError(
            f"command not found: {words[0]!r}; after --, give the launcher that starts the ranks, e.g. torchrun"
            " --nproc-per-node 8"
        ) from None
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT:
        raise KeyboardInterrupt
    if status != 0:
        code = os.waitstatus_to_exitcode(status)
        raise LostflopsError(
            f"{words[0]} failed with exit code {code} (see its output above); nothing was written."
            " The launcher's Python needs torch and lostflops."
        )
    return _stamp(path) != before


def _convert(logs: Sequence[str], path: Path, op: str | None) -> None:
    from lostflops.core.errors import UsageError
    from lostflops.predict.costs.calibration import write_calibration
    from lostflops.predict.costs.nccl_tests import read_nccl_tests

    if flags := [log for log in logs if log.startswith("-")]:
        raise UsageError(f"{flags[0]} comes after the logs; put options before them.")
    write_calibration(read_nccl_tests([Path(log) for log in logs], op), path)


def _learn(run: Path, path: Path) -> None:
    from lostflops.core.errors import UnknownCost
    from lostflops.predict.costs.calibration import write_calibration
    from lostflops.predict.costs.run_samples import learn
    from lostflops.store.run import Run

    with Run.open(run) as opened:
        learned = learn(opened)
    if not learned.collectives:
        raise UnknownCost(f"no collectives to learn from in {run}. {' '.join(learned.notes)}")
    write_calibration(learned, path)


def _show(path: Path, against: Path | None, plot: Path | None, as_json: bool) -> None:
    from lostflops.predict.costs.calibrated.show import show as shown_result
    from lostflops.predict.costs.calibration import read_calibration

    other = None if against is None else read_calibration(against)
    result = shown_result(read_calibration(path), other)
    save_plot(result, plot)
    show(replace(result, next_command=command("scale", "RUN", "--calibration", path)), as_json)


def _refuse_two(shown: Path | None, logs: Sequence[str] | None, run: Path | None, words: Sequence[str] | None) -> None:
    from lostflops.core.errors import UsageError

    ways = (("--show", shown), ("--nccl-tests", logs), ("--learn", run), ("a launcher", words))
    given = [name for name, value in ways if value]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} cannot be combined: give only one")


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
