"""Every error that Lostflops raises on purpose.

    LostflopsError                 exit code 1
    ├── UsageError                 2   bad arguments, or a question that the run cannot answer
    ├── SourceError                4   a file to ingest cannot be used
    │   ├── UnknownFormat              no reader recognises it
    │   ├── BrokenSource               recognised, but nothing in it can be read
    │   └── RankConflict               two files claim the same rank
    │       └── SeveralJobs            files are of several jobs
    ├── RunError                   5   a run cannot be used
    │   ├── NotARun                    the folder is not a run
    │   ├── RunTooNew                  written by a newer Lostflops
    │   ├── RunBusy                    another ingest is writing to it
    │   └── BrokenRun                  a part is missing or damaged
    ├── QueryError                 6   SQL that the store refuses
    ├── NotEnoughMemory            7   the command needs more memory than it may use
    └── UnknownCost                3   no measurement and no published model gives it

A message says what was found and what to do about it. The command line prints it
without a traceback and exits with the code above; 130 is an interrupt.
"""


class LostflopsError(Exception):
    """Base of the tree; catching it catches everything that is not a bug."""

    exit_code = 1


class UsageError(LostflopsError):
    exit_code = 2


class SourceError(LostflopsError):
    exit_code = 4


class UnknownFormat(SourceError):
    """No reader recognises the file."""


class BrokenSource(SourceError):
    """The format is known, but nothing in the file can be read."""


class RankConflict(SourceError):
    """Two files claim the same rank of one run."""


class SeveralJobs(RankConflict):
    """Files are of several jobs; each job needs a run of its own."""


class NotEnoughMemory(LostflopsError):
    """The command needs more memory than it may use."""

    exit_code = 7


class RunError(LostflopsError):
    exit_code = 5


class NotARun(RunError):
    """The folder is not a run."""


class RunTooNew(RunError):
    """The run was written with a newer schema than this version reads."""


class RunBusy(RunError):
    """Another process is writing to the run."""

    is_early = False
    """Whether the other process is an ingest that the job itself started."""


class BrokenRun(RunError):
    """A part that the manifest names is missing or damaged."""


class QueryError(LostflopsError):
    exit_code = 6


class UnknownCost(LostflopsError):
    """Neither a measurement nor a published model gives the cost."""

    exit_code = 3


class ReplayDiffers(UnknownCost):
    """The replay of the unchanged run does not match its measured time: the graph lacks something important."""


class NotApplicable(UsageError):
    """The run has nothing that the change would affect, or lacks data that the change needs; the message says which."""


class AlreadySo(NotApplicable):
    """The run is already as the change would make it, so its steps would not change."""
