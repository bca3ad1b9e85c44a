"""Adds runs to a fleet one at a time, for tests with several writers: PLACE WRITER COUNT.

Prints the name of each run after it was added. A run that is there already is added again, as after a restart.
"""

import sys

from lostflops.fleet.changes import add_runs
from made_summaries import make_summary


def main() -> None:
    place, writer, first, last = sys.argv[1:]
    for number in range(int(first), int(last)):
        run = f"{writer}-{number}"
        add_runs(place, [make_summary(run, name=writer)])
        print(run, flush=True)


if __name__ == "__main__":
    main()
