"""What the clinic counts as right, on outcomes made up."""

from dataclasses import replace
from itertools import starmap

import pytest
from clinic.held_out_5.real import count_of
from clinic.reliability import printed_odds
from clinic.scoring import Count, Finding, Outcome, Score
from clinic.tables import patients, summary


def outcome(causes: str, found: dict[str, float | None], measured: float | None = None, **more: str) -> Outcome:
    return Outcome("one", tuple(causes.split()), True, tuple(starmap(Finding, found.items())), measured, **more)


def interval(cause: str, gain: float, low: float, high: float, *ranks: int) -> Finding:
    return Finding(cause, gain, low, high, ranks)


@pytest.mark.parametrize(
    ("causes", "found", "top_1", "top_3"),
    [
        ("gc", "gc", True, True),
        ("gc", "sync gc", False, True),
        ("gc", "sync optimizer copies gc", False, False),
        ("gc", "", False, False),
        ("gc sync", "sync", True, False),
        ("gc sync", "sync copies gc", True, True),
        ("gc sync", "copies sync gc", False, True),
        ("gc sync", "sync copies optimizer gc", True, False),
    ],
)
def test_one_of_the_causes_is_first_and_all_are_in_three(causes: str, found: str, top_1: bool, top_3: bool) -> None:
    one = outcome(causes, dict.fromkeys(found.split(), 0.1))
    assert (one.is_top_1, one.is_top_3) == (top_1, top_3)


def test_a_finding_in_a_healthy_job_is_a_false_alarm() -> None:
    assert outcome("", {"gc": 0.1}).is_false_alarm
    assert not outcome("", {}).is_false_alarm
    assert not outcome("sync", {"gc": 0.1}).is_false_alarm


@pytest.mark.parametrize(
    ("says", "is_named"), [("Layer 2 is uneven", True), ("layer 12", False), ("decoder.0.sparse", True), ("", False)]
)
def test_the_first_finding_or_its_evidence_names_the_layer(says: str, is_named: bool) -> None:
    told = {"cause": "sync", "what": "Experts are uneven", "evidence": [{"what": says}]}
    one = Outcome("one", ("sync",), True, (Finding.from_diagnosis(told),), layer=rf"decoder\.0\b|{count_of(2)}")
    assert one.names_layer == is_named
    assert Score.of([one]).layer == Count(int(is_named), 1)
    assert ("not the layer" in patients([one])) != is_named
    assert "the layer at fault" in summary([one])
    assert Outcome.from_json(one.to_json()) == one


def test_a_gain_is_that_of_the_true_cause_wherever_it_stands() -> None:
    one = outcome("gc", {"sync": 0.5, "gc": 0.2}, measured=0.25)
    assert one.predicted == pytest.approx(0.2)
    assert one.error == pytest.approx(-0.05)


def test_the_first_finding_of_a_cause_counts() -> None:
    one = Outcome("one", ("straggler",), True, (Finding("straggler", 0.3), Finding("straggler", 0.1)))
    assert one.predicted == pytest.approx(0.3)


def test_two_cures_gain_of_what_the_other_leaves() -> None:
    assert outcome("gc sync", {"gc": 0.5, "sync": 0.2}).predicted == pytest.approx(0.6)
    assert outcome("gc sync", {"gc": 0.5}).predicted is None
    assert outcome("gc sync", {"gc": 0.5, "sync": None}).predicted is None


def test_a_score_counts_what_was_seen() -> None:
    score = Score.of(
        [
            outcome("gc", {"gc": 0.2}, measured=0.29),
            outcome("gc", {"gc": 0.2}, measured=0.31),
            outcome("gc", {"sync": 0.2, "gc": 0.2}, measured=None),
            outcome("sync", {}, measured=0.3),
            outcome("sync", {}, failed="cannot be read"),
            outcome("slow_link", {}, skipped="needs root"),
            outcome("", {}),
            outcome("", {"gc": 0.1}),
        ]
    )
    known = {"top_1": Count(2, 5), "first_shown": Count(2, 5), "top_3": Count(3, 5)}
    known |= {"unnamed": Count(0, 5), "suspicions": Count(1, 2)}
    assert score == Score(**known, false_alarms=Count(1, 2), near=Count(1, 2), skipped=1)


def test_any_accepted_name_of_a_cause_is_right() -> None:
    names = (("bucket_size", "small_messages"), ("gc",))
    one = Outcome(
        "one", ("bucket_size", "gc"), True, (Finding("small_messages", 0.5), Finding("gc", 0.2)), accepted=names
    )
    assert one.is_top_1
    assert one.is_top_3
    assert one.predicted == pytest.approx(0.6)
    assert not replace(one, findings=(Finding("sync"), *one.findings)).is_top_1


def test_a_suspicion_is_no_finding() -> None:
    suspicion = Finding("gc", 0.2, is_suspected=True)
    assert not Outcome("one", (), True, (suspicion,)).is_false_alarm
    assert not Outcome("one", ("gc",), True, (suspicion,)).is_top_1
    behind = Outcome("one", ("sync",), True, (suspicion, Finding("sync", 0.1)))
    assert behind.is_top_1
    assert "sync (suspected: gc)" in patients([behind])


