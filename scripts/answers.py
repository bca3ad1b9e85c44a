"""Record what every reading verb answers about many runs, and compare two records: a net under a refactoring.

    python scripts/answers.py record before      # needs ../shared/traces, or --traces FOLDER
    ... change the code ...
    python scripts/answers.py record after
    python scripts/answers.py compare before after

A record holds the JSON of each verb, or its error, for trace sets beside the checkout, the demo and synthetic clusters.
The runs themselves are made again for each record, so that ingest is under the net too. `--only` takes parts of names.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final

from lostflops.cli.main import main as run_program
from lostflops.testing import Losses, Straggler, SyntheticCluster, write_captured
from lostflops.testing.demo import demo_cluster

ROOT: Final = Path(__file__).parent.parent
TRACES: Final = ROOT.parent / "shared" / "traces"
VERBS: Final = (
    *(("info",), ("report",), ("steps",), ("kernels",), ("comm",), ("overlap",), ("ranks",), ("lateness",)),
    *(("pipeline",), ("path",), ("memory",), ("diagnose",), ("whatif", "--all"), ("hang",)),
    ("scale", "--ranks", "16,256"),
)
MOST_FINDINGS: Final = 9
"""Findings that `explain` is asked for."""
SINGLE_FILES: Final = ("*/*.json.gz", "*/*.json", "*/*.sqlite", "*/*.pickle", "*/*.parquet")
"""Files that are a run each, in the folder of their repository."""
Make = Callable[[Path], None]


def runs(traces: Path) -> dict[str, Make]:
    """Return how to make each run, by its name."""
    made: dict[str, Make] = {name: _synthetic(name) for name in ("demo", *_clusters())}
    for folder in sorted({path.parent for path in traces.rglob("*") if path.is_file()}):
        if len(folder.relative_to(traces).parts) > 1:
            made["__".join(folder.relative_to(traces).parts)] = _ingested(folder)
    for pattern in SINGLE_FILES:
        for path in sorted(traces.glob(pattern)):
            made["__".join(path.relative_to(traces).parts)] = _ingested(path)
    return made


def _clusters() -> dict[str, Any]:
    return {
        "healthy": SyntheticCluster(ranks=4, steps=6),
        "late_rank": SyntheticCluster(ranks=4, steps=6, stragglers=(Straggler(1, "slow_kernels", factor=1.4),)),
        "late_data": SyntheticCluster(ranks=4, steps=6, losses=Losses(data=5_000_000, sync=1)),
        "pipeline": SyntheticCluster(ranks=8, steps=6, pipeline_parallel=4, microbatches=4),
        "tensor_parallel": SyntheticCluster(ranks=8, steps=6, tensor_parallel=2),
        "sharded": SyntheticCluster(ranks=4, steps=6, sharding=3, memory=True),
    }


def _synthetic(name: str) -> Make:
    def make(folder: Path) -> None:
        if name == "demo":
            write_captured(demo_cluster(8), folder / "capture")
        else:
            _clusters()[name].generate().traces.write("traces")
        _succeed("ingest", str(folder / "capture") if name == "demo" else "traces", "-o", str(folder))

    return make


def _ingested(source: Path) -> Make:
    return lambda folder: _succeed("ingest", str(source), "-o", str(folder), "--workers", "1")


def ask(*words: str) -> tuple[str, str, int]:
    """Return output, errors and exit code of the command line, called in this process."""
    out, errors, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            run_program(list(words))
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
        except Exception as error:  # noqa: BLE001 - a crash is an answer to compare
            errors.write(f"{type(error).__name__}: {error}")
            code = 70
    return out.getvalue(), errors.getvalue(), code


def _succeed(*words: str) -> None:
    _, errors, code = ask(*words)
    if code:
        raise RuntimeError(errors)


def record_run(name: str, traces: Path, out: Path) -> str:
    """Make one run and write a file for each verb; return a line for the screen."""
    folder = out / name
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
        os.environ.update(COLUMNS="100", NO_COLOR="1", XDG_STATE_HOME=place)
        run = Path("run")
        run.mkdir()
        try:
            runs(traces)[name](run)
        except (RuntimeError, ValueError) as error:
            (folder / "ingest.txt").write_text(str(error), encoding="utf-8")
            return f"{name}: not a run"
        answers = [_write(folder, (verb, str(run), *options, "--json")) for verb, *options in VERBS]
        answers += [_write(folder, ("explain", str(run), str(number), "--json")) for number in _findings(folder)]
    return f"{name}: {sum(answers)} of {len(answers)} verbs answered"


def _write(folder: Path, words: tuple[str, ...]) -> bool:
    out, errors, code = ask(*words)
    name = "-".join(word.strip("-") for word in (words[0], *words[2:-1]))
    (folder / f"{name}.json").write_text(out if not code else json.dumps({"exit": code, "error": errors}) + "\n")
    return not code


def _findings(folder: Path) -> range:
    findings = json.loads((folder / "diagnose.json").read_text()).get("findings", ())
    return range(1, min(len(findings), MOST_FINDINGS) + 1)


def record(out: Path, traces: Path, only: list[str], workers: int) -> int:
    names = [name for name in runs(traces) if not only or any(part in name for part in only)]
    with ProcessPoolExecutor(workers, max_tasks_per_child=1) as pool:
        for task in as_completed([pool.submit(record_run, name, traces, out.resolve()) for name in names]):
            print(task.result(), flush=True)
    return 0


def differences(before: Any, after: Any, where: str = "") -> Iterator[str]:
    """Yield each place where two answers differ.

    >>> list(differences({"a": [1, 2]}, {"a": [1, 3], "b": 0}))
    ['.a[1]: 2 -> 3', '.b: missing -> 0']
    """
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(key for key in after if key not in before)]:
            yield from differences(before.get(key, _MISSING), after.get(key, _MISSING), f"{where}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f"{where}[{index}]")
    elif before != after or type(before) is not type(after):
        yield f"{where}: {_short(before)} -> {_short(after)}"


_MISSING: Final = object()


def _short(value: Any) -> str:
    return "missing" if value is _MISSING else json.dumps(value)[:200]


def compare(before: Path, after: Path) -> int:
    """Print what differs between two records, file by file; return how a program ends."""
    names = sorted({path.relative_to(side) for side in (before, after) for path in side.glob("*/*.*")})
    different = 0
    for name in names:
        old, new = (side / name for side in (before, after))
        if not (old.exists() and new.exists()):
            print(f"{name}: only in {old.parent.parent if old.exists() else new.parent.parent}")
        elif old.read_bytes() == new.read_bytes():
            continue
        elif name.suffix == ".json":
            answers = [_read(side) for side in (old, new)]
            if json.dumps(answers[0]) == json.dumps(answers[1]):
                continue
            lines = list(differences(*answers)) or ["order of keys"]
            print(f"{name}:", *lines[:20], *(["..."] if len(lines) > 20 else []), sep="\n  ")
        else:
            print(f"{name}: {old.read_text()!r} -> {new.read_text()!r}")
        different += 1
    print(f"{len(names)} answers compared, {different} differ")
    return 1 if different or not names else 0


def _read(path: Path) -> Any:
    """Return an answer without the size on disk: the manifest holds times of files, whose digits vary."""
    answer = json.loads(path.read_text())
    if path.name == "info.json" and "contents" in answer:
        answer["contents"]["disk"].pop("bytes", None)
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="ask every verb about every run")
    recording.add_argument("out", type=Path, help="a folder that does not exist yet")
    recording.add_argument("--traces", type=Path, default=TRACES, metavar="FOLDER")
    recording.add_argument("--only", action="append", default=[], metavar="PART", help="runs with this in their name")
    recording.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N")
    comparing = commands.add_parser("compare", help="print what differs between two records")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    asked = parser.parse_args()
    if asked.command == "compare":
        return compare(asked.before, asked.after)
    if asked.out.exists():
        parser.error(f"{asked.out} already exists")
    return record(asked.out, asked.traces, asked.only, asked.workers)


if __name__ == "__main__":
    sys.exit(main())
