"""`lostflops demo`: a synthetic run to try the other verbs on, and its page."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lostflops.cli.output import JsonOption, command, show

if TYPE_CHECKING:
    from lostflops.testing import Model

EXAMPLE = "lostflops demo --out demo-run"
RANKS_PER_HOST = 4
TOKENS, WIDTH = 4096, 2048
FLOP_PER_NS = 620_000
"""Of matrix products: what an H100 reaches in bf16 with good shapes."""


def demo(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder for the traces, the run and the page.")
    ] = Path("demo-run"),
    ranks: Annotated[int, typer.Option("--ranks", min=2, metavar="N", help="Size of the cluster.")] = 8,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Make a synthetic run, show it and open its page.

    Writes the traces of a cluster in which one rank is slow and every second step waits for its data, ingests them,
    shows what the run holds, and writes the page with all views of it.
    """
    from lostflops.cli.info import describe
    from lostflops.cli.ingest import ingest_with_progress
    from lostflops.cli.open import opened
    from lostflops.cli.written_page import written_page
    from lostflops.errors import UsageError
    from lostflops.utf8 import utf8

    utf8(out.resolve())
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} exists already; choose another folder with --out, or remove it")
    traces, run, file = out / "traces", out / "run", out / "report.html"
    write_traces(traces, ranks)
    ingested = ingest_with_progress([str(traces)], run)
    page = written_page(run, file)
    if as_json:
        show(replace(ingested, name="demo", more=(*ingested.more, *page.more)), as_json=True)
        return
    held, trust = describe(run)
    planted = f"The traces are synthetic: rank {ranks // 2} is slow, and every second step waits for its data."
    notes = (*held.notes, planted, trust.verdict, page.verdict)
    show(replace(held, notes=notes, next_command=command("report", run)), as_json=False)
    if browser:
        opened(file)


def write_traces(folder: Path, ranks: int) -> None:
    """A transformer on nodes of four, whose clocks disagree. The loader takes longer than the device needs for two
    steps, since the host runs ahead of it."""
    from lostflops.testing import Clock, Losses, Network, Straggler, SyntheticCluster

    hosts = -(-ranks // RANKS_PER_HOST)
    cluster = SyntheticCluster(
        ranks=ranks,
        ranks_per_host=RANKS_PER_HOST,
        steps=8,
        first_step=0,
        model=_transformer(),
        network=Network(gbs=300, inter_gbs=150, jitter=0.05),
        kernel_gap=900,
        clocks={host: Clock(offset=1_700_000 * host, drift_ppm=4.0) for host in range(1, hosts)},
        losses=Losses(data=44_000_000, copy_bytes=4_000_000, steps=(1, 3, 5, 7)),
        stragglers=(Straggler(ranks // 2, "slow_kernels", factor=1.3),),
    )
    cluster.generate().traces.write(folder, host_names=True)


def _transformer() -> "Model":
    from lostflops.testing import Kernel, Model

    def product(inner: int, outer: int) -> Kernel:
        return Kernel(2 * TOKENS * inner * outer // FLOP_PER_NS, (TOKENS, inner, outer))

    def elementwise(op: str, duration: int, width: int = WIDTH) -> Kernel:
        return Kernel(duration, op=op, shape=(TOKENS, width))

    attention = (elementwise("native_layer_norm", 24_000), product(WIDTH, 3 * WIDTH), product(WIDTH, WIDTH))
    perceptron = (product(WIDTH, 4 * WIDTH), elementwise("gelu", 55_000, 4 * WIDTH), product(4 * WIDTH, WIDTH))
    residual = elementwise("add", 18_000)
    return Model(
        layers=6,
        kernels=(*attention, residual, *perceptron, residual),
        optimizer_kernels=4,
        optimizer_duration=120_000,
        gradient_bytes=100_000_000,
        buckets=3,
        first_bucket=1,
    )
