"""The program `lostflops`: its verbs, and its handling of errors."""

import gc
import sys
from collections.abc import Callable, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperCommand

from lostflops._version import __version__
from lostflops.cli.groups import OLD, Verbs, WatchedVerb
from lostflops.cli.verbs import (
    calibrate,
    collectives,
    comm,
    demo,
    devices,
    diagnose,
    diff,
    doctor,
    estimate,
    explain,
    export,
    fit,
    flame,
    fleet,
    gate,
    hang,
    help,  # noqa: A004
    info,
    ingest,
    kernels,
    memory,
    open,  # noqa: A004 - a verb is named as it is typed
    path,
    pipeline,
    ranks,
    report,
    run,
    scale,
    score,
    serve,
    snap,
    sql,
    steps,
    verify,
    watch,
    whatif,
)
from lostflops.core.errors import LostflopsError
from lostflops.core.utf8 import utf8

COMMANDS: tuple[tuple[ModuleType, Callable[..., Any]], ...] = (
    (demo, demo.demo),
    (run, run.run),
    (snap, snap.snap),
    (ingest, ingest.ingest),
    (info, info.info),
    (verify, verify.verify),
    (report, report.report),
    (open, open.open),
    (serve, serve.serve),
    (export, export.export),
    (diagnose, diagnose.diagnose),
    (explain, explain.explain),
    (steps, steps.steps),
    (kernels, kernels.kernels),
    (memory, memory.memory),
    (comm, comm.comm),
    (comm, comm.overlap),
    (ranks, ranks.ranks),
    (ranks, ranks.lateness),
    (pipeline, pipeline.pipeline),
    (path, path.path),
    (whatif, whatif.whatif),
    (diff, diff.diff),
    (gate, gate.gate),
    (score, score.score),
    (whatif, whatif.tune),
    (scale, scale.scale),
    (devices, devices.devices),
    (fleet, fleet.fleet),
    (flame, flame.flame),
    (hang, hang.hang),
    (estimate, estimate.estimate),
    (fit, fit.fit),
    (calibrate, calibrate.calibrate),
    (collectives, collectives.collectives),
    (doctor, doctor.doctor),
    (watch, watch.watch),
    (sql, sql.sql),
    (help, help.help),
)
OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000
"""New objects after which Python looks for cycles to free. A verb makes few cycles and many objects: at Python's own
700, the search takes a tenth of the time of a diagnosis."""
EPILOG = """\
lostflops run -- torchrun train.py    record a job into a folder: a RUN
lostflops help all                    list all verbs; help NAME explains one
lostflops demo                        try it on synthetic data"""


def build() -> typer.Typer:
    app = typer.Typer(
        name="lostflops",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        cls=Verbs,
        epilog="\b\n" + EPILOG,
    )
    app.callback()(root)
    for module, function in COMMANDS:
        context = getattr(module, "CONTEXT", None)
        app.command(
            function.__name__,
            # While a job runs, its command may use all memory: only what follows is watched.
            cls=TyperCommand if module is run else WatchedVerb,
            epilog=f"\b\nExample:\n  {module.EXAMPLE}",
            context_settings=context,
            hidden=function.__name__ in OLD,
        )(function)
    return app


@cache
def _program() -> Callable[..., Any]:
    """Build the program once: typer reads the signature of every verb, which takes longer than a small verb."""
    return typer.main.get_command(build())


def print_version(given: bool) -> None:
    if given:
        print(f"lostflops {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Show where the time of PyTorch training goes, and what wins it back."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and exit. Our own errors are one line; anything else is a bug and shows its traceback."""
    words = sys.argv[1:] if arguments is None else arguments
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    try:
        for word in takewhile("--".__ne__, words):  # behind it is a command of the user's
            utf8(Path(word))
        _program()(arguments, prog_name="lostflops")
    except LostflopsError as error:
        _fail(str(error), error.exit_code)
    except OSError as error:
        _fail(": ".join(filter(None, (error.filename and str(error.filename), error.strerror or str(error)))), 1)
    finally:
        gc.set_threshold(*before)
    sys.exit(0)


def _fail(message: str, exit_code: int) -> NoReturn:
    from lostflops.show.report.printable import printable

    print("lostflops:", "\n".join(map(printable, message.split("\n"))), file=sys.stderr)
    sys.exit(exit_code)
