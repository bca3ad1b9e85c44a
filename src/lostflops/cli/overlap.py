"""Which work overlaps: `lostflops comm --overlap`, and its old name `lostflops overlap`."""

from dataclasses import replace

from lostflops.cli.output import JsonOption, RunArgument, command, show
from lostflops.cli.scope import RankOption, StepOption, WindowOption, rank_bar, window_kind

EXAMPLE = "lostflops overlap run --rank 0"


def overlap(
    run: RunArgument,
    *,
    window: WindowOption = None,
    rank: RankOption = None,
    step: StepOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which work overlaps and which does not.

    Compute, each operation of communication and copies: how long each runs, how much of it alone and how much under
    compute; and every nanosecond in which anything ran, by all that did.
    """
    from lostflops.analyze.overlap import overlap as analyse
    from lostflops.store.run import Run

    with Run.open(run) as opened, rank_bar() as progress:
        result = analyse(opened, window=window_kind(window), ranks=rank or (), steps=step or (), progress=progress)
    show(replace(result, next_command=command("comm", run)), as_json)
