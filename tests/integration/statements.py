"""Every statement that verbs, JSON, the page and Markdown make about the same thing, held against each other.

`contradictions(run)` asks all verbs that show findings or savings and returns what differs, one line each. Run as a
program it checks runs that lie on disk: python tests/integration/statements.py RUN...
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lostflops.cli.main import main
from lostflops.core.errors import LostflopsError
from lostflops.core.estimate import Estimate
from lostflops.core.results import Findings, Result
from lostflops.core.units import format_ns, format_percent
from lostflops.show.pages.page import page_of
from lostflops.store.run import Run

VERBS = (("diagnose",), ("report",), ("ranks",), ("whatif", "--all"), ("pipeline",), ("steps",))
PER_STEP = re.compile(r"(?:, |A normal step takes )([\d.]+ [mun]?s)(?: per step\.| \((?:trimmed )?mean)")
_PER_LINE = 2
"""What rounding may add to a sum, in ns for each part."""
SAVING = re.compile(r"[Ss]aves? (?:about |up to |at most |the most: )?(\d+(?:\.\d)?%) of the step")
Json = dict[str, Any]
WORDS_OF = {
    "compute": ("compute", "memory"),
    "copy": ("memory",),
    "idle.alloc": ("memory",),
    "idle.data": ("input",),
    "comm.transfer": ("communication",),
    **dict.fromkeys(("idle.sync", "idle.compile", "idle.host", "idle.python"), ("host",)),
}
"""What bounds a job if most of its time is on a line; a wait or a bubble may have any cause."""


class Refused(Exception):
    """A verb ended with an error, which says why it has no answer."""


def asked(*words: str) -> str:
    """Standard output of the command line, called in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(list(words))
        except SystemExit as stop:
            if stop.code:
                raise Refused(f"{' '.join(words)}: exit {stop.code}: {err.getvalue()[-300:]}") from None
    return out.getvalue()


def answers(run: Path) -> tuple[dict[str, Json], list[str]]:
    """JSON of every verb by its name, and the verbs that refused; a traceback is a contradiction of its own."""
    found: dict[str, Json] = {}
    refused = []
    for verb, *options in VERBS:
        try:
            found[verb] = json.loads(asked(verb, str(run), *options, "--json"))
        except Refused as error:
            refused.append(str(error))
    return found, refused


def contradictions(run: Path) -> list[str]:
    """What differs between any two statements about this run."""
    found, refused = answers(run)
    wrong = [text for text in refused if "Traceback" in text or "exit 70" in text]
    if "diagnose" not in found:
        return [*wrong, "diagnose has no answer"]
    findings = found["diagnose"]["findings"]
    wrong += _levels(findings)
    wrong += _bound(found, findings)
    wrong += _arrays(found, findings)
    wrong += _explained(run, findings)
    wrong += _priced(run, found, findings)
    wrong += _page(run, findings)
    wrong += _words(run, found, findings)
    wrong += _step_times(found)
    wrong += _waits(found)
    return wrong


def _step_times(found: dict[str, Json]) -> Iterator[str]:
    """A run has one step time, in every verdict, and what-ifs begin with it."""
    said = {verb: set(PER_STEP.findall(told["verdict"])) for verb, told in found.items()}
    if len({time for times in said.values() for time in times}) > 1:
        yield f"step times differ: { {verb: times for verb, times in said.items() if times} }"
    measured = found.get("whatif", {}).get("baseline", {}).get("measured_ns")
    headline = next(iter(said.get("diagnose", ())), None)
    if measured and headline and format_ns(round(measured)) != headline:
        yield f"what-ifs begin with {format_ns(round(measured))}, and the headline says {headline}"


def _waits(found: dict[str, Json]) -> Iterator[str]:
    """The ledger charges waits to the ranks that `ranks` charges them to."""
    if "report" not in found or "ranks" not in found:
        return
    charged = {row["rank"]: row["charged_ns"] or 0 for row in found["ranks"]["ranks"]}
    in_ledger: dict[int, int] = {}
    parts = [part for line in found["report"]["ledger"]["lines"] for part in line["parts"]]
    for part in parts:
        if (number := part["line"].removeprefix("for rank ")) != part["line"]:
            in_ledger[int(number)] = in_ledger.get(int(number), 0) + part["ns"]
    for rank, ns in in_ledger.items():
        if abs(ns - charged.get(rank, ns)) > max(_PER_LINE * len(parts), 0.001 * ns):
            yield f"the ledger charges {ns} ns of waits to rank {rank}, and ranks {charged[rank]}"


def _levels(findings: list[Json]) -> Iterator[str]:
    """A saving that may be zero is never found; what is suspected says why."""
    for one in findings:
        of = one["saving"]
        if one["level"] == "found" and of and not Estimate(**of).is_gain:
            yield f"{one['id']} is found and may save nothing"
        if one["level"] == "suspected" and not one["doubt"]:
            yield f"{one['id']} is suspected for no reason"
    ids = [one["id"] for one in findings]
    if len(set(ids)) < len(ids):
        yield f"ids are not unique: {ids}"


