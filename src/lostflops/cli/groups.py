"""The first screen of `lostflops --help`, and the handling of a first word that is not a verb."""

import shlex
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

import typer.core

GROUPS: Final = {
    "Record": ("run", "ingest", "snap", "watch"),
    "Look": (
        *("report", "open", "memory", "comm", "steps", "kernels"),
        *("flame", "info", "verify", "serve", "export", "sql"),
    ),
    "Explain": ("diagnose", "ranks", "explain", "path", "pipeline", "hang"),
    "Predict": ("whatif", "devices", "scale", "score"),
    "Compare": ("diff", "gate", "fleet"),
    "Prepare": ("doctor", "demo", "estimate", "fit", "calibrate", "collectives"),
}
"""All verbs, in the order of the work."""
OLD: Final = ("lateness", "overlap", "tune")
"""Verbs that were replaced by others: they work for one more release, and help does not list them."""
FIRST: Final = (
    *("run", "ingest", "report", "open", "memory", "comm"),
    *("diagnose", "ranks", "whatif", "diff", "gate", "doctor"),
)
"""Verbs on the first screen."""
SYNONYMS: Final = {
    **dict.fromkeys(("analyse", "analyze", "why", "causes", "findings", "bottleneck"), "diagnose"),
    **dict.fromkeys(("profile", "record", "trace", "launch", "start"), "run"),
    **dict.fromkeys(("compare", "regression"), "diff"),
    **dict.fromkeys(("oom", "mem", "leak"), "memory"),
    **dict.fromkeys(("stragglers", "straggler", "late", "waits"), "ranks"),
    **dict.fromkeys(("import", "load", "read", "convert"), "ingest"),
    **dict.fromkeys(("show", "summary", "ledger", "mfu"), "report"),
    **dict.fromkeys(("view", "html", "page", "ui", "browse"), "open"),
    **dict.fromkeys(("predict", "simulate", "what-if", "try"), "whatif"),
    **dict.fromkeys(("check", "test", "env"), "doctor"),
    **dict.fromkeys(("network", "nccl", "communication"), "comm"),
    **dict.fromkeys(("perfetto", "chrome"), "export"),
    **dict.fromkeys(("deadlock", "stuck", "hung"), "hang"),
    **dict.fromkeys(("live", "monitor", "prometheus"), "watch"),
    **dict.fromkeys(("checksum", "integrity", "fsck"), "verify"),
    **dict.fromkeys(("query", "duckdb"), "sql"),
    **dict.fromkeys(("ci",), "gate"),
    **dict.fromkeys(("bubble", "stages"), "pipeline"),
    **dict.fromkeys(("hardware", "gpus", "gpu", "cost", "prices"), "devices"),
}
"""Words that people try, and the verb that does it."""
_COMPLETION: Final = ("install_completion", "show_completion")
"""Options that `lostflops help completion` explains: the first screen has no room for them."""
_REPORT: Final = "report"
ALIKE: Final = 0.7
"""A verb is suggested for a word if their similarity, from 0 to 1, is at least this."""


class Verbs(typer.core.TyperGroup):
    """The verbs in groups. A run instead of a verb is reported; an unknown verb gets a suggestion."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        options: list[Any] = self.params
        for option in options:
            option.hidden = option.name in _COMPLETION
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as in its base class
        self.write_groups(formatter, FIRST)

    def write_groups(self, formatter: Any, shown: tuple[str, ...]) -> None:
        """Write a line for each of these verbs, with its group in front of the first one."""
        formatter.write_paragraph()
        width = max(map(len, shown))
        for group, verbs in GROUPS.items():
            chosen = [verb for verb in verbs if verb in shown]
            for verb in chosen:
                label = group if verb == chosen[0] else ""
                formatter.write(f"  {label:<9}{verb:<{width + 2}}{self.commands[verb].get_short_help_str(200)}\n")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        word = args[0]
        if word not in self.commands:
            if is_run(word):
                args = [_REPORT, *args]
            elif not word.startswith("-"):
                self._fail(ctx, word)
        return super().resolve_command(ctx, args)

    def _fail(self, ctx: Any, word: str) -> None:
        alike = get_close_matches(word.lower(), list(self.commands), 1, ALIKE)
        near = SYNONYMS.get(word.lower()) or (alike[0] if alike else None)
        hint = f" Did you mean {near!r}?" if near else " lostflops help all lists the verbs."
        there = (
            "" if near or not Path(word).exists() else f" To read traces: lostflops ingest {shlex.quote(word)} -o run"
        )
        ctx.fail(f"{word!r} is neither a verb nor a run.{there or hint}")


class WatchedVerb(typer.core.TyperCommand):
    """A verb that is stopped if it uses more memory than it may."""

    def invoke(self, ctx: Any) -> Any:
        from lostflops.cli.memory_watch import watch_memory

        with watch_memory():
            return super().invoke(ctx)


def is_run(word: str) -> bool:
    """Return whether a word names a run: a folder with a run in it, or an address."""
    return word.startswith("s3://") or (Path(word) / "run.json").is_file()
