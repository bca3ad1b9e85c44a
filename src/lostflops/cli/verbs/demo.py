"""`lostflops demo`: a synthetic run on which to try the other verbs, and its page."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.output import OWN_JOB, JsonOption, command, show

EXAMPLE = "lostflops demo --out demo-run"


def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the run, its traces and its page.")
    ] = Path("demo-run"),
    ranks: Annotated[int, typer.Option("--ranks", min=2, metavar="N", help="Number of ranks.")] = 8,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Try it: make a synthetic run and open its page.

    Simulates a pipeline-parallel job with one slow rank and one step that waits for data, recorded as lostflops run
    would record it. Ingests it, shows the first finding, and writes the page with all views.
    """
    from lostflops.cli.browser import open_in_browser, write_page
    from lostflops.cli.ingesting import ingest_with_progress
    from lostflops.cli.scope import open_run
    from lostflops.collect.capture import FOLDER
    from lostflops.core.errors import UsageError
    from lostflops.core.utf8 import utf8
    from lostflops.explain.advise.summary import card
    from lostflops.store.places import folder_for
    from lostflops.testing import write_captured
    from lostflops.testing.demo import LATE_STEP, SLOW, demo_cluster

    utf8(folder_for(out, "the demo is written").resolve())
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} already exists; choose another folder with --out, or remove it")
    file = out / "report.html"
    write_captured(demo_cluster(ranks), out / FOLDER)
    ingested = ingest_with_progress([str(out / FOLDER)], out)
    page = write_page(out, file)
    if as_json:
        show(replace(ingested, name="demo", more=(*ingested.more, *page.more)), as_json=True)
        return
    with open_run(out) as run:
        answer = card(run.report())
    planted = (
        f"This run is synthetic and has two faults: kernels on rank {ranks // 2} take {SLOW:g}x as long, and the "
        f"devices wait for data between steps {LATE_STEP - 1} and {LATE_STEP}. The second costs less than 3% of a "
        "step, so it is no finding; lostflops steps shows it."
    )
    notes = (planted, page.verdict)
    show(replace(answer, notes=notes, next_command=command("diagnose", out), other_command=OWN_JOB), as_json=False)
    if browser:
        open_in_browser(file)
