"""From rules to findings, with rules whose truth is plain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest

from lostflops.account.ledger import few_steps
from lostflops.core.errors import UnknownCost, UsageError
from lostflops.core.estimate import Estimate, Kind, Strength
from lostflops.core.results import Evidence, Findings, Result
from lostflops.explain.advise import findings, summary
from lostflops.explain.advise.case import Case
from lostflops.explain.advise.claim import Claim, NotChecked
from lostflops.explain.advise.diagnose import diagnose, diagnosis
from lostflops.explain.advise.explain import explain
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.summary import card, report_with_findings
from lostflops.explain.analyze.report import report
from lostflops.ingest import ingest
from lostflops.predict.whatif.predictions import load_predictions
from lostflops.show.report import renderer
from lostflops.store.run import Run
from lostflops.testing import Straggler, SyntheticCluster, store


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    late = Straggler(rank=2, cause="slow_kernels", factor=1.5)
    return store(
        SyntheticCluster(ranks=4, steps=4, stragglers=(late,)).generate(), tmp_path_factory.mktemp("slow") / "run"
    )


@pytest.fixture
def run(path: Path) -> Iterator[Run]:
    with Run.open(path) as opened:
        yield opened


def waits(case: Case, rank: int | None = None) -> dict[tuple[int, str], int]:
    return {(one, "comm.wait"): lines["comm.wait"] for one, lines in case.lines.items() if rank in (None, one)}


def rule(
    cause: str, gain: float | None = None, changes: tuple[str, ...] = (), strength: Strength = Strength.STRONG
) -> Rule:
    def find(case: Case) -> Iterator[Claim]:
        own = None if gain is None else Estimate.measured(gain, gain / 2, "timed steps")
        late = (2,) if changes else ()
        evidence = (Evidence("seen", events=((0, 0),), sources=("train.py(7): step",)),)
        yield Claim(
            cause=cause,
            what=f"{cause} is there.",
            taken=waits(case),
            evidence=evidence,
            strength=strength,
            certain_if="more",
            fix="less",
            changes=changes,
            saving=own,
            ranks=late,
        )

    return Rule(cause, f"All about {cause}.", find)


def failing(case: Case) -> Iterator[Claim]:
    raise UnknownCost("shapes were not recorded")
    yield


def test_the_largest_gain_comes_first_and_no_time_is_claimed_twice(run: Run) -> None:
    rules = (rule("small", 0.1), rule("large", 0.3), rule("larger", 0.4, strength=Strength.FAIR))
    case = Case(run)
    found = diagnosis(case, rules=rules)
    assert [one.cause for one in found.findings] == ["large", "small", "larger"]
    assert [one.lost_ns for one in found.findings] == [case.total.lines["comm.wait"], 0, 0]
    assert sum(one.lost_ns for one in found.findings) <= case.wall - case.total.lines["compute"]


@pytest.mark.parametrize(("part", "is_named"), [(0.95, False), (0.5, True)])
def test_two_findings_never_save_the_same_time(run: Run, part: float, is_named: bool) -> None:
    """The same sleep is Python between steps and a periodic call: it belongs to the cause with more evidence. What
    that leaves more than a little of is named again."""

    def claiming(cause: str, share: float, strength: Strength) -> Rule:
        def find(case: Case) -> Iterator[Claim]:
            (made,) = rule(cause, 0.1, strength=strength).find(case)
            of = {(rank, "comm.transfer"): lines["comm.transfer"] for rank, lines in case.lines.items()}
            yield replace(made, taken={place: round(share * ns) for place, ns in of.items()})

        return Rule(cause, "", find)

    rules = (claiming("python", 1.0, Strength.FAIR), claiming("call", part, Strength.STRONG))
    found = diagnosis(Case(run), rules=rules)
    assert [one.cause for one in found.findings] == (["call", "python"] if is_named else ["call"])
    assert {one.cause: one.outcome for one in found.checked}["python"] == ("suspected" if is_named else "named better")


def test_what_a_finding_costs(run: Run) -> None:
    (found,) = diagnosis(Case(run), usd_per_hour=2.0, rules=(rule("late", 0.2),)).findings
    assert found.lost_share == found.lost_ns / Case(run).wall
    assert found.rank_hours == pytest.approx(found.saving.value * 4 * 24)
    assert found.usd == pytest.approx(2 * found.rank_hours)


def test_hours_and_money_are_for_all_ranks_of_the_job(tmp_path: Path) -> None:
    """Two of the four ranks of a job were recorded."""
    late = Straggler(rank=0, cause="slow_kernels", factor=1.5)
    SyntheticCluster(ranks=4, steps=4, stragglers=(late,)).generate().traces.write(tmp_path / "traces")
    ingest([tmp_path / "traces" / f"rank{rank}.pt.trace.json" for rank in range(2)], tmp_path / "run", workers=1)
    rules = (rule("late", 0.2),)
    with Run.open(tmp_path / "run") as part:
        assert (len(part.ranks), part.world_size) == (2, 4)
        result = diagnose(part, usd_per_hour=2.0, rules=rules)
        explained = explain(part, 1, usd_per_hour=2.0, rules=rules)
    (found,) = result.to_json()["findings"]
    assert found["rank_hours"] == pytest.approx(found["saving"]["value"] * 4 * 24)
    assert found["usd"] == pytest.approx(2 * found["rank_hours"])
    said = "Hours and money are for all 4 ranks of the job; 2 were recorded."
    assert said in result.notes
    assert said in explained.notes


def test_a_what_if_prices_a_finding_and_is_kept(run: Run) -> None:
    result = diagnose(run, keep=True, rules=(rule("straggler", changes=("straggler=removed",)),))
    (found,) = result.to_json()["findings"]
    predicted = found["prediction"]
    assert predicted["change"] == "straggler=removed"
    assert found["saving"]["value"] > 0.1
    assert found["saving"]["low"] < found["saving"]["value"] < found["saving"]["high"]
    assert found["saving"]["kind"] == "replayed"
    assert predicted["id"] in {one.id for one in load_predictions(run.path)}


def test_a_fix_saves_at_most_its_own_time_and_all_waits(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The what-if removes the compute of a late rank, of which this cause has a part."""

    def find(case: Case) -> Iterator[Claim]:
        taken = {(0, "compute"): case.wall // 25}
        yield Claim(
            cause="wait",
            what="Rank 0 waits.",
            taken=taken,
            evidence=(Evidence("seen"),),
            strength=Strength.STRONG,
            certain_if="more",
            fix="less",
            changes=("straggler=removed",),
        )

    monkeypatch.setattr(findings, "WAIT_LINES", ())
    (found,) = diagnosis(Case(run), rules=(Rule("wait", "It waits.", find),)).findings
    assert found.saving is not None
    assert found.saving.kind is Kind.BOUND
    assert found.saving.value == pytest.approx(0.04, rel=1e-3)
    assert found.prediction is None


def test_without_a_price_the_ledger_bounds_the_gain(run: Run) -> None:
    case = Case(run)
    (found,) = diagnosis(case, rules=(rule("loader", changes=("data=2x",)),)).findings
    assert found.prediction is None
    assert found.saving == Estimate.bound(found.lost_share, found.saving.source)
    assert "no wait for a batch" in found.saving.source or "workers" in found.saving.source
    assert found.level == "found"
    assert "saves at most" in diagnose(run, rules=(rule("loader", changes=("data=2x",)),)).verdict


def test_what_saves_too_little_is_no_finding(run: Run) -> None:
    found = diagnosis(Case(run), rules=(rule("tiny", 0.02), Rule("blind", "It cannot see.", failing)))
    assert not found.findings
    assert [(one.cause, one.outcome) for one in found.checked] == [("tiny", "too small"), ("blind", "not checked")]
    assert found.checked[1].why == "shapes were not recorded"


def test_one_finding_in_full(run: Run) -> None:
    rules = (rule("late", changes=("straggler=removed",)), rule("other", 0.05))
    result = explain(run, 1, rules=rules)
    told = result.to_json()
    assert told["verdict"] == "All about late."
    assert told["findings"][0]["cause"] == "late"
    assert told["events"][0]["rank"] == 0
    assert {row["line"] for row in told["claimed"]} == {"comm.wait"}
    assert any(row["name"] == "comm.wait" and row["delta"] < 0 for row in told["lines"])
    with pytest.raises(UsageError, match="no finding 3: the run has 2 findings"):
        explain(run, 3, rules=rules)


def test_a_report_ends_with_the_first_findings_unless_the_run_is_large(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Result("report", "Report", "It is slow.")
    (told,) = report_with_findings(plain, run).to_json()["findings"]
    assert told["cause"] == "straggler"
    monkeypatch.setattr(few_steps, "AFFORDED", 10)
    large = report_with_findings(plain, run)
    assert large.notes == (summary.LARGE,)
    assert large.to_json()["findings"] is None


def test_markdown_of_a_diagnosis(run: Run) -> None:
    stream = StringIO()
    renderer("markdown").write(diagnose(run, rules=(rule("late", 0.2),)), stream)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "## Diagnosis"
    assert "### 1. late is there." in lines
    assert any(line.startswith("- **Saves:** 20% of the step (10 to 30%)") for line in lines)
    assert "- **Fix:** `less`" in lines
    assert "- **Evidence:** seen (`train.py(7): step`)" in lines


@pytest.mark.parametrize("saving", [None, Estimate.bound(0.0, "nothing is exposed")])
def test_what_claims_no_time_is_said_only_as_a_warning(run: Run, saving: Estimate | None) -> None:
    def find(case: Case) -> Iterator[Claim]:
        yield Claim(
            cause="idle",
            what="It is.",
            taken={},
            evidence=(Evidence("seen"),),
            strength=Strength.STRONG,
            certain_if="",
            fix="",
            saving=saving,
        )

    found = diagnose(run, rules=(Rule("idle", "", find),))
    assert len(found.to_json()["findings"]) == (saving is None)
    assert "saves" not in found.verdict


def claimed(**told: object) -> Rule:
    def find(case: Case) -> Iterator[Claim]:
        values = {"saving": Estimate.measured(0.1, 0.05, "timed steps"), "strength": Strength.STRONG, **told}
        yield Claim(
            cause="late",
            what="It is.",
            taken=waits(case),
            evidence=(Evidence("seen"),),
            certain_if="",
            fix="",
            **values,
        )

    return Rule("late", "", find)


@pytest.mark.parametrize(
    ("told", "doubt"),
    [
        ({"saving": Estimate.measured(0.1, 0.1, "timed steps")}, "The fix may save nothing"),
        ({"saving": Estimate.measured(0.1, 0.1, "steps"), "record": "--steps 8:40"}, "The fix may save nothing"),
        ({"saving": Estimate(0.1, None, None, Kind.GUESS, "a rule of thumb")}, "is a guess: nothing measured it"),
        ({"strength": Strength.FAIR}, "About 70% of such findings are right"),
        ({"strength": Strength.WEAK}, "About 30% of such findings are right"),
        ({"suspected": "Only two steps show it."}, "Only two steps show it."),
    ],
)
def test_what_is_not_certain_is_suspected_and_says_what_to_record(run: Run, told: dict, doubt: str) -> None:
    result = diagnose(run, rules=(claimed(**told),))
    (found,) = result.to_json()["findings"]
    assert found["level"] == "suspected"
    assert doubt in found["doubt"]
    more_steps = "--steps 8:20" if "may save nothing" in doubt else ""
    assert found["record"] == told.get("record", more_steps), "only a range gets narrower by more steps"
    assert "No cause is certain yet, 1 suspected." in result.verdict
    assert "saves" not in result.verdict


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(-0.25, 0.45, "too small"), (-0.2, 0.45, "suspected"), (-0.25, 0.4, "suspected"), (-4.0, 0.3, "suspected")],
)
def test_a_saving_far_below_its_error_is_not_even_suspected(run: Run, low: float, high: float, outcome: str) -> None:
    result = diagnose(run, rules=(claimed(saving=Estimate(0.1, low, high, Kind.MEASURED, "timed steps")),)).to_json()
    assert [one["outcome"] for one in result["checked"]] == [outcome]
    assert len(result["findings"]) == (outcome == "suspected")
    assert ("may be chance" in result["checked"][0]["why"]) == (outcome == "too small")


