"""Which work overlaps: `lostflops comm --overlap`, and its old name `lostflops overlap`."""

from lostflops.cli.comm import comm
from lostflops.cli.output import JsonOption, RunArgument
from lostflops.cli.scope import RankOption, StepOption, WindowOption

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

    For compute, each communication operation and copies: total time, time alone, and time hidden by compute. Also
    splits the busy time by what ran at the same moment.
    """
    comm(run, window=window, rank=rank, step=step, overlapping=True, as_json=as_json)
