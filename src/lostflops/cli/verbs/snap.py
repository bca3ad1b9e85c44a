"""`lostflops snap`: ask a running job for a deep window."""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lostflops.cli.output import JobArgument, JsonOption, command, show
from lostflops.collect.capture import FOLDER

if TYPE_CHECKING:
    from lostflops.collect.capture import WindowRequest
    from lostflops.core.results import Result
    from lostflops.live.standing import Standing

EXAMPLE = "lostflops snap run --steps 3"
_POLL = 0.5


@dataclass(frozen=True, slots=True)
class _Answer:
    """Result of a window."""

    traces: dict[int, Path]
    """Traces by rank."""
    missing: dict[int, str]
    """Why other ranks have no trace."""


def snap(
    run: JobArgument,
    steps: Annotated[int, typer.Option("--steps", min=1, max=1000, metavar="N", help="Steps to profile.")] = 3,
    ranks: Annotated[
        str, typer.Option("--ranks", metavar="WHICH", help="Ranks to profile: all, hosts (one each), or 0,8,16.")
    ] = "all",
    timeout: Annotated[
        int, typer.Option("--timeout", min=0, metavar="SECONDS", help="How long to wait for the traces.")
    ] = 300,
    as_json: JsonOption = False,
) -> None:
    """Profile the next steps of a running job.

    The job must run under lostflops run. All ranks profile the same steps, starting a few seconds from now. Waits for
    their traces.
    """
    from lostflops.cli.requesting import request_window, running_ranks

    capture = run / FOLDER
    asked = _select_ranks(running_ranks(capture), ranks)
    request = request_window(capture, steps, ranks)
    _tell(f"window {request.window}: steps {_span(request)} on {len(asked)} ranks")
    answer = _wait(capture, request, asked, timeout)
    _tell("")
    show(_summarise(run, request, answer), as_json)
    if not answer.traces:
        raise typer.Exit(1)


def _select_ranks(found: dict[int, "Standing"], ranks: str) -> list[int]:
    from lostflops.collect.window_plan import RankNumbers
    from lostflops.core.errors import UsageError

    try:
        asked = [rank for rank, state in found.items() if RankNumbers(rank, state.local_rank or 0).is_asked(ranks)]
        wanted = set() if ranks in ("all", "hosts") else {int(number) for number in ranks.split(",")}
    except ValueError:
        raise UsageError(f"--ranks must be all, hosts, or numbers such as 0,8; not {ranks!r}") from None
    if wanted - set(asked):
        missing = ", ".join(map(str, sorted(wanted - set(asked))))
        raise UsageError(f"no such rank in this job: {missing}; training ranks are {min(found)} to {max(found)}")
    return sorted(asked)


def _wait(capture: Path, request: "WindowRequest", asked: list[int], timeout: int) -> _Answer:
    from lostflops.live.standing import standings

    deadline = time.monotonic() + timeout
    while True:
        found = standings(capture)
        answer = _answer(capture, request, asked, found)
        is_open = [rank for rank, reason in answer.missing.items() if not reason]
        if not is_open or time.monotonic() >= deadline:
            return _Answer(
                answer.traces, {rank: reason or _late(rank, found) for rank, reason in answer.missing.items()}
            )
        latest = max((state.step for state in found.values()), default=0)
        _tell(f"steps {_span(request)}; the job is at step {latest + 1}; {len(answer.traces)}/{len(asked)} traces")
        time.sleep(_POLL)


def _answer(capture: Path, request: "WindowRequest", asked: list[int], found: dict[int, "Standing"]) -> _Answer:
    from lostflops.collect.capture import written_trace

    traces, missing = {}, {}
    for rank in asked:
        trace = written_trace(capture, rank, request.window)
        if trace is not None:
            traces[rank] = trace
        else:
            missing[rank] = _why_not(request, found.get(rank))
    return _Answer(traces, missing)


def _why_not(request: "WindowRequest", standing: "Standing | None") -> str:
    """Say why a trace will not come; empty as long as it may come."""
    state, reason = standing.windows.get(request.window, ("", None)) if standing else ("", None)
    if state in ("skipped", "failed"):
        return reason or state
    from lostflops.collect.export import LONGEST

    gone = standing is not None and standing.has_ended and time.time_ns() - standing.stop > LONGEST * 1_000_000_000
    never = standing is not None and standing.has_ended and state not in ("stopped", "exported")
    return "the job ended first" if gone or never else ""


def _late(rank: int, found: dict[int, "Standing"]) -> str:
    state = found.get(rank)
    return (
        f"no trace before the timeout; the last finished step is {state.step}"
        if state
        else "no trace before the timeout"
    )


def _summarise(run: Path, request: "WindowRequest", answer: _Answer) -> "Result":
    from lostflops.core.results import Field, Pair, Pairs, Result, Table
    from lostflops.core.units import pluralise

    held = Pairs(
        "window",
        "",
        (
            Pair("window", request.window, "", "Window"),
            Pair("first", request.first, "", "First step"),
            Pair("steps", request.steps, "", "Steps"),
            Pair("traces", len(answer.traces), "count", "Traces"),
            Pair("bytes", sum(trace.stat().st_size for trace in answer.traces.values()), "bytes", "Size"),
        ),
    )
    fields = (Field("rank"), Field("reason"))
    missing = Table("missing", "Ranks without a trace", fields, tuple(sorted(answer.missing.items())), most_shown=10)
    without = f"; {pluralise(len(answer.missing), 'rank')} without a trace" if answer.missing else ""
    return Result(
        name="snap",
        title="Profiled window",
        verdict=f"Steps {_span(request)}: {pluralise(len(answer.traces), 'trace')}{without}.",
        blocks=(held, missing) if answer.missing else (held,),
        next_command=command("ingest", run / FOLDER, "-o", run) if answer.traces else command("watch", run),
    )


def _span(request: "WindowRequest") -> str:
    last = request.first + request.steps - 1
    return f"{request.first}" if last == request.first else f"{request.first} to {last}"


def _tell(text: str) -> None:
    """Show progress if stderr is a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
