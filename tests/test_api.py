"""Python gets the same answers as the command line, with names for their parts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lostflops as lf
from lostflops.cli.groups import OLD
from lostflops.cli.main import COMMANDS
from lostflops.testing import Straggler, SyntheticCluster, store
from tests.integration.statements import Refused, asked

Answer = Callable[[lf.TrainingRun], lf.Result]
QUESTIONS: dict[str, tuple[tuple[str, ...], Answer]] = {
    "report": ((), lambda run: run.report()),
    "report of a rank": (("--rank", "1", "--by", "rank"), lambda run: run.report(rank=[1], by="rank")),
    "report of a step": (("--step", "12"), lambda run: run.report(step=[12])),
    "report with a peak": (("--peak-tflops", "100"), lambda run: run.report(peak_tflops=100)),
    "diagnose": ((), lambda run: run.diagnose()),
    "explain": (("1",), lambda run: run.explain(1)),
    "steps": ((), lambda run: run.steps()),
    "kernels": (("--limit", "3"), lambda run: run.kernels(limit=3)),
    "comm": ((), lambda run: run.comm()),
    "comm with overlap": (("--overlap",), lambda run: run.comm(overlap=True)),
    "ranks": ((), lambda run: run.ranks()),
    "ranks by step": (("--by-step",), lambda run: run.ranks(by_step=True)),
    "pipeline": ((), lambda run: run.pipeline()),
    "path": (("--step", "12"), lambda run: run.path(step=12)),
    "memory": ((), lambda run: run.memory()),
    "flame": ((), lambda run: run.flame()),
    "whatif of a change": (("--change", "straggler=removed"), lambda run: run.whatif("straggler=removed")),
    "whatif of all": (("--all",), lambda run: run.whatif()),
    "whatif lists": (("--list",), lambda run: run.changes()),
    "devices": (("--samples-per-step", "32"), lambda run: run.devices(samples_per_step=32)),
    "scale": (("--ranks", "4,8", "--ranks-per-host", "8"), lambda run: run.scale([4, 8], ranks_per_host=8)),
}
ELSEWHERE = {
    "ingest": "test_ingest_is_the_same",
    "diff": "test_diff_is_the_same",
    "gate": "test_gate_is_the_same",
    "score": "test_score_is_the_same",
    "hang": "test_hang_is_the_same",
    "info": "test_info_is_the_same",
    "sql": "test_sql_is_the_same",
    "doctor": "test_doctor_is_the_same",
    "estimate": "test_estimate_is_the_same",
    "open": "test_a_page_is_written",
    "verify": "test_verify_is_the_same",
    "fleet": "test_a_fleet_is_the_same",
}
NO_ANSWERS = {
    "run": "lostflops.record",
    "snap": "asks a job that runs",
    "watch": "follows a job that runs",
    "fit": "starts jobs",
    "calibrate": "starts a job",
    "collectives": "is about a cluster, not about a run",
    "serve": "is a server",
    "export": "writes a file; log_to is its API",
    "demo": "writes a run",
    "help": "is about the command line",
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    late = SyntheticCluster(ranks=4, steps=6, stragglers=(Straggler(1, "slow_kernels", factor=1.4),))
    return store(late.generate(), tmp_path_factory.mktemp("api") / "run")


def plain(result: lf.Result) -> Any:
    return json.loads(json.dumps(result.to_json()))


def test_every_verb_has_its_answer_in_python() -> None:
    verbs = {function.__name__ for _, function in COMMANDS} - set(OLD)
    assert verbs == {name.split()[0] for name in QUESTIONS} | set(ELSEWHERE) | set(NO_ANSWERS)
    assert all(callable(globals()[test]) for test in ELSEWHERE.values())


@pytest.mark.parametrize("name", QUESTIONS)
def test_answers_are_those_of_the_command_line(name: str, path: Path) -> None:
    options, answer = QUESTIONS[name]
    with lf.open(path) as run:
        mine = plain(answer(run))
    verb, *_ = name.split()
    theirs = json.loads(asked(verb, str(path), *options, "--json"))
    for one in (mine, theirs):
        one.pop("prediction_id", None)  # every answer is a new one
    assert mine == theirs


def test_a_fleet_is_the_same(path: Path) -> None:
    assert plain(lf.ask_fleet(path.parent, by="device")) == json.loads(
        asked("fleet", str(path.parent), "--by", "device", "--json")
    )


def test_info_is_the_same(path: Path) -> None:
    theirs = json.loads(asked("info", str(path), "--json"))
    with lf.open(path) as run:
        assert plain(run.info()).items() <= theirs["contents"].items()
        assert plain(run.quality()) == theirs["quality"]


def test_sql_is_the_same(path: Path) -> None:
    query = "select rank, count(*) as n from events group by rank order by rank"
    theirs = json.loads(asked("sql", str(path), query, "--json"))
    with lf.open(path) as run:
        assert run.sql(query).fetchall() == [(row["rank"], row["n"]) for row in theirs["rows"]]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same job without its straggler."""
    return store(SyntheticCluster(ranks=4, steps=6).generate(), tmp_path_factory.mktemp("other") / "run")


