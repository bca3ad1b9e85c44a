"""Check the licences of installed distributions, or write NOTICE.

Without arguments: fail unless every distribution of this environment that a lock names has an allowed licence. It is
read from installed metadata; where it is unknown or not allowed, REVIEWED must give a reason.
With --notice: write NOTICE, the licence texts of what the bundle of the web UI includes (`npm ci` in ui/ first).
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

ROOT = Path(__file__).parent.parent

# Licences of packages that we may use and ship with Apache-2.0. MPL-2.0 is about changed files: we change no package.
ALLOWED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0",
    "CNRI-Python", "ISC", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib",
}  # fmt: skip
# How older metadata and classifiers call them.
NAMES = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}
# Reviewed by hand: the reason why a distribution may be used although its metadata does not say so.
REVIEWED = {
    "atheris": "its file LICENSE is the Apache License 2.0",
    "docutils": "public domain or BSD; the GPL is that of a file for Emacs, which is not installed",
}
_CANONICAL = {name.lower(): name for name in ALLOWED} | {name.lower(): licence for name, licence in NAMES.items()}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked_names(lock: Path) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", lock.read_text("utf-8"), re.MULTILINE))


def stated_licence(distribution: Distribution) -> str:
    """Return the licence as an SPDX expression, as far as the metadata has it; empty where it is not stated."""
    metadata = distribution.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [entry.split(" :: ") for entry in metadata.get_all("Classifier", [])]
    names = [
        entry[-1]
        for entry in classifiers
        if entry[0] == "License" and entry[-1] not in ("DFSG approved", "OSI Approved")
    ]
    text = (metadata.get("License") or "").strip()
    return " AND ".join(names) or (text if "\n" not in text else "")


def is_allowed(expression: str) -> bool:
    """Return whether all licences of an SPDX expression are allowed, or one of alternatives."""
    if "(" in expression and " OR " in expression:  # nested: read by a person
        return _CANONICAL.get(expression.lower()) is not None
    if expression.lower() in _CANONICAL:
        return True
    return any(all(part.lower() in _CANONICAL for part in one.split(" AND ")) for one in expression.split(" OR "))


def problems(installed: Iterator[Distribution], names: set[str]) -> list[str]:
    found = []
    for distribution in sorted(installed, key=lambda entry: normal(entry.name)):
        name = normal(distribution.name)
        licence = stated_licence(distribution)
        if name in names and name not in REVIEWED and not (licence and is_allowed(licence)):
            found.append(f"{name} {distribution.version}: {licence or 'no licence stated'}")
    return found


def bundled() -> dict[str, dict[str, str]]:
    """Return the entries of ui/package-lock.json that may be in the bundle: all but those of the build."""
    packages = json.loads((ROOT / "ui" / "package-lock.json").read_text("utf-8"))["packages"]
    return {
        path.removeprefix("node_modules/"): entry
        for path, entry in sorted(packages.items())
        if path and not entry.get("dev") and not entry.get("devOptional")
    }


def notice(modules: Path) -> str:
    """Return the text of NOTICE: packages with the same licence text are listed together."""
    texts: dict[str, list[str]] = {}
    for name, entry in bundled().items():
        text = (modules / name / "LICENSE").read_text("utf-8").strip()
        texts.setdefault(text, []).append(f"{name} {entry['version']} ({entry['license']})")
    head = "The bundle of the web UI (lostflops/show/report/assets/app.js) includes parts of these packages."
    return head + "\n" + "".join(f"\n{', '.join(names)}:\n\n{text}\n" for text, names in texts.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--notice", action="store_true", help="write NOTICE from ui/node_modules")
    if parser.parse_args().notice:
        (ROOT / "NOTICE").write_text(notice(ROOT / "ui" / "node_modules"), "utf-8")
        return
    names = {name for lock in (ROOT / "locks").glob("*.txt") for name in locked_names(lock)}
    if found := problems(distributions(), names):
        sys.exit("licences to review:\n" + "\n".join(found))
    installed = {normal(entry.name) for entry in distributions()}
    print(f"{len(installed & names)} distributions have an allowed licence")


if __name__ == "__main__":
    main()
