"""`lostflops help`: all verbs, one verb, exit codes, a cause or a line of the ledger."""

from difflib import get_close_matches
from textwrap import fill
from typing import Annotated, Any

import typer

from lostflops.cli.verbs import ALIKE, GROUPS, Verbs
from lostflops.errors import UsageError

EXAMPLE = "lostflops help straggler"
WIDTH = 79
EXIT_CODES = (
    (0, "success"),
    (1, "unexpected failure; gate: slower than the baseline"),
    (2, "bad arguments, or a question that this run cannot answer"),
    (3, "inconclusive: required data is missing; gate: too few runs or steps"),
    (4, "a trace file cannot be read"),
    (5, "the folder has no run, or a damaged one"),
    (6, "sql: the query is wrong or not allowed"),
    (70, "gate: unexpected failure"),
    (126, "run: the command cannot be executed"),
    (127, "run: the command was not found"),
    (130, "interrupted"),
)
Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", help="all, a verb, exit-codes, a cause or a line of the ledger.")
]


def help(context: typer.Context, topic: Topic = "all") -> None:  # noqa: A001 - a verb is named as it is typed
    """Explain a verb, a cause of lost time, a line of the ledger or the exit codes."""
    root: Any = context.find_root()
    program: Verbs = root.command
    if topic == "all":
        formatter = root.make_formatter()
        program.write_groups(formatter, tuple(verb for verbs in GROUPS.values() for verb in verbs))
        print(formatter.getvalue().strip("\n"))
    elif topic in program.commands:
        command: Any = program.commands[topic]
        print(command.get_help(typer.Context(command, info_name=topic, parent=root)))
    elif topic in ("exit-codes", "exit", "codes"):
        print("\n".join(f"{code:<4} {meaning}" for code, meaning in EXIT_CODES))
        print("lostflops run exits with the code of its command, whatever becomes of the recording.")
    else:
        print(fill(_explained(topic, program), WIDTH))


def _explained(topic: str, program: Verbs) -> str:
    from lostflops.advise.rules import RULES
    from lostflops.pages.glossary import GLOSSARY

    topics = {**GLOSSARY, **{rule.cause: rule.about for rule in RULES}}
    if topic in topics:
        return f"{topic}: {topics[topic]}"
    near = get_close_matches(topic, [*topics, *program.commands], 3, ALIKE)
    hint = f"Did you mean {', '.join(near)}?" if near else "lostflops help all lists the verbs."
    raise UsageError(f"there is no help on {topic!r}. {hint}")
