import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lostflops.live.watching import AFTER_END
from lostflops.store.manifest import FILE_NAME
from made_jobs import MadeJob

TESTS = Path(__file__).parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}"}


@pytest.fixture
def job(tmp_path: Path) -> MadeJob:
    return MadeJob(tmp_path / "run" / "capture", late_ms={2: 12})


def words(text: str) -> str:
    return " ".join(text.split())


def objects(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_one_line_per_step_and_a_summary(lostflops, job: MadeJob, tmp_path: Path) -> None:
    job.start()
    job.run(0, 9)
    job.end()
    outcome = lostflops("watch", tmp_path / "run", "--once")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0] == "Attempt 0: 4 ranks, 1 host."
    assert lines[1] == "MFU is unknown: give the model FLOPs per step over all ranks with --model-flops."
    assert words(lines[2]) == "step time median data samples/s tokens/s memory MFU late rank"
    assert words(lines[3]) == "0 112 ms 100 ms 9.7% 286 - 4.00 GB - -, compiled"
    assert words(lines[11]) == "8 112 ms 100 ms 9.7% 286 - 4.00 GB - rank 2 +12.0 ms (in all 8 steps)"
    assert [line.split()[0] for line in lines[3:12]] == list("012345678")
    assert "\x1b" not in outcome.out
    verdict = "The job ended: 9 steps on 4 ranks. Rank 2 is late by 12.0 ms per step (10.7% of a step), in all 8 steps."
    assert verdict in words(outcome.out)
    assert outcome.out.endswith(f"Next: lostflops report {tmp_path / 'run'}\n")


def test_a_running_job_has_no_report_yet(lostflops, job: MadeJob, tmp_path: Path) -> None:
    run = tmp_path / "run"
    job.start()
    assert lostflops("watch", run, "--once").out.endswith(f"Next: lostflops watch {run}\n")
    job.run(0, 9)
    assert lostflops("watch", run, "--once").out.endswith(
        f"Next: lostflops snap {run} --steps 3\nOr: lostflops hang {run}\n"
    )


def test_json_is_one_object_per_line(lostflops, job: MadeJob, tmp_path: Path) -> None:
    job.start()
    job.run(0, 9)
    job.run(9, 1, ranks=[0, 1, 3])
    found = objects(lostflops("watch", tmp_path / "run", "--once", "--json").out)
    assert {each["schema"] for each in found} == {"lostflops.watch/2"}
    assert [each["kind"] for each in found] == ["notice", *["step"] * 9, "summary"]
    assert [each["late"] for each in found[1:9]] == [None] * 8
    assert found[9] == {
        "schema": "lostflops.watch/2",
        "kind": "step",
        "attempt": 0,
        "step": 8,
        "time_ns": 112_000_000,
        "median_ns": 100_000_000,
        "slowest_rank": 2,
        "data_share": pytest.approx(40 / 412),
        "samples_per_second": pytest.approx(32 / 0.112),
        "tokens_per_second": None,
        "peak_memory": 4_000_000_000,
        "mfu": None,
        "ranks": 4,
        "missing": [],
        "late": {
            "rank": 2,
            "lateness_ns": pytest.approx(12e6, abs=10),
            "share": pytest.approx(12 / 112, rel=0.01),
            "late_steps": 8,
            "steps": 8,
            "since": None,
        },
        "marks": [],
    }
    summary = found[-1]
    assert summary["steps"] == {
        "seen": 9,
        "p50_ns": 112_000_000,
        "p95_ns": 112_000_000,
        "samples_per_second": pytest.approx(32 / 0.112),
        "tokens_per_second": None,
        "incomplete": 0,
    }
    assert summary["collector"]["restarts"] == 0
    assert summary["notes"] == ["Step 9 was not finished: rank 2 had not reported it."]


def test_mfu_is_what_its_definition_says(lostflops, job: MadeJob, tmp_path: Path) -> None:
    job.start()
    job.run(0, 1)
    call = ("watch", tmp_path / "run", "--once", "--json", "--model-flops", "4.48e12")
    (_, step, _) = objects(lostflops(*call, "--peak-tflops", "100").out)
    assert step["mfu"] == pytest.approx(4.48e12 / (0.112 * 4 * 100e12))
    (_, step, _) = objects(lostflops(*call, "--peak-tflops", "1").out)
    assert step["mfu"] is None, "more than the peak cannot be"


@pytest.mark.parametrize(
    ("device", "dtype", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", ["--dtype", "bf16"], 1e12 / (0.1 * 989e12)),
        ("NVIDIA H100 80GB HBM3", [], "give the dtype of the matmuls (bf16, fp16, fp8, fp32, tf32) with --dtype"),
        ("NVIDIA A10G", ["--dtype", "fp32"], "there is no confirmed fp32 peak for A10G: give --peak-tflops."),
        ("NVIDIA X999", ["--dtype", "bf16"], "the peak of 'NVIDIA X999' is unknown: give --peak-tflops."),
        (None, [], "the peak of 'no accelerator' is unknown: give --peak-tflops."),
    ],
)
def test_the_peak_of_a_known_device(lostflops, tmp_path: Path, device, dtype: list[str], expected) -> None:
    job = MadeJob(tmp_path / "capture", world_size=1, device_name=device)
    job.start()
    job.run(0, 1)
    call = ("watch", tmp_path, "--once", "--model-flops", "1e12", *dtype)
    if isinstance(expected, float):
        assert objects(lostflops(*call, "--json").out)[1]["mfu"] == pytest.approx(expected)
    else:
        assert f"MFU is unknown: {expected}" in lostflops(*call).out


