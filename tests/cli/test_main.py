import gc
import os
import subprocess
import sys
from typing import Any

import pytest
import typer.main

from lostflops.cli.groups import FIRST, GROUPS, OLD
from lostflops.cli.main import COMMANDS, build
from lostflops.cli.verbs.help import EXIT_CODES
from lostflops.core import errors

CLAIMS = {"--peak-tflops", "--model-flops", "--tokens-per-step", "--samples-per-step"}
MARKDOWN = {"--markdown", "--md"}
FLAGS = {
    "": {"--version", "--install-completion", "--show-completion"},
    "demo": {"--out", "-o", "--ranks", "--browser", "--json"},
    "calibrate": {"LAUNCHER", "--out", "-o", "--seconds", "--only", "--show", "--nccl-tests", "--plot", "--json"}
    | {"--learn", "--against"},
    "collectives": {"--ranks", "--ranks-per-host", "--calibration", "--topology", "--op", "--size", "--plot", "--json"},
    "comm": {"RUN", "--window", "--rank", "--step", "--limit", "--overlap", "--layers", "--topology", "--json"},
    "estimate": {"MODEL", "--device", "--topology", "--calibration", "--memory", "--compiled", "--json"}
    | {"--dp", "--tp", "--cp", "--pp", "--virtual-stages", "--zero", "--microbatch", "--batch", "--seq"}
    | {"--dtype", "--precision", "--recompute", "--optimizer"},
    "fit": {"CMD", "--argument", "--variable", "--sizes", "--steps", "--device", "--memory", "--keep", "--json"},
    "flame": {"RUN", "--window", "--rank", "--step", "--line", "--all", "--out", "-o", "--collapsed", "--json"},
    "help": {"TOPIC", "--json"},
    "hang": {"DUMPS", "--limit", "--json"},
    "info": {"RUN", "--json"},
    "verify": {"RUN", "--json"},
    "kernels": {"RUN", "--window", "--rank", "--step", "--limit", "--full-names", "--json"},
    "lateness": {"RUN", "--window", "--step", "--mesh", "--json"},
    "overlap": {"RUN", "--window", "--rank", "--step", "--json"},
    "memory": {"RUN", "--rank", "--device", "--by", "--frontier", "--json"} | MARKDOWN,
    "path": {"RUN", "--step", "--top", "--json"},
    "pipeline": {"RUN", "--mesh", "--json"},
    "ranks": {"RUN", "--window", "--step", "--mesh", "--limit", "--by-step", "--json"},
    "run": {
        "CMD",
        "--out",
        "-o",
        "--label",
        "--fleet",
        "--steps",
        "--repeat",
        "--ranks",
        "--with",
        "--overhead",
        "--spool",
        "--windows-per-hour",
        "--webhook",
        "--keep-raw",
        "--json",
    },
    "report": {"RUN", "--window", "--rank", "--step", "--by", "--job", "--full", "--findings", "--html", "--json"}
    | CLAIMS
    | MARKDOWN,
    "open": {"RUN", "--out", "--browser", "--json"},
    "serve": {"RUN|PLACE", "B", "--port", "--browser", "--runs", "--behind", "--token-file", "--audit", "--json"},
    "export": {"RUN", "--perfetto", "--wandb", "--mlflow", "--tensorboard", "--rank", "--step", "--json"},
    "diagnose": {"RUN", "--usd-per-hour", "--top", "--calibration", "--topology", "--json"} | MARKDOWN,
    "explain": {"RUN", "N", "--usd-per-hour", "--calibration", "--topology", "--json"} | MARKDOWN,
    "diff": {"A", "B", "--margin", "--anyway", "--html", "--json"} | MARKDOWN,
    "gate": {"--baseline", "--candidate", "--max-regress", "--anyway", "--json"} | MARKDOWN,
    "fleet": {
        "[add|compact|expire] PLACE [RUN]...",
        "--by",
        "--job",
        "--label",
        "--since",
        "--week",
        "--host",
        "--status",
        "--before",
        "--csv",
        "--json",
    },
    "devices": {"RUN", "--prices", "--tokens-per-step", "--samples-per-step", "--plot", "--html", "--json"},
    "scale": {
        "RUN",
        "--ranks",
        "--calibration",
        "--topology",
        "--strong",
        "--ranks-per-host",
        "--mesh",
        "--batch",
        "--plot",
        "--json",
    },
    "score": {"PREDICTION", "--with", "--from", "--list", "--json"},
    "tune": {"SETTING", "RUN", "--sizes", "--calibration", "--topology", "--plot", "--json"},
    "whatif": {"RUN", "--change", "--list", "--all", "--tune", "--plot", "--calibration", "--topology", "--json"},
    "steps": {"RUN", "--rank", "--step", "--json"},
    "ingest": {"SRC", "--out", "-o", "--workers", "--replace", "--engine", "--json"},
    "snap": {"RUN", "--steps", "--ranks", "--timeout", "--json"},
    "doctor": {"RUN", "--python", "--cluster", "--seconds", "--device", "--topology", "--json"},
    "watch": {"RUN", "--once", "--interval", "--last", "--wait", "--patience", "--json"}
    | {"--model-flops", "--peak-tflops", "--dtype", "--prometheus", "--otlp", "--otel"},
    "sql": {"RUN", "QUERY", "--format", "--limit", "--json"},
}


def flags(command: Any) -> set[str]:
    return {
        name
        for parameter in command.params
        for name in (parameter.opts if parameter.param_type_name == "option" else [parameter.metavar])
    }


def test_the_flags_are_frozen() -> None:
    program = typer.main.get_command(build())
    found = {"": flags(program)} | {name: flags(command) for name, command in program.commands.items()}
    assert found == FLAGS


