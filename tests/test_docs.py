import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from lostflops.account.facts.devices import DEVICES
from lostflops.account.ledger.lines import LINES
from lostflops.cli.groups import OLD
from lostflops.cli.main import COMMANDS, build
from lostflops.cli.verbs.help import EXIT_CODES
from lostflops.explain.advise.rules import RULES
from lostflops.explain.analyze import ANALYSES
from lostflops.predict.whatif.changes import CHANGES
from lostflops.store.tables import TABLES

ROOT = Path(__file__).parent.parent
VERBS = [function.__name__ for _, function in COMMANDS]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "examples" / "README.md"])


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_the_reference_is_fresh() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "generate_docs.py", "--check"],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_documented(verb: str) -> None:
    assert f"\n## lostflops {verb}\n" in read("docs/reference/cli.md")
    assert f"lostflops {verb}" in read("README.md") or verb in OLD
    assert f"`lostflops {verb}" in read("CHANGELOG.md")


def test_every_verb_says_what_it_does_and_shows_an_example() -> None:
    for module, function in COMMANDS:
        assert function.__doc__
        verb = module.__name__.rpartition(".")[2]
        assert function.__name__ in (verb, *OLD)
        assert module.EXAMPLE.startswith(f"lostflops {verb} ")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.cause)
def test_every_cause_is_documented(rule) -> None:
    assert f"\n## `{rule.cause}`\n" in read("docs/explanation/causes.md")
    assert rule.about.endswith(".")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.cause)
def test_every_rule_stands_in_the_reference_with_its_fix_and_its_price(rule) -> None:
    section = read("docs/reference/rules.md").split(f"\n## `{rule.cause}`\n")[1].split("\n## ")[0]
    assert rule.about in section
    for fact in ("reads", "ledger lines", "what-ifs it uses", "its own estimate", "fix", "to confirm", "evidence"):
        told = re.search(rf"^\| {fact} \| (.+) \|$", section, re.MULTILINE)
        assert told is None or told[1].strip("… <br>")
    assert "\n| fix | " in section
    assert "\n| to confirm | " in section
    assert "\n| what-ifs it uses | " in section or "\n| its own estimate | " in section


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.name)
def test_every_change_stands_in_the_reference_with_its_values_and_its_cost(change) -> None:
    section = read("docs/reference/changes.md").split(f"\n## {change.name}\n")[1].split("\n## ")[0]
    assert f"`{change.form}`: {change.about}." in section
    assert f"\n| cost and risk | {change.cost}" in section
    value = re.search(r"^\| value \| (.+) \|$", section, re.MULTILINE)
    assert value is not None
    for word in re.findall(r"[A-Z]+", change.form):
        assert f"`{word}` is " in value[1], (
            f"what {word} of {change.form} is in has no line in scripts/rules_and_changes.py"
        )


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_table_and_column_is_documented(table) -> None:
    section = read("docs/reference/tables.md").split(f"\n## {table.name}\n")[1].split("\n## ")[0]
    assert table.doc in section
    for column in table.columns:
        assert f"| `{column.name}` |" in section
        assert column.doc


@pytest.mark.parametrize("analysis", ANALYSES, ids=lambda analysis: analysis.__name__)
def test_every_analysis_is_documented(analysis) -> None:
    assert f"\n## {analysis.__name__}\n" in read("docs/reference/analyses.md")


def test_every_analysis_file_is_registered() -> None:
    files = {path.stem for path in (ROOT / "src/lostflops/explain/analyze").glob("*.py")} - {"__init__"}
    assert files == {analysis.__module__.rsplit(".", 1)[1] for analysis in ANALYSES}


@pytest.mark.parametrize("line", LINES)
def test_every_line_of_the_ledger_is_explained(line: str) -> None:
    rows = [row for row in read("docs/explanation/ledger.md").splitlines() if row.startswith("|")]
    assert any(f"`{line}`" in row.split("|")[1] for row in rows)


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_every_device_is_listed_with_its_source(device) -> None:
    assert re.search(
        rf"^\| {re.escape(device.name)} \|.*{re.escape(device.source)}", read("docs/reference/devices.md"), re.MULTILINE
    )


def test_every_exit_code_is_documented() -> None:
    assert all(f"\n| {code} | {meaning} |" in read("docs/reference/cli.md") for code, meaning in EXIT_CODES)


@pytest.mark.parametrize("room", sorted(path.parent.name for path in (ROOT / "src/lostflops").glob("*/__init__.py")))
def test_the_architecture_names_every_room(room: str) -> None:
    assert f"`{room}/`" in read("ARCHITECTURE.md")


def test_the_architecture_is_short() -> None:
    assert len(read("ARCHITECTURE.md").encode()) < 8_000


def test_the_changelog_has_an_unreleased_section() -> None:
    assert "\n## [Unreleased]\n" in read("CHANGELOG.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    """As GitHub and the site name headings."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return {
        re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_anchors_lead_somewhere(page: Path) -> None:
    found = re.findall(r"\]\((?!https?://)([^)#]*)#([^)]+)\)", page.read_text(encoding="utf-8"))
    for target, anchor in found:
        other = page.parent / target if target else page
        assert other.suffix != ".md" or anchor in anchors(other), f"{page.name} links to {target}#{anchor}"


def commands(page: Path) -> Iterator[list[str]]:
    """Words of what pages tell to type, up to what belongs to a command of the user's."""
    text = page.read_text(encoding="utf-8")
    blocks = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    lines = [line for line in blocks.splitlines() if re.match(r"\s*(srun .*?)?lostflops ", line)]
    for line in [*lines, *re.findall(r"`(lostflops [^`\n]+)`", text)]:
        own = re.split(r" -- |[|#&;>]", line.partition("lostflops ")[2])[0]
        yield own.replace("'", " ").replace('"', " ").split()


ADDED = ("CONTRIBUTING.md", "syncs")
"""A verb that the walk-through adds; tests/test_contributing.py types it."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_pages_are_commands(page: Path) -> None:
    program: Any = typer.main.get_command(build())
    for verb, *words in commands(page):
        if not re.fullmatch(r"[a-z]+", verb) or (page.name, verb) == ADDED:
            continue
        assert verb in program.commands, f"{page.name}: lostflops {verb}"
        known = {name for one in program.commands[verb].params for name in (*one.opts, *one.secondary_opts)} | {
            "--help"
        }
        asked = {word.partition("=")[0].rstrip(".,:)") for word in words if re.match(r"--?[a-z]", word)}
        assert asked <= known, f"{page.name}: lostflops {verb} has no {asked - known}"


def sql_examples() -> list[str]:
    return re.findall(r"```sql\n(.*?)```", read("docs/how-to/query-a-run.md"), re.DOTALL)


@pytest.mark.parametrize("query", sql_examples())
def test_the_queries_of_the_how_to_run(query: str) -> None:
    from memory_run import MemoryRun

    with MemoryRun() as run:
        assert run.sql(query).fetchall() == []