def test_diff_is_the_same(path: Path, other: Path) -> None:
    mine = plain(lf.diff(path, other))
    assert mine == json.loads(asked("diff", str(path), str(other), "--json"))
    assert mine["answer"] == "faster"


def test_gate_is_the_same(path: Path, other: Path) -> None:
    answer, code = lf.gate(path, other)
    assert code == 0
    assert plain(answer) == json.loads(asked("gate", "--baseline", str(path), "--candidate", str(other), "--json"))


def test_hang_is_the_same(tmp_path: Path) -> None:
    with pytest.raises(lf.LostflopsError) as mine:
        lf.hang(tmp_path)
    with pytest.raises(Refused, match=r"exit \d"):
        asked("hang", str(tmp_path))
    assert str(mine.value)


def test_score_is_the_same(path: Path) -> None:
    with lf.open(path) as run:
        prediction = run.whatif("straggler=removed").to_json()["prediction_id"]
    mine = plain(lf.score(prediction, path, made_from=path))
    theirs = json.loads(asked("score", prediction, "--with", str(path), "--from", str(path), "--json"))
    assert {key: mine[key] for key in mine if key != "date"} == {key: theirs[key] for key in theirs if key != "date"}


def test_ingest_is_the_same(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    SyntheticCluster(ranks=2, steps=3).generate().traces.write(traces)
    mine = plain(lf.ingest(traces, tmp_path / "a"))
    theirs = json.loads(asked("ingest", str(traces), "-o", str(tmp_path / "b"), "--json"))
    for one in (mine, theirs):
        one["ingested"] = {key: value for key, value in one["ingested"].items() if key not in ("run", "ns")}
        one.pop("verdict")  # says how long it took
    assert mine == theirs
    with lf.open(tmp_path / "a") as run:
        assert run.stored.ranks == (0, 1)


def test_doctor_is_the_same() -> None:
    mine = plain(lf.doctor())
    theirs = json.loads(asked("doctor", "--json"))
    assert [check["check"] for check in mine["checks"]] == [check["check"] for check in theirs["checks"]]


def test_verify_is_the_same(path: Path) -> None:
    assert plain(lf.verify(path)) == json.loads(asked("verify", str(path), "--json"))


def test_estimate_is_the_same(tmp_path: Path) -> None:
    model = tmp_path / "config.json"
    model.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "hidden_size": 512,
                "num_hidden_layers": 4,
                "vocab_size": 1000,
                "num_attention_heads": 8,
                "intermediate_size": 1024,
            }
        )
    )
    options = ("--device", "H100-SXM5", "--dp", "8", "--seq", "1024")
    mine = plain(lf.estimate(model, device="H100-SXM5", dp=8, sequence=1024))
    assert mine == json.loads(asked("estimate", str(model), *options, "--json"))


def test_a_page_is_written(path: Path, tmp_path: Path) -> None:
    with lf.open(path) as run:
        written = run.page(tmp_path / "page.html")
    assert written.file == str(tmp_path / "page.html")
    assert written.bytes == (tmp_path / "page.html").stat().st_size


def test_parts_have_names(path: Path) -> None:
    with lf.open(path) as run:
        report, ranks = run.report(), run.ranks()
    assert report.throughput.steps_per_second > 0
    assert report.findings[0].ranks == (1,)
    assert {"ledger", "losses", "throughput"} <= set(dir(report))
    assert report.ledger.total_ns == report.to_json()["ledger"]["total_ns"]
    with pytest.raises(AttributeError, match=r"no part 'ledgr'; it has .*ledger"):
        report.ledgr  # noqa: B018
    with pytest.raises(AttributeError, match="no figure 'x'"):
        report.throughput.x  # noqa: B018
    assert "straggler" in report._repr_html_() or "Rank 1" in report._repr_html_()
    assert ranks.findings == report.findings


def test_tables_become_pandas(path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    with lf.open(path) as run:
        report = run.report()
        frame = run.sql("select rank from ranks order by rank").df()
    assert list(frame["rank"]) == [0, 1, 2, 3]
    ledger = report.to_pandas("ledger")
    assert isinstance(ledger, pandas.DataFrame)
    assert ledger["share"].sum() == pytest.approx(1)
    assert list(report.to_pandas("throughput")["steps_per_second"]) == [report.throughput.steps_per_second]
    assert not report.to_pandas().empty


def test_results_survive_pickling(path: Path) -> None:
    import copy
    import pickle

    with lf.open(path) as run:
        report = run.report()
    assert pickle.loads(pickle.dumps(report)) == report
    assert copy.deepcopy(report) == report


def test_wrong_arguments_are_usage_errors(path: Path) -> None:
    with lf.open(path) as run:
        with pytest.raises(lf.LostflopsError, match="neither 'steps' nor 'trace'"):
            run.report(window="all")
        with pytest.raises(lf.LostflopsError, match="finite"):
            run.report(peak_tflops=float("nan"))
        with pytest.raises(lf.LostflopsError, match="cannot be combined"):
            run.diagnose(calibration="x", topology="y")
