"""`lostflops help`: all verbs, one verb, exit codes, a cause or a line of the ledger."""

from difflib import get_close_matches
from typing import Annotated, Any

import typer

from lostflops.cli.verbs import GROUPS, Verbs
from lostflops.errors import UsageError

EXAMPLE = "lostflops help straggler"
EXIT_CODES = (
    (0, "success"),
    (1, "any other failure; gate: regressed"),
    (2, "the request cannot be carried out"),
    (3, "inconclusive: required data is missing; gate: the runs do not decide"),
    (4, "a source cannot be used"),
    (5, "a run cannot be used"),
    (6, "the query was refused"),
    (70, "any other failure of gate"),
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
    else:
        print(_explained(topic, program))


def _explained(topic: str, program: Verbs) -> str:
    from lostflops.advise.rules import RULES
    from lostflops.pages.glossary import GLOSSARY

    topics = {**GLOSSARY, **{rule.cause: rule.about for rule in RULES}}
    if topic in topics:
        return f"{topic}: {topics[topic]}"
    near = get_close_matches(topic, [*topics, *program.commands], 3)
    hint = f"Did you mean {', '.join(near)}?" if near else "lostflops help all lists the verbs."
    raise UsageError(f"there is no help on {topic!r}. {hint}")
