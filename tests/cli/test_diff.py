"""`lostflops diff` as people and programs see it."""

import json

import pytest

from made_timed_runs import noisy, recorded


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    for number in range(4):
        name, level = (("old", 10), ("new", 12))[number % 2]
        recorded(
            folder / name / f"run-{number}", noisy(number, level=level, between=0.002), start=number * 10_000_000_000
        )
    return folder


def test_patterns_lists_and_folders_name_the_same_runs(made, lostflops):
    old = ",".join(map(str, sorted((made / "old").iterdir())))
    answers = [
        json.loads(lostflops("diff", side, made / "new", "--json").out)
        for side in (made / "old", made / "old" / "*", old, f"{made}/old/run-[0],{made}/old/run-2")
    ]
    assert answers[0]["schema"] == "lostflops.diff/2"
    assert answers[0]["answer"] == "slower"
    assert len(answers[0]["before"]) == 2
    assert all(sorted(one["before"]) == sorted(answers[0]["before"]) for one in answers)


def test_names_are_taken_as_they_are(made, lostflops, tmp_path):
    """Commas and brackets in a name, and a log beside runs."""
    (tmp_path / "a, b").mkdir()
    (tmp_path / "a, b" / "run [1]").symlink_to(made / "old" / "run-0")
    (tmp_path / "new-1").symlink_to(made / "new" / "run-1")
    (tmp_path / "new-1.log").write_text("")
    told = json.loads(lostflops("diff", tmp_path / "a, b" / "run [1]", tmp_path / "new-*", "--json").out)
    assert told["step"]["runs"] == [1, 1]


def test_people_read_a_sentence(made, lostflops):
    done = lostflops("diff", made / "old", made / "new")
    text = " ".join(done.out.split())
    assert done.code == 0
    assert "B is slower: a typical step takes 12" in text
    assert "Next: lostflops gate --baseline" in text


@pytest.mark.parametrize("margin", ["nothing", "0", "-2%", "200%"])
def test_a_margin_is_a_part_of_a_step(made, lostflops, margin):
    done = lostflops("diff", made / "old", made / "new", f"--margin={margin}")
    assert done.code == 2
    assert "3% or 0.03" in done.err


def test_no_run(made, lostflops):
    assert lostflops("diff", made / "gone-*", made / "new").code == 2
    assert lostflops("diff", made / "gone", made / "new").code == 5
    assert lostflops("diff", ",", made / "new").code == 2


def test_a_page_is_written_to_a_file(made, lostflops, tmp_path):
    file = tmp_path / "page.html"
    done = lostflops("diff", made / "old", made / "new", "--html", file)
    assert done.code == 0
    assert f"Wrote{file}" in "".join(done.out.split())  # long paths are wrapped
    assert "Next: lostflops gate --baseline" in " ".join(done.out.split())
    assert file.read_text().startswith("<!doctype html>")
    told = json.loads(lostflops("diff", made / "old", made / "new", "--html", file, "--json").out)
    assert told["schema"] == "lostflops.page_file/1"
    assert told["file"] == str(file)


def test_a_page_cannot_be_markdown_too(made, lostflops, tmp_path):
    done = lostflops("diff", made / "old", made / "new", "--html", tmp_path / "page.html", "--md")
    assert done.code == 2
    assert lostflops("diff", made / "old", made / "new", "--html", tmp_path).code == 2


def test_json_has_the_compared_steps(made, lostflops):
    told = json.loads(lostflops("diff", made / "old", made / "new", "--json").out)
    names = [series["series"] for series in told["compared_steps"]]
    assert [name.partition(":")[0] for name in names] == ["A"] * 3 + ["B"] * 3
    first = told["compared_steps"][0]
    assert len(first["ns"]) == 60
    assert first["number"] == list(range(1, 61))