def test_what_is_certain_is_found(run: Run) -> None:
    result = diagnose(run, rules=(claimed(),))
    (found,) = result.to_json()["findings"]
    assert (found["level"], found["doubt"], found["record"]) == ("found", "", "")
    assert sum(found["lines"].values()) == found["lost_ns"]


@pytest.mark.parametrize(("probability", "level"), [(0.95, "found"), (0.7, "suspected")])
def test_a_known_probability_decides(run: Run, monkeypatch: pytest.MonkeyPatch, probability: float, level: str) -> None:
    monkeypatch.setattr(findings, "probability_right", lambda *_: probability)
    (found,) = diagnosis(Case(run), rules=(claimed(strength=Strength.FAIR),)).findings
    assert (found.level, found.probability) == (level, probability)
    assert found.is_suspected == ("About 70% of such findings are right" in found.doubt)


def test_found_comes_before_suspected_and_claims_time_first(run: Run) -> None:
    rules = (rule("guess", 0.4, strength=Strength.WEAK), rule("sure", 0.1))
    found = diagnosis(Case(run), rules=rules)
    assert [(one.cause, one.level) for one in found.findings] == [("sure", "found"), ("guess", "suspected")]
    assert found.findings[1].lost_ns == 0


def test_where_nothing_is_found_the_largest_loss_without_a_cause_is_named(run: Run) -> None:
    verdict = diagnose(run, rules=()).verdict
    share = Case(run).total.share("comm.wait")
    assert f"The largest loss without a cause is comm.wait: {share:.0%} of the time of all ranks." in verdict


