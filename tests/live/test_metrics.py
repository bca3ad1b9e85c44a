"""The text file is read by a strict parser of the exposition format; OpenTelemetry by a reader in memory."""

import re
from pathlib import Path

import pytest

from lostflops.core.errors import UsageError
from lostflops.live import otel, prometheus
from lostflops.live.board import Board
from lostflops.live.follow import Follower
from lostflops.live.metrics import METRICS, Metric, collect
from made_jobs import BEGIN, SECOND, MadeJob

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? (\S+)")

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Series:
    """Fails unless families stand together under HELP and TYPE, series are unique, and each line is well formed."""
    assert text.endswith("\n")
    found: Series = {}
    types: dict[str, str] = {}
    helped: list[str] = []
    for line in text.splitlines():
        if match := re.fullmatch(rf"# HELP ({NAME}) ([^\n\\]+)", line):
            assert match[1] not in helped
            helped.append(match[1])
        elif match := re.fullmatch(rf"# TYPE ({NAME}) (gauge|counter)", line):
            assert match[1] == helped[-1]
            types[match[1]] = match[2]
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            assert sample[1] == helped[-1] == list(types)[-1]
            labels = tuple(re.findall(LABEL, sample[2] or ""))
            assert len(dict(labels)) == len(labels)
            assert (sample[1], labels) not in found
            found[sample[1], labels] = float(sample[len(sample.groups())])
    assert all((types[name] == "counter") == name.endswith("_total") for name in helped)
    return found


def board_of(folder: Path, **settings: object) -> Board:
    job = MadeJob(folder, **settings)  # type: ignore[arg-type]
    job.start()
    job.run(0, 3)
    board = Board()
    board.take(Follower(folder=folder).poll(), 0)
    assert list(board.settle(0))
    return board


def test_the_text_is_well_formed_and_true(tmp_path: Path) -> None:
    board = board_of(tmp_path, world_size=2, late_ms={1: 20})
    found = parsed(prometheus.text(collect(board, 0.25)))

    def of_rank(name: str, rank: int) -> float:
        return found[f"lostflops_{name}", (("host", "node0"), ("rank", str(rank)))]

    def of_job(name: str) -> float:
        return found[f"lostflops_{name}", ()]

    assert [of_rank("step", rank) for rank in (0, 1)] == [2, 2]
    assert [of_rank("step_seconds", rank) for rank in (0, 1)] == [0.1, 0.12]
    assert of_rank("step_data_seconds", 1) == 0.01
    assert of_rank("peak_memory_bytes", 1) == 2e9
    assert of_rank("enqueue_lateness_seconds", 1) == pytest.approx(0.02, abs=1e-6)
    assert of_rank("rank_missing", 1) == 0
    assert (of_job("job_step_seconds"), of_job("job_median_step_seconds")) == (0.12, 0.11)
    assert of_job("samples_per_second") == pytest.approx(16 / 0.12)
    assert (of_job("mfu_ratio"), of_job("ranks"), of_job("attempt")) == (0.25, 2, 0)
    assert of_job("dropped_records_total") == 0
    assert (of_job("job_stalled"), of_job("job_ended"), of_job("attempt_start_timestamp_seconds")) == (
        0,
        0,
        BEGIN / 1e9,
    )
    assert [of_rank(name, 1) for name in ("collector_level", "rank_blocking")] == [0, 0]
    assert not {name for name, _ in found} & {"lostflops_device_memory_bytes"}, "these ranks have no device"
    assert "lostflops_tokens_per_second" not in {name for name, _ in found}


