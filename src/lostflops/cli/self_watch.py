"""The process that watches a recorded job: it asks for windows when the job becomes slower, and explains hangs.

`lostflops run` starts it on the host of rank 0, at a low priority. Whatever happens to it, the job and its recording go
on. Messages go to the log of the run, to stderr and, if one is named, to a webhook.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from lostflops.cli.early import end_with_parent
from lostflops.cli.output import command, tell
from lostflops.cli.requesting import request_window
from lostflops.collect.capture import ANOMALIES, SUFFIX, flight_file, rank_file, written_trace
from lostflops.core.errors import LostflopsError, UsageError
from lostflops.core.units import pluralise
from lostflops.live.board import Board
from lostflops.live.follow import Follower
from lostflops.live.self_watch import MessageKind, SelfWatch

if TYPE_CHECKING:
    from lostflops.live.sessions import LiveSession

WEBHOOK: Final = "LOSTFLOPS_WEBHOOK"
LOG: Final = "log.jsonl"
_LOOK: Final = 1.0
_MOST_LOOKING: Final = 0.05
"""At most this share of the time goes into looking at the job."""
_MOST_TRACES: Final = 512
"""A window of more ranks is left to somebody who has the memory to read it."""
_MOST_LOGGED: Final = 10 << 20
_WEBHOOK_SECONDS: Final = 10
_STACK_SECONDS: Final = 10
_MOST_STACKS: Final = 8
_LONGEST_PAUSE: Final = 30.0
"""Longest time between two looks, in seconds."""
_PATIENCE: Final = 5
_PROGRAM: Final = (
    "import os, sys; os.nice(10); sys.path.insert(0, sys.argv[1])\n"
    "from lostflops.cli.self_watch import main; main(sys.argv[2:])"
)
"""Program of the process. It lowers its priority first, but must notice a hang in seconds on a busy machine too."""


def check_webhook(url: str) -> str:
    """Return the address; raise UsageError if nothing can be sent there. Its path is a secret, and is not repeated."""
    if not url.isascii() or not url.isprintable() or " " in url:
        raise UsageError("the webhook must be an address without spaces, line breaks and letters outside ASCII")
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number
        has_host = False
    if not has_host or parts.scheme not in ("http", "https"):
        raise UsageError("the webhook must be an address that begins with https:// or http://")
    if "@" in parts.netloc:
        raise UsageError("the webhook must be an address without a user name and a password")
    return url


class WatchProcess:
    """The process that watches `capture` for the run; ranks of this host write to `local`."""

    def __init__(self, capture: Path, run: Path, local: Path, *, per_hour: int, webhook: str) -> None:
        self._capture, self._run, self._local = capture, run, local
        self._per_hour, self._webhook = per_hour, webhook
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False
        self._lock = threading.Lock()
        self._size_before = self._size()
        """The run may have been recorded before, by a job that was killed: it must not be taken for this one."""

    def look(self) -> None:
        """Start the process as soon as rank 0 trains on this host. Called about once a second."""
        with self._lock:
            if self._process is None and not self._is_over and self._size() not in (0, self._size_before):
                self._process = self._start()

    def _size(self) -> int:
        """Return how much rank 0 has recorded here, in bytes."""
        try:
            return rank_file(self._local, 0).stat().st_size
        except OSError:
            return 0

    def stop(self) -> None:
        """End the process, without waiting for a look that hangs."""
        is_locked = self._lock.acquire(timeout=_PATIENCE)
        try:
            self._is_over = True
            if self._process is not None and self._process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_PATIENCE)
        finally:
            if is_locked:
                self._lock.release()

    def _start(self) -> subprocess.Popen[bytes]:
        where = str(Path(__file__).resolve().parents[2])
        told = map(str, (os.getpid(), self._capture, self._run, self._per_hour))
        words = [sys.executable, "-P", "-c", _PROGRAM, where, *told]
        nothing = subprocess.DEVNULL
        environment = {**os.environ, WEBHOOK: self._webhook}  # not a word of the command: others could read it
        return subprocess.Popen(words, stdin=nothing, stdout=nothing, env=environment, start_new_session=True)


@dataclass(slots=True)
class JobActions:
    """What a job that watches itself does, with the files of its run."""

    capture: Path
    run: Path
    board: Board
    webhook: str = ""
    _logged: int = 0
    _failed: set[str] = field(default_factory=set)
    """Ways of reporting that failed, and were complained about."""

    def ask_window(self, step_ns: float) -> int:
        from lostflops.collect.window_length import window_steps

        try:
            return request_window(self.capture, window_steps(step_ns, 0), "all").window
        except OSError as error:
            raise UsageError(f"{self.capture} cannot be written ({error.strerror})") from None

    def is_written(self, window: int) -> bool:
        return all(self._is_over(session, window) for session in self._sessions())

    def _is_over(self, session: "LiveSession", window: int) -> bool:
        state = session.windows.get(window)
        is_there = state == "exported" and written_trace(self.capture, session.rank, window) is not None
        return is_there or state in ("skipped", "failed") or session.is_ended

    def _sessions(self) -> "Sequence[LiveSession]":
        return list(self.board.current.sessions.values()) if self.board.current else []

    def _sessions_here(self) -> "list[LiveSession]":
        host = socket.gethostname()
        return [session for session in self._sessions() if session.host == host]

    def explain_window(self, window: int) -> str:
        traces = [
            trace for one in self._sessions() if (trace := written_trace(self.capture, one.rank, window)) is not None
        ]
        if not traces:
            return f"Window {window} was not recorded: no rank wrote a trace."
        out = self.run / ANOMALIES / f"w{window:04d}"
        sources = [*self._captures(), *traces]
        if len(traces) > _MOST_TRACES:
            pattern = self.capture / f"rank-*.w{window:04d}.*"
            return f"Window {window} is recorded. To read it: {command('ingest', pattern, '-o', out)}"
        part = (
            f" ({len(traces)} of {pluralise(count, 'rank')})" if len(traces) < (count := len(self._sessions())) else ""
        )
        try:
            said = f"{_first_finding(sources, out)} More: {command('diagnose', out)}"
        except LostflopsError as error:
            return f"Window {window}{part} is recorded, but could not be read: {error}"
        except Exception as error:  # noqa: BLE001 - a full disk, too little memory: the watch goes on
            return f"Window {window}{part} is recorded, but could not be read: {error!r}"
        return f"Window {window}{part}: {said}"

    def _captures(self) -> list[Path]:
        return sorted(self.capture.rglob(f"*{SUFFIX}"))

    def are_dumped(self) -> bool:
        return all(one.is_ended or flight_file(self.capture, one.rank).exists() for one in self._sessions())

    def are_gone(self) -> bool:
        here = [session for session in self._sessions_here() if session.pid]
        return bool(here) and not any(_is_alive(session.pid) for session in here)

    def explain_hang(self) -> str:
        from lostflops.api import hang

        try:
            self._take_stacks()
            verdict = hang(str(self.run)).verdict
        except LostflopsError as error:
            verdict = f"No rank wrote where it is: {error}"
        except Exception as error:  # noqa: BLE001 - that the job hangs must be reported in any case
            verdict = f"What the ranks wrote could not be read: {error!r}."
        return f"{verdict} More: {command('hang', self.run)}"

    def _take_stacks(self) -> None:
        """Let py-spy, if it is installed, read the stacks of ranks here whose own thread cannot: the lock is held."""
        mute = [one for one in self._sessions_here() if not flight_file(self.capture, one.rank).exists()]
        for session in [one for one in mute if not one.is_ended][:_MOST_STACKS]:
            with suppress(OSError, subprocess.SubprocessError):
                words = ["py-spy", "dump", "--nonblocking", "--pid", str(session.pid)]
                said = subprocess.run(words, capture_output=True, timeout=_STACK_SECONDS, check=True).stdout
                (self._folder() / f"stack_rank_{session.rank}.txt").write_bytes(said)

    def report(self, kind: MessageKind, text: str, facts: dict[str, Any]) -> None:
        with suppress(OSError, ValueError):
            tell(text)
        record = {"time": datetime.now(UTC).isoformat(timespec="seconds"), "kind": kind, "text": text, **facts}
        try:
            self._log(json.dumps(record) + "\n")
        except OSError as error:
            self.complain("log", f"cannot write {self.run / ANOMALIES / LOG}: {error.strerror}")
        if self.webhook:
            try:
                send(self.webhook, f"{self.run.name}: {text}")
            except (OSError, ValueError, HTTPException) as error:
                where = urlsplit(self.webhook).hostname
                self.complain("webhook", f"the webhook at {where} did not take the message: {type(error).__name__}")

    def _folder(self) -> Path:
        folder = self.run / ANOMALIES
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _log(self, line: str) -> None:
        if self._logged + len(line) <= _MOST_LOGGED:
            with (self._folder() / LOG).open("a") as log:
                log.write(line)
            self._logged += len(line)

    def complain(self, way: str, text: str) -> None:
        """Say once that something failed."""
        if way not in self._failed:
            self._failed.add(way)
            with suppress(OSError, ValueError):
                tell(f"{text}.")


def _first_finding(sources: Sequence[Path], out: Path) -> str:
    from lostflops.api import ingest
    from lostflops.api import open as open_run
    from lostflops.explain.advise.diagnosis import says

    ingest([str(source) for source in sources], out, workers=1)
    with open_run(out) as run:
        found = run.diagnose(top=1)
    return says(found.findings[0]) if found.findings else found.verdict


def send(webhook: str, text: str) -> None:
    """Post a message as chat services take it; raise OSError if it does not arrive."""
    for character, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, written)
    body = json.dumps({"text": text}).encode()
    request = urllib.request.Request(  # noqa: S310 - the scheme was checked
        check_webhook(webhook), body, {"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.build_opener(_NoRedirects).open(request, timeout=_WEBHOOK_SECONDS):
        pass


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Takes a redirect for an error: the message would not be sent along, and other hosts are not to be asked."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to somebody else
        pass
    return True


@dataclass(slots=True)
class Lookout:
    """Looks at a job again and again. Time in which it could not look does not count as a pause of the job: both may
    have been suspended together."""

    follower: Follower
    board: Board
    watch: SelfWatch
    actions: JobActions
    clock: Callable[[], float] = time.monotonic
    _expected: float | None = None
    """When the next look was to begin."""
    _missed: float = 0.0

    def look(self) -> float:
        """Look once, and return how many seconds to wait until the next look."""
        began = self.clock()
        if self._expected is not None:
            self._missed += max(began - self._expected - _LOOK, 0.0)
        now = began - self._missed
        looked = began
        try:
            self.board.take(self.follower.poll(), now)
            said = list(self.board.settle(now))
            looked = self.clock()
            self.watch.look(said, now)
        except Exception as error:  # noqa: BLE001 - a file that is replaced or unreadable now may be there later
            self.actions.complain("watch", f"the job could not be watched for a moment: {error!r}")
        pause = min(max(_LOOK, (looked - began) / _MOST_LOOKING), _LONGEST_PAUSE)
        self._expected = self.clock() + pause
        return pause


def main(arguments: Sequence[str]) -> None:
    parent, capture, run, per_hour = arguments
    end_with_parent(int(parent))
    follower, board = Follower(folder=Path(capture)), Board()
    actions = JobActions(Path(capture), Path(run), board, os.environ.pop(WEBHOOK, ""))
    watch = SelfWatch(board, actions, int(per_hour))
    lookout = Lookout(follower, board, watch, actions)
    while True:
        time.sleep(lookout.look())
