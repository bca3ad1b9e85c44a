"""Pages of the reference that tell every rule and every change, from what they are made of."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

from lostflops.account.ledger.lines import LINES
from lostflops.core.estimate import Strength
from lostflops.explain.advise.rule import Rule
from lostflops.explain.advise.rules import RULES
from lostflops.predict.whatif.change import Change
from lostflops.predict.whatif.changes import CHANGES
from reading_code import Source

ESTIMATES = ("Estimate", "Estimate.bound", "Estimate.measured", "saving_of_extra_time")
"""Calls that make an estimate; the last argument says what it was computed from."""
SIGNS = "lostflops.explain.advise.signs"
RULES_INTRODUCTION = """\
The rules of `lostflops diagnose`, one per cause. [Causes](../explanation/causes.md) explains how each cause is
recognised and the limits of that; this page lists, from the code, what a rule reads, its thresholds, its fix and how
its saving is computed, if not by a what-if or from the time attributed to it. An ellipsis replaces text that depends on
the run. A finding must save at least 3% of the step. Evidence is graded:

"""
RULES_INTRODUCTION += "\n".join(f"- *{one}*: {one.meaning}" for one in Strength) + "\n"
CHANGES_INTRODUCTION = """\
All changes for `lostflops whatif --change NAME=VALUE`. `lostflops whatif RUN --list` shows which apply to a run, and
`--all` tries the values listed under "tried". How each is computed, and its error where the true effect is known:
changes of [computing](../explanation/whatif-computing.md), [communication](../explanation/whatif-communication.md),
[pipelines](../explanation/whatif-pipelines.md) and [memory](../explanation/whatif-memory.md);
[accuracy](../accuracy.md).
"""
KINDS_OF_VALUES = {
    "number": "a number above 0",
    "count": "a whole number from 1 to 1,000,000",
    "times": "a factor from `0.000001x` to `1000000x`, such as `2x`",
}
OTHER_VALUES = {"compression": "or `fp16`, `bf16`; below `1x`"}
"""What a change takes beyond its form."""
UNITS = {
    "MB": "`MB` is in MiB (2^20 bytes)",
    "BYTES": "`BYTES` is the highest allowed peak memory of a rank, such as `20GiB`",
    "S": "`S` is a number of steps",
    "FACTOR": "`FACTOR` is a multiple of the recorded batch",
    "WORKERS": "`WORKERS` is the number of DataLoader workers",
    "N": "`N` is the number of ranks",
    "M": "`M` is the number of microbatches per step",
    "RANK": "`RANK` is a rank number",
    "NAME": "`NAME` is a [device](devices.md)",
    "K": "`K` is a count",
    "MODULE": "`MODULE` is a module name, as in `model.named_modules()`",
}


def rules() -> str:
    rows = [f"| [`{rule.cause}`](#{rule.cause}) | {_cell(_first_line(module_of(rule)))} |" for rule in RULES]
    parts = ["# Rules\n", RULES_INTRODUCTION, "| cause | description |\n|---|---|\n" + "\n".join(rows) + "\n"]
    return "\n".join([*parts, *(_rule(rule) for rule in RULES)])


def changes() -> str:
    rows = [f"| [`{_cell(one.form)}`](#{anchor(one.name)}) | {_cell(one.about)} |" for one in CHANGES]
    parts = ["# Changes\n", CHANGES_INTRODUCTION, "| change | effect |\n|---|---|\n" + "\n".join(rows) + "\n"]
    return "\n".join([*parts, *(_change(one) for one in CHANGES)])


def module_of(one: Rule | Change) -> ModuleType:
    """Where a rule or a change is written; what it does may be a function of another file."""
    package = "lostflops.explain.advise.rules" if isinstance(one, Rule) else "lostflops.predict.whatif.changes"
    attribute = "RULE" if isinstance(one, Rule) else "CHANGE"
    found = [module for name, module in sys.modules.items() if name.startswith(f"{package}.")]
    return next(module for module in found if getattr(module, attribute, None) is one)


def anchor(heading: str) -> str:
    """
    >>> anchor("network.bandwidth")
    'networkbandwidth'
    """
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _rule(rule: Rule) -> str:
    source = Source(module_of(rule))
    claims = [{word.arg: word.value for word in call.keywords} for call in source.calls("Claim")]
    facts = [
        ("reads", _signs(source)),
        ("ledger lines", ", ".join(f"`{line}`" for line in _lines(source))),
        ("fix", _texts(text for claim in claims for text in source.texts(claim.get("fix")))),
        ("what-ifs it uses", _asked(source)),
        ("its own estimate", _texts(_bases(source, claims))),
        ("to confirm", _texts(text for claim in claims for text in source.texts(claim.get("certain_if")))),
        ("evidence", _strengths(source)),
    ]
    rows = [f"| {name} | {_cell(told)} |" for name, told in facts if told]
    more = f"[How it is recognised](../explanation/causes.md#{anchor(rule.cause)})."
    about = f"{_first_line(source.module)} {rule.about} {more}"
    text = f"## `{rule.cause}`\n\n{about}\n\n|  |  |\n|---|---|\n" + "\n".join(rows) + "\n"
    limits = [f"| {_cell(one.value)} | {_cell(one.meaning)} |" for one in source.constants() if one.name != "RULE"]
    return text + ("\n| threshold | meaning |\n|--:|---|\n" + "\n".join(limits) + "\n" if limits else "")


def _signs(source: Source) -> str:
    told = [_first_line(import_module(name)) for name in dict.fromkeys(source.modules_of(SIGNS))]
    return _lines_of(told)


def _strengths(source: Source) -> str:
    text = ast.unparse(source.tree)
    return " or ".join(one for one in Strength if f"Strength.{one.name}" in text)


def _lines(source: Source) -> list[str]:
    text = source.written(SIGNS)
    return [line for line in LINES if re.search(rf"[\"']{re.escape(line)}[\"']", text)]


def _asked(source: Source) -> str:
    text = source.written(SIGNS)
    asked = [one for one in CHANGES if re.search(rf"[\"']{re.escape(one.name)}=", text)]
    return ", ".join(f"[`{one.name}`](changes.md#{anchor(one.name)})" for one in asked)


def _bases(source: Source, claims: Iterable[dict[str | None, ast.expr]]) -> list[str]:
    """Return what estimates of the rule, and of the signs that it reads, are based on."""
    sources = [source, *(Source(import_module(name)) for name in dict.fromkeys(source.modules_of(SIGNS)))]
    calls = [(one, call) for one in sources for name in ESTIMATES for call in one.calls(name)]
    unpriced = [ast.unparse(one["taken"]) for one in claims if not {"changes", "saving", None} & one.keys()]
    limits = ["it costs no time yet" if taken == "{}" else "at most the time attributed to it" for taken in unpriced]
    return [*(text for one, call in calls for text in one.texts(call.args[-1])), *dict.fromkeys(limits)]


def _change(one: Change) -> str:
    module = module_of(one)
    tried = ", ".join(f"`{one.name}={value}`" for value in one.tried) or "nothing: you have to give a value"
    facts = [
        ("question", " ".join((module.__doc__ or "").split())),
        ("value", _value(one, module)),
        ("tried by `--all`", tried),
        ("how to apply it", _how(one)),
        ("cost and risk", one.cost),
        ("memory", "peak memory is predicted too" if one.remember else "the effect on memory is unknown"),
    ]
    if one.is_bound:
        facts.append(("upper limit", "shows the most that can be saved; no setting achieves it"))
    if one.again:
        facts.append(("several", "can be given several times, with different values"))
    rows = [f"| {name} | {_cell(told)} |" for name, told in facts if told]
    return f"## {one.name}\n\n`{one.form}`: {one.about}.\n\n|  |  |\n|---|---|\n" + "\n".join(rows) + "\n"


def _value(one: Change, module: ModuleType) -> str:
    shown = one.form.partition("=")[2]
    words = re.findall(r"[A-Z]+", shown)
    source = Source(module)
    kinds = [told for name, told in KINDS_OF_VALUES.items() if source.calls(name)]
    units = [UNITS[word] for word in words if word in UNITS]
    if kinds and "0" in source.compared():
        kinds.append("or `0`")
    return "; ".join([f"`{shown}`", *units, *kinds, *([OTHER_VALUES[one.name]] if one.name in OTHER_VALUES else [])])


def _how(one: Change) -> str:
    value = one.tried[0] if one.tried else one.form.partition("=")[2].partition("|")[0]
    return _texts([one.how(value)])


def _first_line(module: ModuleType) -> str:
    return " ".join((module.__doc__ or "").split("\n\n", maxsplit=1)[0].split())


def _texts(texts: Iterable[str]) -> str:
    plain = (re.sub(r"([<>*_\[\]])", r"\\\1", text) for text in texts if text.strip("… "))
    return _lines_of(list(dict.fromkeys(plain)))


def _lines_of(items: list[str]) -> str:
    return "<br>".join(f"• {item}" for item in items) if len(items) > 1 else "".join(items)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
