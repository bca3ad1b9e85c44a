"""`lostflops serve`: the page of a run or of a fleet, live."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.completion import complete_run
from lostflops.cli.output import JsonOption, show

EXAMPLE = "lostflops serve run"


def serve(
    place: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|PLACE",
            help="A run, or a fleet: a folder with runs in it, or what lostflops fleet add made; s3://... too.",
            show_default=False,
            autocompletion=complete_run,
        ),
    ],
    other: Annotated[
        Path | None,
        typer.Argument(
            metavar="B",
            help="A second run: adds its comparison with the first.",
            show_default=False,
            autocompletion=complete_run,
        ),
    ] = None,
    *,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, metavar="N", help="Port to listen on; 0 chooses a free one.")
    ] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    runs: Annotated[
        list[Path] | None,
        typer.Option(
            "--runs",
            metavar="FOLDER",
            help="With a fleet: also open the pages of its runs in this folder; can be repeated.",
            show_default=False,
        ),
    ] = None,
    behind: Annotated[
        str,
        typer.Option(
            "--behind",
            metavar="URL",
            help="Address of the page at a reverse proxy: https://lostflops.example.org/team/.",
            show_default=False,
        ),
    ] = "",
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="Readers, one in each line: a name and a token, or the token's hash as sha256:HEX.",
            show_default=False,
        ),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(
            "--audit",
            metavar="FILE",
            help="Add a line of JSON for each request: who asked for what.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Serve a page live: of a run, or of a fleet.

    A run: the same views as lostflops report --html, for runs of any size: results appear as they are ready, the
    timeline loads what you zoom into, and you can try what-ifs and SQL. With a second run, the page also compares the
    two, as lostflops diff --html does; SQL, what-ifs and the timeline are those of the first.

    A fleet: where the hours of all runs go, jobs with their history, hosts, two jobs compared, and links to the pages
    of runs.

    Only this machine can reach it, with the token in the printed address, or through a proxy of yours. Press Ctrl-C to
    stop.
    """
    from lostflops.cli.browser import can_show
    from lostflops.cli.scope import open_run
    from lostflops.core.errors import UsageError
    from lostflops.fleet.kinds import is_fleet

    try:
        from lostflops.show.serve.server import ServeAccess, serve_fleet
        from lostflops.show.serve.server import serve as start
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise UsageError("the live page needs an extra: pip install 'lostflops[serve]'") from None

    access = ServeAccess(behind=behind, token_file=token_file, audit=audit)
    tell = _announce([place] if other is None else [place, other], as_json=as_json)
    if is_fleet(place):
        if other is not None:
            raise UsageError("a fleet is served alone: the page compares two of its jobs")
        serve_fleet(place, runs or (), port, tell, browser=browser and can_show(), access=access)
        return
    if runs:
        raise UsageError(f"--runs is only for a fleet, and {place} is a run: leave it out")
    for one in (place, other):
        if one is not None:
            open_run(one).close()  # computes ledgers that the run lacks, before the page asks for them
    start(place, port, tell, browser=browser and can_show(), other=other, access=access)


def _announce(places: list[Path], *, as_json: bool) -> Callable[[str], None]:
    from lostflops.core.results import Figure, Result
    from lostflops.store.places import as_typed

    served = " and ".join(as_typed(one) for one in places)

    def tell(address: str) -> None:
        if as_json:
            show(Result("serve", "Live page", f"Serving {served}.", more=(Figure("address", address),)), as_json=True)
            sys.stdout.flush()
            return
        with_token = "" if "#token=" in address else "#token=TOKEN, with the token of a reader"
        print(f"Serving {served} at\n\n  {address}{with_token}\n\nPress Ctrl-C to stop.", flush=True)

    return tell