@pytest.mark.parametrize(("ranks", "is_named"), [((1,), True), ((0,), False), ((0, 1), False), ((), False)])
def test_the_first_finding_names_the_rank_at_fault_alone(ranks: tuple[int, ...], is_named: bool) -> None:
    one = Outcome("one", ("straggler",), True, (interval("straggler", 0.2, 0.1, 0.3, *ranks),), rank=1)
    assert one.names_rank == is_named
    assert Score.of([one]).rank == Count(int(is_named), 1)
    assert ("not the rank" in patients([one])) != is_named


def test_intervals_are_scored_where_the_first_finding_is_right() -> None:
    inside = Outcome("one", ("gc",), True, (interval("gc", 0.2, 0.1, 0.3),), 0.29)
    outside = Outcome("two", ("gc",), True, (interval("gc", 0.2, -0.1, 0.3), interval("sync", 0.1, 0.05, 0.1)), 0.31)
    wrong = Outcome("three", ("gc",), True, (interval("sync", 0.2, 0.1, 0.3),), 0.2)
    healthy = Outcome("four", (), True, (interval("sync", 0.2, -0.1, 0.9),))
    score = Score.of([inside, outside, wrong, healthy])
    assert (score.near, score.inside) == (Count(1, 2), Count(1, 2))
    assert score.about_zero == Count(1, 4)
    assert score.width == pytest.approx(0.2)


def test_what_is_shown_is_scored_whether_found_or_suspected() -> None:
    suspected = replace(interval("gc", 0.2, 0.1, 0.3), is_suspected=True)
    first = Outcome("one", ("gc",), True, (suspected,), 0.3)
    second = Outcome("two", ("gc",), True, (interval("sync", 0.3, 0.2, 0.4), suspected), 0.31)
    healthy = Outcome("three", (), True, (suspected,))
    score = Score.of([first, second, healthy])
    assert (score.top_1, score.first_shown, score.inside_if_shown) == (Count(0, 2), Count(1, 2), Count(1, 2))
    assert (score.false_alarms, score.suspicions) == (Count(0, 1), Count(1, 1))


def test_a_fault_that_no_rule_can_name_is_no_healthy_job() -> None:
    one = Outcome("one", ("no_id_fits",), True, accepted=((),))
    assert (Score.of([one]).top_1, Score.of([one]).unnamed) == (Count(0, 1), Count(1, 1))
    assert "(no rule)" in patients([one])


def test_printed_probabilities_are_compared_with_what_was_right() -> None:
    known = replace(interval("gc", 0.2, 0.1, 0.3), probability=0.8)
    seen = [Outcome(f"{number}", ("gc",) if number < 3 else (), True, (known,)) for number in range(5)]
    assert "Expected calibration error: 0.200." in printed_odds(seen)
    assert printed_odds([Outcome("old", ("gc",), True, (Finding("gc"),))]) == ""


def test_a_finding_is_read_from_a_diagnosis() -> None:
    saving = {"value": 0.2, "low": 0.1, "high": 0.3, "kind": "measured"}
    told = {"cause": "gc", "ranks": [1], "saving": saving}
    assert Finding.from_diagnosis(told) == replace(interval("gc", 0.2, 0.1, 0.3, 1), kind="measured")
    assert Finding.from_diagnosis({**told, "level": "suspected"}).is_suspected
    assert not Finding.from_diagnosis({**told, "level": "found"}).is_suspected
    assert Finding.from_diagnosis({"cause": "gc", "ranks": (), "saving": None}) == Finding("gc")


def test_nobody_seen_is_no_share() -> None:
    assert Score.of([]).top_1.share is None
    assert str(Count(0, 0)) == "0 of 0"
    assert str(Count(3, 4)) == "3 of 4 (75%)"


def test_outcomes_survive_json() -> None:
    of_a_rank = Outcome(
        "one",
        ("gc",),
        True,
        (interval("gc", 0.2, 0.1, 0.3, 1), Finding("sync", is_suspected=True)),
        accepted=(("gc", "host_python"),),
        rank=1,
        rounds=(0.2, 0.3),
        load=1.5,
    )
    for one in (outcome("gc sync", {"gc": 0.5, "sync": None}, 0.4), outcome("", {}, skipped="needs root"), of_a_rank):
        assert Outcome.from_json(one.to_json()) == one


def test_the_list_of_patients_says_how_each_went() -> None:
    rows = patients(
        [
            outcome("gc", {"gc": 0.21}, measured=0.3),
            outcome("gc sync", {"gc": 0.5}),
            outcome("gc", {"sync": 0.1, "gc": 0.3}),
            outcome("gc", {"sync": 0.1}),
            outcome("", {}),
            outcome("", {"sync": 0.1}),
            outcome("gc", {}, skipped="needs root"),
            outcome("gc", {}, failed="torn"),
        ]
    )
    cells = [[cell.strip() for cell in row.split("|")[2:-1]] for row in rows.splitlines()[2:]]
    assert cells == [
        ["gc", "gc", "yes", "21%", "", "30%", ""],
        ["gc, sync", "gc", "first", "", "", "", ""],
        ["gc", "sync, gc", "in three", "30%", "", "", ""],
        ["gc", "sync", "NO", "", "", "", ""],
        ["healthy", "nothing", "yes", "", "", "", ""],
        ["healthy", "sync", "false alarm", "", "", "", ""],
        ["gc", "needs root", "", "", "", "", ""],
        ["gc", "failed: torn", "", "", "", "", ""],
    ]
    assert "| 1 of 2 (50%) |" in summary([outcome("gc", {"gc": 0.1}), outcome("gc", {})])
