"""`lostflops serve`: the page of a run, live."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.completion import complete_run
from lostflops.cli.output import JsonOption, RunArgument, show

EXAMPLE = "lostflops serve run"


def serve(
    run: RunArgument,
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
    as_json: JsonOption = False,
) -> None:
    """Serve the page live: zoom, what-ifs, SQL.

    The same views as lostflops report --html, for runs of any size: results appear as they are ready, the timeline
    loads what you zoom into, and you can try what-ifs and SQL. Only this machine can reach it, with the token in the
    printed address. With a second run, the page also compares the two, as lostflops diff --html does; SQL, what-ifs and
    the timeline are those of the first. Press Ctrl-C to stop.
    """
    from lostflops.cli.browser import can_show
    from lostflops.cli.scope import open_run
    from lostflops.core.errors import UsageError
    from lostflops.core.results import Figure, Result
    from lostflops.store.places import as_typed

    try:
        from lostflops.show.serve.server import serve as start
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise UsageError("the live page needs an extra: pip install 'lostflops[serve]'") from None

    served = " and ".join(as_typed(one) for one in (run, other) if one is not None)

    def tell(address: str) -> None:
        if as_json:
            show(Result("serve", "Live page", f"Serving {served}.", more=(Figure("address", address),)), as_json=True)
            sys.stdout.flush()
        else:
            print(f"Serving {served} at\n\n  {address}\n\nPress Ctrl-C to stop.", flush=True)

    for one in (run, other):
        if one is not None:
            open_run(one).close()  # computes ledgers that the run lacks, before the page asks for them
    start(run, port, tell, browser=browser and can_show(), other=other)