@pytest.mark.parametrize("verb", ["", *(function.__name__ for _, function in COMMANDS)])
@pytest.mark.few(8)
def test_help_is_light(verb: str) -> None:
    script = (
        "import sys\n"
        "from lostflops.cli.main import main\n"
        "heavy = {'duckdb', 'numpy', 'scipy', 'torch'}\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print('loaded', sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *([verb] if verb else []), "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == "loaded []\n"
    assert ("Example:\n    lostflops" in done.stdout) == bool(verb)
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_version(lostflops) -> None:
    from lostflops import __version__

    assert lostflops("--version").out == f"lostflops {__version__}\n"


def test_an_unknown_verb_is_a_usage_error(lostflops) -> None:
    outcome = lostflops("levitate")
    assert outcome.code == 2
    assert "'levitate' is neither a verb nor a run. lostflops help all lists the verbs." in outcome.err


@pytest.mark.parametrize(
    ("word", "verb"),
    [("analyse", "diagnose"), ("profile", "run"), ("compare", "diff"), ("oom", "memory"), ("rprt", "report")],
)
def test_another_word_for_a_verb_is_understood(lostflops, word: str, verb: str) -> None:
    outcome = lostflops(word)
    assert outcome.code == 2
    assert f"Did you mean {verb!r}?" in outcome.err


def test_a_folder_of_traces_is_no_run_and_the_hint_reads_it(lostflops, tmp_path) -> None:
    assert f"To read traces: lostflops ingest {tmp_path} -o run" in lostflops(str(tmp_path)).err


def test_the_first_screen_is_one_screen_of_twelve_verbs(lostflops) -> None:
    """24 lines and 80 columns; every verb is in one group, and help all lists it."""
    lines = lostflops("--help").out.splitlines()
    assert len(lines) <= 24
    everything = [verb for verbs in GROUPS.values() for verb in verbs]
    assert sorted([*everything, *OLD, "help"]) == sorted(function.__name__ for _, function in COMMANDS)
    listed = lostflops("help", "all").out
    assert all(f" {verb} " in listed for verb in everything)
    assert max(map(len, [*lines, *listed.splitlines()])) <= 80
    assert len(FIRST) == 12
    assert [verb for verb in everything if any(f" {verb} " in line for line in lines)] == [
        verb for verb in everything if verb in FIRST or verb == "demo"
    ]


@pytest.mark.parametrize(
    ("topic", "says"),
    [
        ("comm.wait", "a participant has not arrived yet"),
        ("straggler", "the slowest rank sets the step time"),
        ("exit-codes", "130  interrupted"),
        ("steps", "Usage: lostflops steps"),
    ],
)
def test_help_on_a_topic(lostflops, topic: str, says: str) -> None:
    assert says in lostflops("help", topic).out.replace("\n", " ")


def test_help_on_something_else_suggests(lostflops) -> None:
    outcome = lostflops("help", "stragler")
    assert outcome.code == 2
    assert "Did you mean straggler" in outcome.err


def test_every_exit_code_of_an_error_is_documented() -> None:
    tree = [errors.LostflopsError]
    for error in tree:
        tree.extend(error.__subclasses__())
    assert {error.exit_code for error in tree} <= {code for code, _ in EXIT_CODES}


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (errors.NotARun("nothing here"), 5, "lostflops: nothing here\n"),
        (errors.QueryError("no such column"), 6, "lostflops: no such column\n"),
        (PermissionError(13, "Permission denied", "secret"), 1, "lostflops: secret: Permission denied\n"),
        (OSError(28, "No space left on device"), 1, "lostflops: No space left on device\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_have_no_traceback(lostflops, runs, raised: BaseException, code: int, message: str) -> None:
    def fail() -> None:
        raise raised

    runs["run"] = fail
    outcome = lostflops("info", "run")
    assert (outcome.code, outcome.out, outcome.err) == (code, "", message)


def test_a_bug_keeps_its_traceback(runs) -> None:
    from lostflops.cli.main import main

    def fail() -> None:
        raise ZeroDivisionError

    runs["run"] = fail
    with pytest.raises(ZeroDivisionError):
        main(["info", "run"])


@pytest.mark.parametrize(
    "words", [("report", "{}"), ("serve", "{}"), ("ingest", "traces", "-o", "{}"), ("demo", "--out={}")]
)
def test_a_path_that_is_not_utf8_is_refused_in_words(lostflops, words: tuple[str, ...]) -> None:
    answer = lostflops(*(word.format(os.fsdecode(b"caf\xe9/run")) for word in words))
    assert (answer.code, answer.out) == (2, "")
    assert "caf\\xe9/run is not UTF-8" in answer.err
    assert "Rename" in answer.err


def test_a_folder_that_is_not_utf8_around_the_run_is_told_too(lostflops, tmp_path, monkeypatch) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes UTF-8 only")
    (folder / "trace.json").write_text("{}")
    monkeypatch.chdir(folder)
    for words in (("report", "run"), ("ingest", "trace.json", "-o", tmp_path / "run"), ("demo",)):
        answer = lostflops(*words)
        assert (answer.code, answer.out) == (2, "")
        assert "is not UTF-8" in answer.err
    assert [path.name for path in folder.iterdir()] == ["trace.json"]


def test_the_command_of_a_job_may_hold_any_bytes(lostflops) -> None:
    assert "UTF-8" not in lostflops("run", "--steps", "nonsense", "--", "python", os.fsdecode(b"caf\xe9")).err


def test_a_program_that_calls_ours_keeps_its_garbage_collector(lostflops) -> None:
    before = gc.get_threshold()
    assert lostflops("--version").code == 0
    assert gc.get_threshold() == before