def test_causes_that_were_not_checked_say_what_to_record(run: Run) -> None:
    def blind(case: Case) -> Iterator[Claim]:
        raise NotChecked("no memory was recorded", "--with memory")
        yield

    notes = diagnose(run, rules=(Rule("growth", "", blind), Rule("other", "", failing))).notes
    assert "Not checked (needs `lostflops run --with memory`): growth." in notes
    assert "Not checked (shapes were not recorded): other." in notes


def test_findings_of_one_cause_have_ids_of_their_own(run: Run) -> None:
    found = diagnosis(Case(run), rules=(claimed(), claimed(), rule("late", 0.2)))
    assert sorted(one.id for one in found.findings) == ["late", "late#2", "late#3"]


def test_a_rule_that_fails_takes_no_other_finding_with_it(run: Run) -> None:
    def broken(case: Case) -> Iterator[Claim]:
        raise AssertionError("gain of 4.19")
        yield

    found = diagnosis(Case(run), rules=(Rule("broken", "", broken), rule("late", 0.2)))
    assert [one.cause for one in found.findings] == ["late"]
    assert (found.checked[0].outcome, found.checked[0].why) == (
        "not checked",
        "the rule failed: AssertionError: gain of 4.19",
    )


def test_a_more_exact_cause_takes_the_place_of_another_and_is_said_to(run: Run) -> None:
    def exact(case: Case) -> Iterator[Claim]:
        yield Claim(
            cause="save",
            what="It saves.",
            taken={},
            evidence=(Evidence("seen"),),
            strength=Strength.STRONG,
            certain_if="",
            fix="",
            saving=Estimate.measured(0.15, 0.05, "timed steps"),
            instead_of=("late",),
        )

    found = diagnosis(Case(run), rules=(rule("late", 0.2), Rule("save", "", exact), rule("other", 0.1)))
    assert [one.cause for one in found.findings] == ["save", "other"]
    assert (found.checked[0].outcome, found.checked[0].why) == ("named better", "named by save")


def test_the_card_is_a_report_in_fifteen_lines(run: Run) -> None:
    """As `lostflops run` ends: the verdict, three findings with what each saves, and nothing else."""
    (one,) = diagnosis(Case(run), rules=(rule("late", 0.3),)).findings
    blocks = (Findings("findings", "What to do about it", (one,) * 4),)
    whole = replace(report(run), blocks=(*blocks, *report(run).blocks))
    short = card(whole)
    stream = StringIO()
    renderer("terminal").write(replace(short, next_command="lostflops diagnose run"), stream)
    lines = stream.getvalue().splitlines()
    assert len(lines) <= 15
    assert short.verdict.startswith(whole.verdict)
    advice = [line for line in lines if "Fixing it saves" in line]
    assert len(advice) == 3
    assert "1  late is there. Fixing it saves 30% of the step" in advice[0]