def test_what_alarms_are_about(tmp_path: Path) -> None:
    job, follower, board = MadeJob(tmp_path, world_size=2), Follower(folder=tmp_path), Board()

    def values(now: float, zero: float = 1000) -> Series:
        board.take(follower.poll(), now)
        assert list(board.settle(now)) or now
        return {
            (name, labels[1:]): value
            for (name, labels), value in parsed(prometheus.text(collect(board, None, zero))).items()
        }

    def of_job(found: Series) -> list[float]:
        names = ("job_stalled", "job_ended", "last_report_timestamp_seconds", "attempt_start_timestamp_seconds")
        return [found[f"lostflops_{name}", ()] for name in names]

    def of_ranks(found: Series, name: str) -> list[float]:
        return [found[f"lostflops_{name}", (("rank", str(rank)),)] for rank in (0, 1)]

    for rank in (0, 1):
        job.append(rank, [job.session(rank, device_memory=80 << 30)])
    job.run(0, 9)
    found = values(5)
    assert of_job(found) == [0, 0, 1005, BEGIN / 1e9]
    assert of_ranks(found, "device_memory_bytes") == [80 << 30] * 2
    for rank in (0, 1):
        job.append(rank, [job.enqueued(rank, 10 - rank), {"kind": "overhead", "level": rank, "reason": None}])
    values(12)
    found = values(20)
    assert of_job(found) == [1, 0, 1012, BEGIN / 1e9]
    assert of_ranks(found, "rank_blocking") == [0, 1]
    assert of_ranks(found, "collector_level") == [0, 1]
    again = MadeJob(tmp_path, world_size=2, attempt=1, begin=BEGIN + 60 * SECOND)
    again.start()
    assert of_job(values(25)) == [0, 0, 1025, BEGIN / 1e9 + 60]
    again.run(0, 2)
    again.end()
    assert of_job(values(26)) == [0, 1, 1026, BEGIN / 1e9 + 60]
    assert of_job(values(80)) == [0, 1, 1026, BEGIN / 1e9 + 60]


def test_host_names_cannot_break_the_format() -> None:
    metric = Metric("lostflops_step", "Step.", "1")
    text = prometheus.text({metric: [((("host", 'a"b\\c\nd'),), 1.0)]})
    assert parsed(text) == {("lostflops_step", (("host", r"a\"b\\c\nd"),)): 1}


def test_only_numbers_ranks_and_hosts_are_exported(tmp_path: Path) -> None:
    labels = {key for samples in collect(board_of(tmp_path), None).values() for labels, _ in samples for key in labels}
    assert {name for name, _ in labels} == {"host", "kind", "rank"}


def test_the_file_is_replaced_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.prom"
    file.write_text("old")
    seen = []
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda self, to: (seen.append(file.read_text()), replace(self, to))[1])
    prometheus.write(file, {Metric("lostflops_ranks", "Ranks.", "1"): [((), 2.0)]})
    assert seen == ["old"]
    assert parsed(file.read_text()) == {("lostflops_ranks", ()): 2}
    assert [path.name for path in tmp_path.iterdir()] == ["x.prom"]


def test_metrics_are_named_as_prometheus_wants_them() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"lostflops_[a-z_]+", metric.name)
        assert (metric.unit == "s") == metric.name.endswith("_seconds")
        assert (metric.unit == "By") == metric.name.endswith("_bytes")


@pytest.mark.parametrize("endpoint", ["localhost:4318", "grpc://host", "http://"])
def test_what_is_no_endpoint(endpoint: str) -> None:
    with pytest.raises(UsageError, match="not an OTLP endpoint"):
        otel.metrics_url(endpoint)


def test_opentelemetry_gets_the_same_numbers(tmp_path: Path) -> None:
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    reader = export.InMemoryMetricReader()
    exporter = otel.Exporter(reader)
    samples = collect(board_of(tmp_path, world_size=2, late_ms={1: 20}), 0.25)
    exporter.update(samples)
    (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
    found = {
        (metric.name, tuple(sorted(point.attributes.items()))): point.value
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    assert found == parsed(prometheus.text(samples))
    exporter.close()


def test_every_metric_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/watch-json.md").read_text(encoding="utf-8")
    assert all(f"| `{metric.name}` | {metric.type} | {metric.help} |" in page for metric in METRICS)
