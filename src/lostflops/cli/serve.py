"""`lostflops serve`: the page of a run, live."""

import sys
from typing import Annotated

import typer

from lostflops.cli.output import JsonOption, RunArgument, show

EXAMPLE = "lostflops serve run"


def serve(
    run: RunArgument,
    *,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, metavar="N", help="Port to listen on; 0 is any that is free.")
    ] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    as_json: JsonOption = False,
) -> None:
    """The same page, live: zoom, what-ifs, SQL.

    The same views as in the file of lostflops report --html, for runs of any size: results show as they are found,
    the timeline loads what it shows, what-ifs are replayed, and SQL is answered. Only this machine can reach it,
    with the token of the printed address. Ctrl-C ends it.
    """
    from lostflops.cli.open import can_show
    from lostflops.errors import UsageError
    from lostflops.results import Figure, Result
    from lostflops.store.places import as_typed

    try:
        from lostflops.serve.server import serve as start
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise UsageError("a live page needs an extra: pip install 'lostflops[serve]'") from None

    def tell(address: str) -> None:
        if as_json:
            show(
                Result("serve", "Live page", f"Serving {as_typed(run)}.", more=(Figure("address", address),)),
                as_json=True,
            )
            sys.stdout.flush()
        else:
            print(f"Serving {as_typed(run)} at\n\n  {address}\n\nCtrl-C ends it.", flush=True)

    start(run, port, tell, browser=browser and can_show())
