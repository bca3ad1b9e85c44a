"""`lostflops devices`: the step time of a run on every known device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.plots import check_plot, save_plot
from lostflops.cli.scope import SamplesOption, TokensOption, bar_of

EXAMPLE = "lostflops devices run --prices prices.toml --html devices.html"


def devices(
    run: RunArgument,
    *,
    prices: Annotated[
        Path | None,
        typer.Option("--prices", metavar="FILE", help="TOML file with prices of devices.", show_default=False),
    ] = None,
    tokens_per_step: TokensOption = None,
    samples_per_step: SamplesOption = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw step time against cost, as SVG.", show_default=False),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write the answer as one HTML page.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Rank devices by the predicted step time of this run.

    Shows for each device the predicted step with its interval, the probability that it is the fastest, and what limits
    the job there. The number of ranks stays the same. With --prices also cost and energy. The file has a table for each
    device, such as [H100-SXM5] with usd_per_hour and, optionally, watts. If you pay for power, usd_per_kwh is at its
    top.
    """
    from lostflops.cli.scope import open_run
    from lostflops.core.errors import UsageError
    from lostflops.core.results import Page
    from lostflops.show.report.html import check_file, save_page

    if plot and not prices:
        raise UsageError("--plot draws step time against cost: give --prices too")
    check_plot(plot)
    if html:
        check_file(html)
    with open_run(run) as opened, bar_of("devices") as progress:
        result = opened.devices(
            prices=prices, tokens_per_step=tokens_per_step, samples_per_step=samples_per_step, progress=progress
        )
    save_plot(result, plot)
    other = _other(result.to_json())
    following = command("whatif", run, "--change", f"device={other}") if other else command("report", run)
    result = replace(result, next_command=following)
    if html:
        result = save_page(Page(f"{run.name}: devices", (result,), {}), html)
    show(replace(result, next_command=following), as_json)


def _other(found: dict[str, object]) -> str | None:
    """Return the best device that the run does not use already: the cheapest, or the fastest. None if there is no such
    device, or if the run used no accelerator, whose kernels a what-if could change."""
    rows: object = found["devices"]
    assert isinstance(rows, list)
    others = [row["device"] for row in rows if not row["is_now"]]
    if not others or len(others) == len(rows):
        return None
    best = found["cheapest"] or found["fastest"]
    return str(best if best in others else others[0])
