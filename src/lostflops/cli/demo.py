"""`lostflops demo`: a synthetic run to try the other verbs on."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from lostflops.cli.output import JsonOption, command, show

EXAMPLE = "lostflops demo --out demo-run"


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the traces and the run.")] = Path(
        "demo-run"
    ),
    ranks: Annotated[int, typer.Option("--ranks", min=2, metavar="N", help="Size of the cluster.")] = 8,
    as_json: JsonOption = False,
) -> None:
    """Make a synthetic run and show it.

    Writes the traces of a cluster in which one rank is slow and every second step waits for its data, ingests them
    and shows what the run holds.
    """
    from lostflops.cli.info import describe
    from lostflops.cli.ingest import ingest_with_progress
    from lostflops.errors import UsageError

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists already; choose another folder with --out, or remove it")
    traces, run = out / "traces", out / "run"
    write_traces(traces, ranks)
    ingested = ingest_with_progress([str(traces)], run)
    if as_json:
        show(replace(ingested, name="demo"), as_json=True)
        return
    held, trust = describe(run)
    slow = ranks // 2
    planted = f"The traces are synthetic: rank {slow} is slow, and every second step waits for its data."
    show(replace(held, notes=(*held.notes, planted, trust.verdict), next_command=command("report", run)), as_json=False)


def write_traces(folder: Path, ranks: int) -> None:
    from lostflops.testing import Losses, Straggler, SyntheticCluster

    cluster = SyntheticCluster(
        ranks=ranks,
        steps=6,
        first_step=0,
        losses=Losses(data=3_000_000, copy_bytes=4_000_000, steps=(1, 3, 5)),
        stragglers=(Straggler(ranks // 2, "slow_kernels", factor=1.3),),
    )
    cluster.generate().traces.write(folder)