def _bound(found: dict[str, Json], findings: list[Json]) -> Iterator[str]:
    """What bounds the job has at least the time of the first finding, unless both are the same."""
    if "report" not in found or not findings or findings[0]["level"] != "found" or not findings[0]["lines"]:
        return
    first, used = findings[0], found["report"]["utilization"]
    line = max(first["lines"], key=lambda line: first["lines"][line])
    if (
        used["bound"] in (None, "balanced")
        or line in ("comm.wait", "comm.bubble")
        or used["bound"] in WORDS_OF.get(line, ())
    ):
        return
    if first["lost_share"] > used[f"{used['bound']}_bound"]:
        yield f"report says {used['bound']}, and {first['id']} costs more ({line})"


def _arrays(found: dict[str, Json], findings: list[Json]) -> Iterator[str]:
    for verb, told in found.items():
        own = told.get("findings", [])
        if own is not None and own != findings and not (verb in ("pipeline", "steps") and "findings" not in told):
            yield f"{verb} has other findings than diagnose: {_short(own)} and not {_short(findings)}"


def _short(findings: list[Json]) -> list[tuple[str, str, float | None]]:
    return [(one["id"], one["level"], (one["saving"] or {}).get("value")) for one in findings]


def _explained(run: Path, findings: list[Json]) -> Iterator[str]:
    for number, one in enumerate(findings, 1):
        told = json.loads(asked("explain", str(run), str(number), "--json"))["findings"]
        if told != [one]:
            yield f"explain {number} shows another finding than diagnose"


def _priced(run: Path, found: dict[str, Json], findings: list[Json]) -> Iterator[str]:
    """A what-if has one saving, whoever asks; that of a finding is limited to its own time and all waits."""
    ranked = {row["change"]: row for row in found.get("whatif", {}).get("changes", [])}
    for one in findings:
        of, saving = one["prediction"], one["saving"]
        if not of or not of["change"]:
            continue
        words = [word for change in of["change"].split(", ") for word in ("--change", change)]
        told = json.loads(asked("whatif", str(run), *words, "--json"))
        if told["saving"]["value"] < saving["value"]:
            yield f"whatif {of['change']} saves {told['saving']['value']}, and {one['id']} {saving['value']}"
        row = ranked.get(of["change"])
        if row and row["saving"] != told["saving"]:
            yield f"whatif --all: {of['change']} saves {row['saving']}, and alone {told['saving']}"


def _page(run: Path, findings: list[Json]) -> Iterator[str]:
    """The page shows the same findings, and its knobs the same steps."""
    with Run.open(run) as opened:
        page = page_of(opened)
    by_name = {result.name: result for result in page.results}
    for name in ("diagnosis", "report", "ranks", "pipeline"):
        block = _findings_of(by_name.get(name))
        if block is not None and json.loads(json.dumps(block.to_json())) != findings:
            yield f"the page's {name} has other findings than diagnose"
    knobs = by_name.get("knobs")
    if knobs is None or not knobs.blocks:  # a run that cannot be replayed has no knobs
        return
    turned = {
        f"{knob.change}={setting.value}": setting.predicted_ns
        for knob in knobs.blocks[0].items
        for setting in knob.settings
    }
    for one in findings:
        of = one["prediction"]
        if of and of["change"] in turned and turned[of["change"]] != of["predicted_ns"]:
            yield f"the page's knob {of['change']}: {turned[of['change']]}, and {one['id']}: {of['predicted_ns']}"


def _findings_of(result: Result | None) -> Findings | None:
    blocks = () if result is None else (*result.blocks, *result.more)
    return next((block for block in blocks if isinstance(block, Findings)), None)


def _words(run: Path, found: dict[str, Json], findings: list[Json]) -> Iterator[str]:
    """Savings in verdicts, on the terminal and in Markdown are those of a finding or of a change that was tried."""
    known = set()
    for one in findings:
        known |= {format_percent(one["saving"][key] or 0) for key in ("value", "high")} if one["saving"] else set()
    known |= {format_percent(row["saving"]["value"]) for row in found.get("whatif", {}).get("changes", [])}
    texts = {verb: told["verdict"] for verb, told in found.items()}
    texts |= {f"{verb} on the terminal": asked(verb, str(run)) for verb in ("report", "ranks", "diagnose")}
    texts |= {f"{verb} --markdown": asked(verb, str(run), "--markdown") for verb in ("report", "diagnose")}
    for place, text in texts.items():
        for share in SAVING.findall(" ".join(text.split())):
            if share not in known:
                yield f"{place} says {share} of the step, and no finding does"
    first = next((one for one in findings if one["level"] == "found"), None)
    for place in ("diagnose --markdown", "report --markdown"):
        if (
            first is not None
            and first["prediction"]
            and first["what"].split(".")[0][:40] not in _unescaped(texts[place])
        ):
            yield f"{place} does not show the first finding"


def _unescaped(text: str) -> str:
    return text.replace("\\", "")


def saving_of(one: Json) -> str:
    """What a finding of JSON saves, in the words of every renderer."""
    return str(Estimate(**one["saving"])) if one["saving"] else "no time yet"


def check(paths: list[str]) -> int:
    failed = 0
    for path in paths:
        try:
            wrong = contradictions(Path(path))
        except (LostflopsError, Refused) as error:
            wrong = [str(error)]
        failed += bool(wrong)
        print(f"{path}: " + ("one voice" if not wrong else "; ".join(wrong)), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(check(sys.argv[1:]))
