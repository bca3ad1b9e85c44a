"""`lostflops hang`: who holds a job up, from Flight Recorder dumps."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
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
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Rows of each table.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Name the ranks that block a hung job.

    From Flight Recorder dumps: which ranks never arrived at which collective, which are ahead, which called
    something else, and what they did last. Ranks that wait for others themselves are not blamed.
    """
    from lostflops.analyze.hang import hang as analyse
    from lostflops.store.places import place_of, remote
    from lostflops.store.run import Run

    with _run_of(dumps) as folder, Run.open(folder) as run:
        result = analyse(run, limit=limit)
    if folder.is_dir() or remote(folder):
        rank = next((row["rank"] for row in result.to_json()["culprits"]), 0)
        following = command("sql", folder, f"from flight where rank = {rank} order by record desc limit 20")
    else:
        # A shell may have spelled out a glob of thousands.
        sources = dumps if len(dumps) <= 3 else [str(place_of(dumps[0]).parent)]
        following = command("ingest", *sources, "-o", "run")
    show(replace(result, next_command=following), as_json)


@contextmanager
def _run_of(dumps: list[str]) -> Iterator[Path]:
    """The run that was given, or one made of the dumps, which is gone afterwards."""
    from lostflops.ingest import ingest
    from lostflops.store.manifest import FILE_NAME
    from lostflops.store.mirror import is_run_at
    from lostflops.store.places import remote

    address = remote(dumps[0])
    if len(dumps) == 1 and (is_run_at(address) if address else (Path(dumps[0]) / FILE_NAME).is_file()):
        yield Path(dumps[0])
        return
    with TemporaryDirectory(prefix="lostflops-hang-") as folder:
        run = Path(folder) / "run"
        ingest(dumps, run)
        yield run
