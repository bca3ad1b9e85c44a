"""Verbs end with the exit codes that `--help` lists."""

import json
import sys

import pytest

from made_timed_runs import noisy, recorded

TURN = 10_000_000_000


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    for number, (name, level) in enumerate((("main", 10), ("same", 10), ("slow", 20))):
        recorded(folder / name, noisy(number, level=level, steps=40, between=0.002), start=number * TURN)
    return folder


@pytest.mark.parametrize(("candidate", "answer", "code"), [("same", "inconclusive", 3), ("slow", "slower", 1)])
def test_diff_ends_with_0_and_gate_by_its_outcome(made, lostflops, candidate, answer, code):
    compared = lostflops("diff", made / "main", made / candidate, "--json")
    assert (compared.code, json.loads(compared.out)["answer"]) == (0, answer)
    gated = lostflops("gate", "--baseline", made / "main", "--candidate", made / candidate, "--json")
    assert (gated.code, json.loads(gated.out)["exit_code"]) == (code, code)
    back = lostflops("gate", "--baseline", made / candidate, "--candidate", made / "main", "--json")
    assert back.code == (0 if answer == "slower" else 3)


def test_a_wrong_request_ends_with_2_and_a_missing_run_with_5(made, lostflops):
    gone = made / "gone"
    assert lostflops("diff", made / "main", made / "same", "--margin", "much").code == 2
    assert lostflops("score", "p-00000000").code == 2
    assert lostflops("score", "p-00000000", "--with", made / "main").code == 2
    assert lostflops("diff", made / "main", gone).code == 5
    assert lostflops("gate", "--baseline", made / "main", "--candidate", gone).code == 5
    assert lostflops("score", "p-00000000", "--with", gone).code == 5
    assert lostflops("score", "--list", gone).code == 5
    assert lostflops("diagnose", gone).code == 5
    assert lostflops("score", "--list", made / "main").code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [((sys.executable, "-c", "raise SystemExit(7)"), 7), (("no-such-program",), 127), ((__file__,), 126)],
)
def test_run_ends_as_its_command_does(tmp_path, lostflops, words, code):
    assert lostflops("run", "--out", tmp_path / "run", "--", *words).code == code
