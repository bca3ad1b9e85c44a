"""The page of a run as a file, for every verb that writes one."""

from pathlib import Path
from typing import TYPE_CHECKING

from lostflops.cli.output import command
from lostflops.cli.scope import bar_of

if TYPE_CHECKING:
    from lostflops.ledger.mfu import Claims
    from lostflops.results import Result


def written_page(path: Path, file: Path, said: "Claims | None" = None) -> "Result":
    """Answers all questions and writes the page, over what was there before."""
    from lostflops.errors import UsageError
    from lostflops.ledger.mfu import Claims
    from lostflops.pages.page import page_of, questions_for
    from lostflops.report.html import write_page
    from lostflops.results import Figure, Result
    from lostflops.store.run import Run
    from lostflops.units import format_bytes

    # Said before minutes are spent on answers.
    if file.is_dir():
        raise UsageError(f"{file} is a folder: name a file")
    if not file.parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}")
    with Run.open(path) as run, bar_of("questions") as progress:
        page = page_of(run, questions_for(said or Claims()), progress)
    half = file.with_name(f".{file.name}.part")
    half.unlink(missing_ok=True)  # in a run of strangers it may be a link to anything
    try:
        with half.open("x", encoding="utf-8") as stream:
            write_page(page, stream)
        half.replace(file)
    finally:
        half.unlink(missing_ok=True)
    size = file.stat().st_size
    return Result(
        name="page_file",
        title="Page",
        verdict=f"Wrote {file} ({format_bytes(size)}): one file that any browser opens, without a network.",
        notes=tuple(f"{name} could not be answered: {why}" for name, why in page.missing),
        next_command=command("diff", path, "NEW_RUN"),
        more=(Figure("file", str(file)), Figure("bytes", size)),
    )
