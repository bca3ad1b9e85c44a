"""`lostflops demo`: a synthetic run to try the other verbs on, and its page."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lostflops.cli.output import OWN_JOB, JsonOption, command, show

if TYPE_CHECKING:
    from lostflops.testing import Model, SyntheticCluster

EXAMPLE = "lostflops demo --out demo-run"
RANKS_PER_HOST = 4
TOKENS, WIDTH = 4096, 2048
FLOP_PER_NS = 620_000
"""Of matrix products: what an H100 reaches in bf16 with good shapes."""
SLOW = 1.5
LATE_STEP, LATE_NS = 5, 37_000_000


def demo(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder for the run, its traces and its page.")
    ] = Path("demo-run"),
    ranks: Annotated[int, typer.Option("--ranks", min=2, metavar="N", help="Number of ranks.")] = 8,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Try it: make a synthetic run and open its page.

    Simulates a pipeline-parallel job with one slow rank and one step that waits for data, recorded as lostflops run
    would record it. Ingests it, shows what the run contains, and writes the page with all views.
    """
    from lostflops.cli.info import describe
    from lostflops.cli.ingest import ingest_with_progress
    from lostflops.cli.open import open_in_browser, write_page
    from lostflops.collect.capture import FOLDER
    from lostflops.core.errors import UsageError
    from lostflops.core.utf8 import utf8
    from lostflops.store.places import folder_for
    from lostflops.testing import write_captured

    utf8(folder_for(out, "the demo is written").resolve())
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} already exists; choose another folder with --out, or remove it")
    file = out / "report.html"
    write_captured(cluster(ranks), out / FOLDER)
    ingested = ingest_with_progress([str(out / FOLDER)], out)
    page = write_page(out, file)
    if as_json:
        show(replace(ingested, name="demo", more=(*ingested.more, *page.more)), as_json=True)
        return
    held, trust = describe(out)
    planted = (
        f"This run is synthetic and has two faults: kernels on rank {ranks // 2} take {SLOW:g}x as long, and the "
        f"devices wait for data between steps {LATE_STEP - 1} and {LATE_STEP}. The second costs less than 3% of a "
        "step, so it is no finding; lostflops steps shows it."
    )
    notes = (*held.notes, planted, trust.verdict, page.verdict)
    show(replace(held, notes=notes, next_command=command("report", out), other_command=OWN_JOB), as_json=False)
    if browser:
        open_in_browser(file)


def cluster(ranks: int) -> "SyntheticCluster":
    """A transformer in two stages on nodes of four, whose clocks disagree. It reads its loss in every step, so that the
    host is never far ahead of the device and a long wait for data shows."""
    from lostflops.testing import Clock, Losses, Network, Straggler, SyntheticCluster

    hosts = -(-ranks // RANKS_PER_HOST)
    late = (Straggler(rank, "late_data", delay=LATE_NS, steps=(LATE_STEP,)) for rank in range(ranks))
    return SyntheticCluster(
        ranks=ranks,
        ranks_per_host=RANKS_PER_HOST,
        steps=8,
        first_step=0,
        model=_transformer(),
        network=Network(gbs=300, inter_gbs=50, jitter=0.05),
        pipeline_parallel=2 if ranks % 2 == 0 and ranks > 2 else 1,
        microbatches=4,
        kernel_gap=900,
        annotations=True,
        memory=True,
        clocks={host: Clock(offset=1_700_000 * host, drift_ppm=4.0) for host in range(1, hosts)},
        losses=Losses(copy_bytes=4_000_000, sync=1),
        stragglers=(Straggler(ranks // 2, "slow_kernels", factor=SLOW), *late),
    )


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
        layers=2,
        kernels=(*attention, residual, *perceptron, residual),
        optimizer_kernels=4,
        optimizer_duration=120_000,
        gradient_bytes=2 * 12 * WIDTH * WIDTH,
        activation_bytes=2 * TOKENS * WIDTH,
        buckets=2,
    )
