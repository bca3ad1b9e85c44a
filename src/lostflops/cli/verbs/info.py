"""`lostflops info`: what a run contains, and how good its data is."""

import sys
from dataclasses import replace

from lostflops.cli.output import JsonOption, RunArgument, command, show

EXAMPLE = "lostflops info run"


def info(run: RunArgument, as_json: JsonOption = False) -> None:
    """Show what a run contains, and how good its data is.

    Ranks, devices, steps, events, collectives, missing data, and the data quality of each rank.
    """
    from lostflops.cli.scope import open_run

    with open_run(run) as opened:
        held, trust = opened.info(), opened.quality()
    if as_json:
        from lostflops.show.report.plain import write_json

        document = {"schema": "lostflops.info/1", "contents": held.to_json(), "quality": trust.to_json()}
        write_json(document, sys.stdout)
        return
    show(held, as_json=False)
    print()
    show(replace(trust, next_command=command("report", run), other_command=command("sql", run)), as_json=False)
