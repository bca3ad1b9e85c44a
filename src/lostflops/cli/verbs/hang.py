"""`lostflops hang`: which ranks block a job, from Flight Recorder dumps."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.output import JsonOption, command, show

EXAMPLE = "lostflops hang dumps/"


def hang(
    dumps: Annotated[
        list[str],
        typer.Argument(
            metavar="DUMPS",
            help="Flight Recorder dumps: files, folders or globs; or the folder of a run.",
            show_default=False,
        ),
    ],
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Rows per table.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Name the ranks that block a hung job.

    Flight Recorder dumps show which ranks never arrived at which collective, which are ahead, which called a different
    operation, and what each did last. Ranks that are themselves waiting are not blamed.
    """
    from lostflops.api import hang as find_culprits
    from lostflops.api import has_dumps
    from lostflops.collect.capture import FOLDER
    from lostflops.store.places import place_of

    result = find_culprits(dumps, limit=limit)
    if len(dumps) == 1 and has_dumps(dumps[0]):
        rank = next((row["rank"] for row in result.to_json()["culprits"]), 0)
        following = command("sql", Path(dumps[0]), f"from flight where rank = {rank} order by record desc limit 20")
    elif len(dumps) == 1 and (capture := Path(dumps[0]) / FOLDER).is_dir():
        following = command("ingest", capture, "-o", dumps[0])
    else:
        # A shell may have spelled out a glob of thousands.
        sources = dumps if len(dumps) <= 3 else [str(place_of(dumps[0]).parent)]
        following = command("ingest", *sources, "-o", "run")
    show(replace(result, next_command=following), as_json)
