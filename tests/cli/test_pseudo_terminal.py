"""The program in a real pseudo-terminal, as people see it: width, colours, help, completion, exit codes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from lostflops.testing import Straggler, SyntheticCluster, store

pexpect = pytest.importorskip("pexpect")
CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b[=>]")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    late = SyntheticCluster(ranks=4, steps=5, stragglers=(Straggler(1, "slow_kernels", factor=1.4),))
    return store(late.generate(), tmp_path_factory.mktemp("terminal") / "run")


def shown(*words: str, columns: int = 80, **environment: str) -> tuple[str, int]:
    """What a terminal of so many columns gets, and the exit code."""
    clean = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    program = pexpect.spawn(
        sys.executable,
        ["-m", "lostflops", *words],
        dimensions=(40, columns),
        env={**clean, "TERM": "xterm-256color", **environment},
        encoding="utf-8",
        timeout=120,
    )
    program.expect(pexpect.EOF)
    program.close()
    return program.before, program.exitstatus


def lines_of(text: str) -> list[str]:
    """Lines as they stay on the screen: a progress bar overwrites itself."""
    return [line.rsplit("\r", 1)[-1] for line in CODES.sub("", text).replace("\r\n", "\n").split("\n")]


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
@pytest.mark.parametrize("verb", ["report", "diagnose"])
@pytest.mark.few(3)
def test_answers_follow_the_width(verb: str, columns: int, run: Path) -> None:
    text, code = shown(verb, str(run), columns=columns)
    assert code == 0
    lines = [line for line in lines_of(text) if not line.startswith(("Next: ", "Or: "))]
    assert max(map(cell_len, lines)) <= columns
    assert max(map(cell_len, lines)) > min(columns, 100) * 0.6
    assert any("Rank 1" in line for line in lines)


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_help_follows_the_width_and_fits_a_screen(columns: int) -> None:
    text, code = shown("--help", columns=columns)
    assert code == 0
    assert len(lines_of(text)) <= 30
    assert max(map(cell_len, lines_of(text))) <= max(columns, 80)
    for verb in ("run", "report", "diagnose", "whatif", "diff"):
        assert re.search(rf"^\s+(\w+ +)?{verb} +[A-Z]", CODES.sub("", text).replace("\r", ""), re.MULTILINE)


def test_colour_is_for_terminals_that_want_it(run: Path) -> None:
    assert COLOUR.search(shown("report", str(run))[0])
    # NO_COLOR forbids colours; bold is not one.
    plain = shown("report", str(run), NO_COLOR="1")[0]
    assert not re.search(r"\x1b\[[0-9;]*(3[0-9]|9[0-7]|38;)[0-9;]*m", plain)


def test_a_pipe_gets_text_alone(run: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lostflops", "report", str(run)],
        capture_output=True,
        check=True,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm-256color"},
    )
    assert b"\x1b" not in done.stdout
    lines = [line for line in done.stdout.decode().splitlines() if not line.startswith(("Next: ", "Or: "))]
    assert max(map(cell_len, lines)) <= 80


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("analyse", "x"), 2, "Did you mean 'diagnose'?"),
        (("profile",), 2, "Did you mean 'run'?"),
        (("oom",), 2, "Did you mean 'memory'?"),
        (("reprot",), 2, "Did you mean 'report'?"),
        (("report", "x", "--windo", "steps"), 2, "--window"),
        (("report", "/nonexistent"), 5, "/nonexistent"),
        (("sql", "{run}", "selec 1"), 6, "selec"),
        (("explain", "{run}", "99"), 2, "99"),
    ],
)
@pytest.mark.few(3)
def test_errors_say_what_to_type(words: tuple[str, ...], code: int, says: str, run: Path) -> None:
    text, ended = shown(*(word.format(run=run) for word in words), columns=200)
    assert ended == code
    assert says in text
    assert "Traceback" not in text


def completed(words: str, shell: str = "bash", **environment: str) -> list[str]:
    """What the shell offers for the last word, through the script that is installed."""
    done = subprocess.run(
        [sys.executable, "-m", "lostflops"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ
        | {
            "_LOSTFLOPS_COMPLETE": f"complete_{shell}",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
            "_TYPER_COMPLETE_ARGS": words,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            **environment,
        },
    )
    return done.stdout.splitlines()


def test_verbs_runs_changes_and_findings_are_completed(run: Path) -> None:
    assert "diagnose" in completed("lostflops di")
    assert completed(f"lostflops report {str(run)[:-1]}") == [str(run)]
    assert "bucket_mb=" in completed(f"lostflops whatif {run} --change bu")
    assert completed(f"lostflops explain {run} ") == ["1", "2", "3"]
    assert "straggler" in completed("lostflops help stragg")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_same_words(shell: str) -> None:
    assert any("diagnose" in line for line in completed("lostflops di", shell))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lostflops"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"_LOSTFLOPS_COMPLETE": f"source_{shell}"},
    )
    assert "lostflops" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_tab_in_bash_completes_a_verb(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "lostflops"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m lostflops "$@"\n')
    program.chmod(0o755)
    script = subprocess.run(
        [program], capture_output=True, text=True, check=False, env=os.environ | {"_LOSTFLOPS_COMPLETE": "source_bash"}
    ).stdout
    (tmp_path / "rc").write_text(f"PS1='$ '\nPATH={folder}:$PATH\n{script}\n")
    bash = pexpect.spawn("bash", ["--rcfile", str(tmp_path / "rc"), "-i"], encoding="utf-8", timeout=60)
    bash.expect_exact("$ ")
    bash.send("lostflops diagn\t")
    bash.expect_exact("diagnose")
    bash.sendcontrol("c")
    bash.sendeof()
    bash.close()
