"""Output of a verb: a Result on stdout, as text, Markdown or JSON."""

import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from lostflops.cli.completion import complete_run
from lostflops.store.places import as_typed

if TYPE_CHECKING:
    from lostflops.core.results import Result

RunArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="Folder of the run, or its address: s3://bucket/run.",
        show_default=False,
        autocompletion=complete_run,
    ),
]
JobArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of the run.", show_default=False)]
"""A run whose job is running, always a folder: its collectors write to disks of its machines."""
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
MarkdownOption = Annotated[
    bool, typer.Option("--markdown", "--md", help="Print Markdown instead of text, for pull requests and chat.")
]

OWN_JOB = "lostflops run -- torchrun --nproc-per-node 2 train.py"
"""The hint that leads from a trial to the user's own job."""


def show(result: "Result", as_json: bool, stream: TextIO | None = None, *, as_markdown: bool = False) -> None:
    from lostflops.show.report import renderer

    name = "json" if as_json else "markdown" if as_markdown else "terminal"
    renderer(name).write(result, stream or sys.stdout)


def free(path: Path) -> Path:
    """Return the first of `x`, `x-2`, `x-3`, ... that does not exist yet; a suffix stays at the end."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_stem(f"{path.stem}-{number}")
    return found


def tell(message: str) -> None:
    """Print a message on stderr, if that is open."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(f"lostflops: {message}", file=sys.stderr, flush=True)


def command(*words: str | Path) -> str:
    """Return a command line that can be pasted into a shell.

    >>> print(command("sql", "my run", "from events where kind = 'op'"))
    lostflops sql 'my run' "from events where kind = 'op'"
    """
    return " ".join(["lostflops", *(_quote(as_typed(word) if isinstance(word, Path) else word) for word in words)])


def name_run(run: Path) -> str:
    """Return a run as command lines write it.

    >>> name_run(Path("my run"))
    "'my run'"
    """
    return _quote(as_typed(run))


def _quote(word: str) -> str:
    # SQL is full of single quotes, which shlex would write as '"'"'.
    if "'" in word and not set('"$`\\!') & set(word):
        return f'"{word}"'
    return shlex.quote(word)
