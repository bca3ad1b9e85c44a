"""Coverage-guided fuzzing with Atheris (`pip install --group fuzz`).

    python tests/fuzz/fuzz.py kineto --seconds 60
    python tests/fuzz/fuzz.py all --seconds 600 --corpus FOLDER   # the folder grows from run to run
    python tests/fuzz/fuzz.py kineto --input FILE                 # one input again, without Atheris
    python tests/fuzz/fuzz.py all --corpus FOLDER --keep          # inputs that add coverage become the kept corpus
    python tests/fuzz/fuzz.py all --coverage                      # lines that all known inputs reach

An input that breaks the promise of `targets.py` ends its target and is written to the folder of findings. Fix the cause
and keep the input as `tests/fuzz/found/TARGET-what-was-wrong`.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from concurrent.futures import Future
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src"), str(ROOT / "tests")]
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_MOST_MB = 2048
_MOST_SECONDS = 300
"""An input that takes longer hangs. Targets limit its CPU time; on a busy machine it may wait long for that."""
_MOST_KEPT = 24 << 10
"""Bytes of the corpus of a target in the repository, packed."""

# In a process of one target.


def fuzz_here(name: str, arguments: list[str]) -> None:
    """Fuzz one target until libFuzzer ends this process."""
    import atheris

    if name == "scan":
        os.environ["NUMBA_DISABLE_JIT"] = "1"  # plain Python, in which every line counts as coverage
    compiled = ["lostflops.ingest.formats.kineto.scan", "lostflops.ingest.formats.kineto.raw_memory"]
    with atheris.instrument_imports(include=["lostflops"], exclude=compiled if name != "scan" else []):
        from lostflops.ingest.common import byte_stream
        from tests.fuzz.targets import TARGETS

    vars(byte_stream)["ThreadPoolExecutor"] = _AtOnce
    target = TARGETS[name]
    target.check(target.seeds()[0])  # what is compiled or loaded once is not the time of an input

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        changed = target.mutate(chance, data) if chance.random() < 0.5 else b""
        return changed if 0 < len(changed) <= most else atheris.Mutate(data, most)

    atheris.Setup([sys.argv[0], *arguments, f"-max_len={target.largest}"], target.run, custom_mutator=mutate)
    atheris.Fuzz()


class _AtOnce:
    """An executor without threads: a thread for each input would take longer than reading it."""

    def __init__(self, *_: object) -> None: ...

    def submit(self, work: Any, *arguments: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*arguments))
        return done

    def shutdown(self) -> None: ...


def measure_here(name: str, corpus: Path | None) -> None:
    """Print how many lines of its modules a target reaches, with all known inputs and those of a corpus."""
    import coverage

    os.environ["NUMBA_DISABLE_JIT"] = "1"
    measured = coverage.Coverage(data_file=None, source_pkgs=["lostflops"])
    measured.start()
    from tests.fuzz.known import known_inputs
    from tests.fuzz.targets import TARGETS

    target = TARGETS[name]
    fresh = [path.read_bytes() for path in sorted((corpus / name).iterdir())] if corpus else []
    for data in (*known_inputs(name), *fresh):
        target.run(data)
    measured.stop()
    total = missed = 0
    for module in sorted(measured.get_data().measured_files()):
        dotted = Path(module).relative_to(ROOT / "src/lostflops").with_suffix("").as_posix().replace("/", ".")
        if any(dotted == prefix or dotted.startswith(f"{prefix}.") for prefix in target.covers):
            _, lines, _, missing, _ = measured.analysis2(module)
            total, missed = total + len(lines), missed + len(missing)
    print(f"{name}: {1 - missed / total:.0%} of {total:,} lines in {', '.join(target.covers)}", flush=True)


# In the process that starts them.


def fuzz(name: str, options: argparse.Namespace, folder: Path) -> tuple[int, bool]:
    """Fuzz one target; return the number of inputs, and whether one broke the promise."""
    from tests.fuzz.known import known_inputs

    corpus = folder / name
    corpus.mkdir(parents=True, exist_ok=True)
    options.findings.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(known_inputs(name)):
        (corpus / f"known-{number}").write_bytes(data)
    arguments = [
        str(corpus), f"-artifact_prefix={options.findings}/{name}-", f"-seed={options.seed}", "-reload=0",
        "-print_final_stats=1", "-len_control=0",
        f"-max_total_time={options.seconds}" if options.seconds else f"-runs={options.runs}",
    ]  # fmt: skip
    began = time.monotonic()
    done = _start_child(name, arguments)
    found = _EXECUTED.search(done.stderr)
    executed = int(found[1]) if found else 0
    has_failed = done.returncode != 0 or found is None
    spent = time.monotonic() - began
    print(f"{name}: {executed:,} inputs in {spent:.0f} s{', FAILED' if has_failed else ''}", flush=True)
    if has_failed:
        print(done.stdout[-6000:] + done.stderr[-3000:], flush=True)
    return executed, has_failed


def _start_child(name: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    from tests.fuzz.scratch import MEMORY

    command = [
        sys.executable,
        __file__,
        name,
        "--child",
        f"-rss_limit_mb={_MOST_MB}",
        f"-timeout={_MOST_SECONDS}",
        *arguments,
    ]
    # libFuzzer ends its process at once, so that somebody else must remove its files.
    with tempfile.TemporaryDirectory(prefix="lostflops-fuzz-", dir=MEMORY) as folder:
        own = {**os.environ, "TMPDIR": folder}
        return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=own)


def keep(name: str, corpus: Path) -> None:
    """Replace the kept corpus of a target by the smallest inputs that reach what its corpus reaches."""
    from tests.fuzz.known import CORPUS, found_inputs
    from tests.fuzz.targets import TARGETS

    with tempfile.TemporaryDirectory(prefix="lostflops-fuzz-") as folder:
        if _start_child(name, ["-merge=1", folder, str(corpus / name)]).returncode:
            raise SystemExit(f"{name}: the corpus could not be merged; the kept one stays as it is")
        known = {*TARGETS[name].seeds(), *(path.read_bytes() for path in found_inputs(name))}
        fresh = sorted({path.read_bytes() for path in Path(folder).iterdir()} - known, key=lambda one: (len(one), one))
    CORPUS.mkdir(exist_ok=True)
    size = 0
    with zipfile.ZipFile(CORPUS / f"{name}.zip", "w") as archive:
        for number, data in enumerate(fresh):
            size += len(zlib.compress(data)) + 100
            if size > _MOST_KEPT:
                break
            archive.writestr(zipfile.ZipInfo(f"{number:03}"), data, zipfile.ZIP_DEFLATED)
    print(f"{name}: {len(fresh)} inputs add coverage to the seeds", flush=True)


def main() -> int:
    os.environ["XDG_CACHE_HOME"] = os.environ["XDG_STATE_HOME"] = "/dev/null/none"  # no run is known to this machine
    if sys.argv[2:3] == ["--child"]:
        fuzz_here(sys.argv[1], sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="+", metavar="TARGET", help="names in targets.py, or all")
    parser.add_argument("--seconds", type=int, default=0, help="for each target")
    parser.add_argument("--runs", type=int, default=10_000, help="inputs of each target, without --seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", type=Path, help="folder with a folder of inputs for each target")
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz-findings"))
    parser.add_argument("--input", type=Path, help="try one input")
    parser.add_argument("--keep", action="store_true", help="keep inputs that add coverage in the repository")
    parser.add_argument("--coverage", action="store_true", help="measure the lines that all known inputs reach")
    options = parser.parse_args()
    if options.coverage and "all" not in options.targets and len(options.targets) == 1:
        measure_here(options.targets[0], options.corpus)
        return 0
    from tests.fuzz.targets import TARGETS

    names = list(TARGETS) if "all" in options.targets else options.targets
    if options.input:
        TARGETS[names[0]].run(options.input.read_bytes())
    elif options.coverage:
        more = ["--corpus", str(options.corpus)] if options.corpus else []
        for name in names:
            subprocess.run([sys.executable, __file__, name, "--coverage", *more], check=True)
    elif options.keep:
        for name in names:
            keep(name, options.corpus)
    else:
        with tempfile.TemporaryDirectory(prefix="lostflops-fuzz-") as folder:
            done = [fuzz(name, options, options.corpus or Path(folder)) for name in names]
        print(f"{sum(executed for executed, _ in done):,} inputs")
        return int(any(has_failed for _, has_failed in done))
    return 0


if __name__ == "__main__":
    sys.exit(main())
