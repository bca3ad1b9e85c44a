"""`lostflops help`: all verbs, one verb, exit codes, a cause or a ledger line."""

import sys
from difflib import get_close_matches
from textwrap import fill
from typing import Annotated, Any

import typer

from lostflops.cli.completion import complete_topic
from lostflops.cli.groups import ALIKE, GROUPS, Verbs
from lostflops.cli.output import JsonOption
from lostflops.core.errors import UsageError

EXAMPLE = "lostflops help straggler"
WIDTH = 79
EXIT_CODES = (
    (0, "success"),
    (1, "unexpected failure; gate: slower than the baseline"),
    (2, "bad arguments, or a question that this run cannot answer"),
    (3, "inconclusive: required data is missing; gate: too few runs or steps"),
    (4, "a trace file cannot be read"),
    (5, "not a run, a damaged run, or one that another process is writing to"),
    (6, "sql: the query is wrong or not allowed"),
    (7, "more memory is needed than the command may use"),
    (70, "gate: unexpected failure"),
    (126, "run: the command cannot be executed"),
    (127, "run: the command was not found"),
    (130, "interrupted"),
)
Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="all, a verb, exit-codes, completion, a cause or a ledger line.",
        autocompletion=complete_topic,
    ),
]
COMPLETION = """\
lostflops --install-completion   set up the shell that you use (bash, zsh or fish); open a new shell afterwards
lostflops --show-completion      print the script, to install it yourself
The Tab key then completes verbs, options, runs, changes (whatif --change) and topics (help)."""


def help(context: typer.Context, topic: Topic = "all", as_json: JsonOption = False) -> None:  # noqa: A001
    """Explain a verb, cause, ledger line or exit codes."""
    text = _text(context.find_root(), topic)
    if as_json:
        from lostflops.show.report.plain import write_json

        write_json({"schema": "lostflops.help/1", "topic": topic, "text": text}, sys.stdout)
    else:
        print(text)


def _text(root: Any, topic: str) -> str:
    program: Verbs = root.command
    if topic == "all":
        formatter = root.make_formatter()
        program.write_groups(formatter, tuple(verb for verbs in GROUPS.values() for verb in verbs))
        verbs = formatter.getvalue().strip("\n")
        return f"{verbs}\n\nlostflops help exit-codes lists exit codes, help completion sets up Tab."
    if topic in program.commands:
        command: Any = program.commands[topic]
        return str(command.get_help(typer.Context(command, info_name=topic, parent=root)))
    if topic == "completion":
        return COMPLETION
    if topic in ("exit-codes", "exit", "codes", *(str(code) for code, _ in EXIT_CODES)):
        codes = [f"{code:<4} {meaning}" for code, meaning in EXIT_CODES]
        return "\n".join([*codes, "lostflops run exits with the code of its command, even if the recording fails."])
    return fill(_explain_topic(topic, program), WIDTH)


def _explain_topic(topic: str, program: Verbs) -> str:
    from lostflops.explain.advise.rules import RULES
    from lostflops.show.pages.glossary import GLOSSARY

    topics = {**GLOSSARY, **{rule.cause: rule.about for rule in RULES}}
    if topic in topics:
        return f"{topic}: {topics[topic]}"
    near = get_close_matches(topic, [*topics, *program.commands], 3, ALIKE)
    hint = f"Did you mean {', '.join(near)}?" if near else "lostflops help all lists the verbs."
    raise UsageError(f"no help on {topic!r}. {hint}")
