"""What a page holds, in which order, and what becomes of questions that have no answer."""

import re
from pathlib import Path

import pytest
from tests.cli.mini_traces import BUSY, CALM, make_run

from lostflops.account.ledger.lines import LINES
from lostflops.account.ledger.mfu import Claims
from lostflops.core.errors import LostflopsError
from lostflops.core.results import Result
from lostflops.explain.analyze.contents import contents
from lostflops.explain.analyze.quality import quality
from lostflops.explain.analyze.report import report
from lostflops.show.pages.glossary import GLOSSARY
from lostflops.show.pages.page import QUESTIONS, TITLES, page_of, questions_for, trust
from lostflops.store.run import Run


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("golden"), BUSY, CALM)


def test_every_question_is_answered_or_said_to_be_missing(golden: Path) -> None:
    seen: list[tuple[int, int]] = []
    with Run.open(golden) as run:
        page = page_of(run, progress=lambda done, total: seen.append((done, total)))
    assert len(page.results) + len(page.missing) == len(QUESTIONS)
    assert page.results[0].name == "overview"
    shown = [result.name for result in page.results]
    assert shown == [name for name in QUESTIONS if name in shown], "in the order of the questions, each once"
    assert [result.title for result in page.results] == [TITLES[name] for name in shown]
    assert {TITLES[name] for name in QUESTIONS if name not in shown} == {title for title, _ in page.missing}
    assert seen == [(done, len(QUESTIONS)) for done in range(len(QUESTIONS))]


def test_a_question_without_an_answer_does_not_take_the_others_with_it(golden: Path) -> None:
    def hopeless(run: Run) -> Result:
        raise LostflopsError("nothing was recorded")

    with Run.open(golden) as run:
        page = page_of(run, {"memory": hopeless, "quality": trust})
    assert page.missing == ((TITLES["memory"], "nothing was recorded"),)
    assert [result.name for result in page.results] == [page.standing]


def test_coverage_and_quality_are_one_result(golden: Path) -> None:
    with Run.open(golden) as run:
        said, held, judged = trust(run), contents(run), quality(run)
    assert said.verdict.startswith("2 of 2 ranks")
    assert said.verdict.endswith(judged.verdict)
    assert set(held.to_json()) | set(judged.to_json()) == set(said.to_json())


def test_commands_name_the_run_without_its_place(golden: Path) -> None:
    with Run.open(golden) as run:
        page = page_of(run, {"quality": trust})
    assert page.results[0].next_command == f"lostflops info {golden.name}"


def test_no_command_follows_where_there_is_nothing_to_tell(golden: Path) -> None:
    def memory(run: Run) -> Result:
        return Result("memory", "Memory", "Cannot tell.", next_command=f"lostflops memory {run.path}")

    with Run.open(golden) as run:
        assert [one.next_command for one in page_of(run, {"memory": memory}).results] == [""]


def test_what_the_user_claims_reaches_the_report(golden: Path) -> None:
    said = Claims(peak_tflops=1.0, model_flops=1e6)
    with Run.open(golden) as run:
        claimed = questions_for(said)["report"](run).to_json()
        assert claimed["mfu"] == report(run, said=said).to_json()["mfu"]
        assert claimed["mfu"] != QUESTIONS["report"](run).to_json()["mfu"]
        first = questions_for(said)["overview"](run)
        assert first.notes[0] == report(run, said=said).verdict
        assert first.notes != QUESTIONS["overview"](run).notes


def test_the_glossary_has_every_line_and_explains_no_word_with_itself() -> None:
    assert set(LINES) <= set(GLOSSARY)
    for word, meaning in GLOSSARY.items():
        assert meaning
        assert not re.match(rf"{re.escape(word)}\b", meaning) or word in LINES, word