def test_only_the_last_steps_of_the_past_are_shown_and_all_are_counted(lostflops, job: MadeJob, tmp_path: Path) -> None:
    job.start()
    job.run(0, 30)
    found = objects(lostflops("watch", tmp_path / "run", "--once", "--json", "--last", "3").out)
    assert [each["step"] for each in found if each["kind"] == "step"] == [27, 28, 29]
    assert found[-1]["steps"]["seen"] == 30


def test_no_capture(lostflops, tmp_path: Path) -> None:
    outcome = lostflops("watch", tmp_path, "--once")
    assert (outcome.code, outcome.out) == (5, "")
    assert "has no capture" in outcome.err


def test_watching_ends_when_nothing_comes(lostflops, tmp_path: Path) -> None:
    outcome = lostflops("watch", tmp_path, "--interval", "0.05", "--patience", "0.1")
    assert outcome.code == 0
    assert outcome.out.startswith(f"Waiting for {tmp_path / 'capture'}.\n")
    assert "Nothing is recorded yet." in outcome.out


def test_a_run_of_traces_is_not_waited_for(lostflops, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("{}")
    outcome = lostflops("watch", tmp_path)
    assert (outcome.code, outcome.out) == (5, "")
    assert f"made from traces, so there is no job to follow. To read it: lostflops report {tmp_path}" in outcome.err


def test_a_job_that_ended_and_was_ingested_is_shown_at_once(lostflops, job: MadeJob, tmp_path: Path) -> None:
    job.start()
    job.run(0, 3)
    job.end()
    (tmp_path / "run" / FILE_NAME).write_text("{}")
    began = time.monotonic()
    outcome = lostflops("watch", tmp_path / "run", "--interval", "0.05")
    assert "The job ended: 3 steps on 4 ranks." in words(outcome.out)
    assert time.monotonic() - began < AFTER_END / 2


WRITER = """
import sys, time
from pathlib import Path
from made_jobs import MadeJob

job = MadeJob(Path(sys.argv[1]), world_size=2)
for number in range(6):
    if number == 0:
        job.start()
    for rank in range(2):
        data = job.frame(rank, [job.step(rank, number), job.enqueued(rank, number)])
        with job.path(rank).open("ab", buffering=0) as file:
            file.write(data[:50])
            time.sleep(0.02)
            file.write(data[50:])
job.end()
"""


def test_a_job_is_followed_while_it_writes(tmp_path: Path) -> None:
    watcher = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "lostflops", "watch", tmp_path, "--interval", "0.05", "--json"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watcher.stdout is not None
    subprocess.run([sys.executable, "-c", WRITER, tmp_path / "capture"], env=ENVIRONMENT, check=True)
    found = []
    while not found or found[-1].get("notice") != "ended":
        found.append(json.loads(watcher.stdout.readline()))
    watcher.send_signal(signal.SIGINT)
    out, _ = watcher.communicate(timeout=60)
    (summary,) = objects(out)
    assert watcher.returncode == 0
    assert [(each["step"], each["missing"]) for each in found if each["kind"] == "step"] == [(n, []) for n in range(6)]
    assert summary["verdict"].startswith("The job ended: 6 steps on 2 ranks")
    assert summary["collector"]["damaged"] == 0


def test_an_interrupt_ends_with_the_summary(job: MadeJob, tmp_path: Path) -> None:
    job.start()
    job.run(0, 2)
    watcher = subprocess.Popen(
        [sys.executable, "-m", "lostflops", "watch", tmp_path / "run", "--interval", "0.05"],
        env={**ENVIRONMENT, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert watcher.stdout is not None
    lines = [watcher.stdout.readline() for _ in range(5)]
    assert lines[-1].split()[0] == "1"
    time.sleep(0.2)
    watcher.send_signal(signal.SIGINT)
    try:
        rest, _ = watcher.communicate(timeout=60)
    finally:
        watcher.kill()  # else later tests have a child
        watcher.communicate()
    assert watcher.returncode == 0
    assert "The job was still running: 2 steps on 4 ranks" in rest


def test_watching_loads_no_engine(job: MadeJob, tmp_path: Path) -> None:
    job.start()
    job.run(0, 1)
    script = (
        "import sys\nfrom lostflops.cli.main import main\n"
        "heavy = {'duckdb', 'numpy', 'scipy', 'torch', 'opentelemetry'}\n"
        "try:\n    main(sys.argv[1:])\nfinally:\n    print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "watch", tmp_path / "run", "--once"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "[]\n"


def test_otel_needs_an_endpoint(lostflops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "capture").mkdir()
    outcome = lostflops("watch", tmp_path, "--once", "--otel")
    assert outcome.code == 2
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in outcome.err


def test_otel_that_is_not_installed_says_what_to_install(lostflops, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "capture").mkdir()
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)
    outcome = lostflops("watch", tmp_path, "--once", "--otlp", "http://localhost:4318")
    assert outcome.code == 2
    assert re.search(r"pip install 'lostflops\[otel\]'", outcome.err)


def test_the_prometheus_file_is_kept(lostflops, job: MadeJob, tmp_path: Path) -> None:
    job.start()
    job.run(0, 2)
    file = tmp_path / "lostflops.prom"
    assert lostflops("watch", tmp_path / "run", "--once", "--prometheus", file).code == 0
    assert 'lostflops_step_seconds{host="node0",rank="2"} 0.112\n' in file.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lostflops.prom", "run"]
