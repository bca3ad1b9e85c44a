"""`lostflops run`: record a command while it runs, and report when it has ended."""

import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from lostflops.cli.ingesting import ingest_capture
from lostflops.cli.late import LatePlaces, add_command, conclude
from lostflops.cli.output import JsonOption, command, free, name_run, show, tell
from lostflops.collect.capture import FOLDER, SUFFIX, WINDOWS
from lostflops.store.places import folder_for

if TYPE_CHECKING:
    from lostflops.cli.early import EarlyIngest
    from lostflops.cli.self_watch import WatchProcess
    from lostflops.collect.gather import Gatherer
    from lostflops.collect.settings import Settings

EXAMPLE = "lostflops run -- torchrun --nproc-per-node 8 train.py"
CONTEXT = {"allow_interspersed_args": False}
_DEFAULT = "lostflops-run"
_FLEET_SECONDS = 30.0
"""Longest time that the end of a job waits for a busy fleet."""


def run(
    words: Annotated[list[str], typer.Argument(metavar="CMD", help="Command to run, after --.", show_default=False)],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="RUN", help=f"Folder for the run.  [default: {_DEFAULT}]", show_default=False
        ),
    ] = None,
    steps: Annotated[
        str,
        typer.Option("--steps", metavar="WHEN", help="Steps to profile: auto, none, or FIRST:COUNT (from 0)."),
    ] = "auto",
    repeat: Annotated[
        int, typer.Option("--repeat", min=0, metavar="N", help="Profile again every N steps; 0 for once.")
    ] = 0,
    ranks: Annotated[
        str, typer.Option("--ranks", metavar="WHICH", help="Ranks to profile: all, hosts (one each), or 0,8,16.")
    ] = "all",
    options: Annotated[
        str,
        typer.Option("--with", metavar="WHAT", help="What to profile: shapes, flops, memory, stack, modules, samples."),
    ] = "shapes,modules,samples",
    overhead: Annotated[
        str, typer.Option("--overhead", metavar="SHARE", help="Most that recording may cost, as a share of the step.")
    ] = "1%",
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="NAME=VALUE",
            help="Label of the job, for questions about many runs: team=vision; can be repeated. `job` is its name.",
            show_default=False,
        ),
    ] = None,
    fleet: Annotated[
        str,
        typer.Option(
            "--fleet", metavar="PLACE", help="Add the run to this fleet (lostflops fleet) too.", show_default=False
        ),
    ] = "",
    spool: Annotated[
        Path | None,
        typer.Option(
            "--spool",
            metavar="DIR",
            help="Local folder where the ranks of this host write; one file per host then goes to RUN.  "
            "[default: automatic if RUN is shared]",
            show_default=False,
        ),
    ] = None,
    windows_per_hour: Annotated[
        int,
        typer.Option(
            "--windows-per-hour",
            min=0,
            max=60,
            metavar="N",
            help="Profile a few steps when the job becomes slower, at most N times per hour; 0 for never.",
        ),
    ] = 2,
    webhook: Annotated[
        str,
        typer.Option(
            "--webhook",
            envvar="LOSTFLOPS_WEBHOOK",
            metavar="URL",
            help="Send a message there when the job becomes slower or hangs.",
            show_default=False,
            show_envvar=True,
        ),
    ] = "",
    keep_raw: Annotated[bool, typer.Option("--keep-raw", help="Also keep the raw profiler traces.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a command and record its PyTorch training.

    The command's output, exit code and signals are unchanged. When it ends, a summary goes to stderr. If the recording
    cannot be read, the last line says so, with the command to try again; the exit code is still that of the command.
    """
    from lostflops.cli.early import EarlyIngest
    from lostflops.cli.memory_watch import watch_memory
    from lostflops.cli.self_watch import WatchProcess, check_webhook
    from lostflops.collect.command import recorded_environment, run_command
    from lostflops.collect.endings import tell_of_command
    from lostflops.collect.settings import Settings

    folder = folder_for(out or free(Path(_DEFAULT)), "a job is recorded").resolve()
    capture = folder / FOLDER
    wanted = Settings(
        folder=capture,
        steps=steps,
        repeat=repeat,
        ranks=ranks,
        options=_options(options),
        overhead=_share(overhead),
        reducer=sys.executable,
        keep_raw=keep_raw,
        began=time.time_ns(),
    )
    wanted.check()
    if webhook:
        check_webhook(webhook)
    gatherer, early, watcher = None, None, None
    environment = _with_labels(labels or ())
    is_recorded = _is_made(capture)
    if is_recorded:
        wanted, gatherer = _with_spool(wanted, capture, spool)
        environment = recorded_environment(environment, wanted)
        early = EarlyIngest(capture, folder, wanted.folder)
        watcher = WatchProcess(capture, folder, wanted.folder, per_hour=windows_per_hour, webhook=webhook)
    recorded_to = _open_folder(wanted.folder) if is_recorded else None
    try:
        status = run_command(words, environment, lambda: _meanwhile(gatherer, early, watcher))
        stop = time.time_ns()
    except FileNotFoundError:
        tell(f"command not found: {words[0]!r}. Give the command to run after --.")
        sys.exit(127)
    except PermissionError:
        tell(f"{words[0]} cannot be executed: permission denied.")
        sys.exit(126)
    if early is not None and watcher is not None:
        _fail_open(early.stop)
        _fail_open(watcher.stop)
        places = LatePlaces(wanted.folder, capture, folder)
        is_gone = not _is_still(wanted.folder, recorded_to)
        later = add_command(places)

        def last() -> None:
            with suppress(Exception):  # the report goes on without
                tell_of_command(wanted.folder, _describe_command(wanted.began, stop, status))
            with watch_memory(lambda error: _end_by_force(status, _no_summary(error, later))):
                _conclude(places, gatherer, as_json, is_gone=is_gone, status=status)

        _fail_open(last, later)
        if fleet and (folder / "run.json").is_file():
            _fail_open(partial(_add_to_fleet, fleet, folder, status))
    _leave_as(status)


def _describe_command(start: int | None, stop: int, status: int) -> dict[str, int | None]:
    """Return when a command began and ended, and how, from its wait status."""
    is_signal = os.WIFSIGNALED(status)
    code = None if is_signal else os.waitstatus_to_exitcode(status)
    return {"start": start, "stop": stop, "exit_code": code, "signal": os.WTERMSIG(status) if is_signal else None}


def _describe_status(status: int) -> str:
    from lostflops.account.job.ending import name_signal

    if os.WIFSIGNALED(status):
        return f"was ended by {name_signal(os.WTERMSIG(status))}"
    return f"ended with exit code {os.waitstatus_to_exitcode(status)}"


def _add_to_fleet(fleet: str, run: Path, status: int) -> None:
    from lostflops.api import add_to_fleet
    from lostflops.cli.memory_watch import watch_memory

    def explain(error: Exception) -> str:
        why = str(error).removesuffix(".") or type(error).__name__
        return f"the run was not added to {fleet}: {why}. To try again: {command('fleet', 'add', fleet, run)}"

    try:
        with watch_memory(lambda error: _end_by_force(status, explain(error))):
            add_to_fleet(fleet, [run], seconds=_FLEET_SECONDS)
    except Exception as error:  # noqa: BLE001 - the exit code stays that of the command
        tell(explain(error))


def _with_labels(labels: Sequence[str]) -> dict[str, str]:
    """Return the environment, with these labels after those that it has."""
    from lostflops.collect.labels import VARIABLE, join_labels
    from lostflops.core.errors import UsageError

    environment = dict(os.environ)
    try:
        given = join_labels(labels)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if given:
        environment[VARIABLE] = "\n".join(filter(None, (environment.get(VARIABLE), given)))
    return environment


def _meanwhile(gatherer: "Gatherer | None", early: "EarlyIngest | None", watcher: "WatchProcess | None") -> None:
    if gatherer is not None:
        gatherer.gather()
    if watcher is not None:
        watcher.look()
    if early is not None:
        early.look()


def _open_folder(folder: Path) -> int | None:
    """Open a folder: while it is open, no other folder can be taken for it, even if it is deleted."""
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None


def _is_still(folder: Path, opened: int | None) -> bool:
    try:
        return opened is None or os.path.samestat(os.fstat(opened), folder.stat())
    except OSError:
        return False


def _conclude(places: LatePlaces, gatherer: "Gatherer | None", as_json: bool, *, is_gone: bool, status: int) -> None:
    """Read and report the recording; `is_gone` if the folder that ranks wrote to is not there any more."""
    is_empty = not any(places.local.rglob(f"*{SUFFIX}")) and not (gatherer is not None and gatherer.has_carried)
    if is_empty and is_gone:
        tell(f"{places.local} was deleted while the command ran: whatever was recorded there is gone.")
        _remove_empty(places.run)
        return
    if is_empty:
        who, why = "no process of the command", f" To find out why: {command('doctor')}"
        if status:
            who, why = f"the command {_describe_status(status)} before a process of it", ""
        tell(f"nothing was recorded: {who} trained with PyTorch (no backward pass or optimizer step).{why}")
        if gatherer is not None:
            shutil.rmtree(places.local, ignore_errors=True)
        _remove_empty(places.run)
        return
    conclude(places, gatherer)
    ingest_capture(places.capture, places.run)
    _report(places.run, as_json)


def _report(folder: Path, as_json: bool) -> None:
    """Show the card of the run; JSON is that of `lostflops report`."""
    from lostflops.account.flight.standing import stalled_lines
    from lostflops.account.memory.out_of_memory import out_of_memory
    from lostflops.cli.scope import open_run
    from lostflops.explain.advise.own_traces import own_traces
    from lostflops.explain.advise.summary import card

    with open_run(folder) as opened:
        ended = out_of_memory(opened.stored)
        if ended is not None and not as_json:
            tell(f"{ended[0]} More: {command('memory', folder)}")
        if own := own_traces(opened.stored):
            tell(own)
        if stalled_lines(opened.stored) and not as_json:
            tell(f"the last step did not end. {opened.hang().verdict} More: {command('hang', folder)}")
        answer = opened.report()
    if as_json:
        show(answer, True, sys.stderr)
        return
    short = card(answer)
    job = answer.to_json().get("job") or {}
    whole = [] if not job or job["is_training"] else [command("report", folder, "--job")]
    following = [*([command("diagnose", folder)] if short.blocks else []), *whole, command("report", folder)]
    other = [*whole, command("open", folder)] if short.blocks else [command("open", folder)]
    short = replace(short, next_command=following[0], other_command=other[0], run=name_run(folder))
    show(short, False, sys.stderr)


def _with_spool(wanted: "Settings", capture: Path, spool: Path | None) -> "tuple[Settings, Gatherer | None]":
    from lostflops.collect.gather import Gatherer, is_shared

    if spool is None and not is_shared(capture):
        return wanted, None
    try:
        if spool is not None:
            spool.mkdir(parents=True, exist_ok=True)
        local = Path(tempfile.mkdtemp(prefix="lostflops-", dir=spool)).resolve()  # ranks may change their folder
    except OSError as error:
        where = spool or "the folder for temporary files"
        tell(f"{where} cannot be used ({error.strerror}): ranks write directly to {capture}.")
        return wanted, None
    return replace(wanted, folder=local), Gatherer(local, capture, socket.gethostname())


def _is_made(capture: Path) -> bool:
    """Return whether there is a place to record to; the command runs in any case."""
    try:
        (capture / WINDOWS).mkdir(parents=True, exist_ok=True)
        if os.access(capture, os.W_OK | os.X_OK):
            return True
        reason = "not writable"
    except OSError as error:
        reason = error.strerror or str(error)
    tell(f"{capture} cannot be used ({reason}): the command runs without recording.")
    return False


def _remove_empty(folder: Path) -> None:
    """Remove the folders that stayed empty."""
    for path in (folder / FOLDER / WINDOWS, folder / FOLDER, folder):
        with suppress(OSError):
            path.rmdir()


def _options(text: str) -> frozenset[str]:
    return frozenset(filter(None, (word.strip() for word in text.split(","))))


def _share(text: str) -> float:
    """Parse a share of the step, from percent or a number.

    >>> _share("1%"), _share("0.02")
    (0.01, 0.02)
    """
    from lostflops.core.errors import UsageError

    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise UsageError(f"--overhead {text!r} is not a share of the step, such as 1%.") from None


def _fail_open(last: Callable[[], None], later: str = "") -> None:
    """Do something after the command has ended; if it fails, say so last, with what to type `later`. The exit code
    stays that of the command: a scheduler must not take a successful training for a failed one."""
    from lostflops.core.errors import LostflopsError

    try:
        last()
        return
    except LostflopsError as error:
        why = str(error)
    except KeyboardInterrupt:
        why = "interrupted"
    except Exception as error:  # noqa: BLE001
        why = f"the recording could not be read: {error!r}"
    tell(_no_summary(why, later) if later else f"{why.removesuffix('.')}.")


def _no_summary(why: object, later: str) -> str:
    return f"no summary: {str(why).removesuffix('.')}. The recording is kept; to read it: {later}"


def _end_by_force(status: int, last_words: str) -> NoReturn:
    """End the process at once, with the exit code of the command as shells state it."""
    tell(last_words)
    os._exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status))


def _leave_as(status: int) -> NoReturn:
    """End as the command did: with its exit code, or by its signal."""
    if not _is_flushed():
        # Python would end with a code of its own when it cannot flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(os.waitstatus_to_exitcode(status))


def _is_flushed() -> bool:
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except (OSError, ValueError):
        return False
    return True
