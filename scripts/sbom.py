"""Write the SBOM of a wheel: everything that `pip install 'lostflops[all]'` brings, and what the web UI includes.

    python scripts/sbom.py dist/lostflops-0.1.0-py3-none-any.whl dist/lostflops-0.1.0.cdx.json

Installs the wheel with its extras from locks/runtime.txt, checks the licences, and writes CycloneDX 1.6 as JSON,
without time and serial number. Run it with what `pip install --require-hashes -r locks/release.txt` installs.
"""

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from licences import ROOT, bundled


def make_environment(folder: Path, wheel: Path) -> Path:
    """Install the wheel and the locked distributions; return the interpreter."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*install, "--require-hashes", "--requirement", ROOT / "locks" / "runtime.txt"], check=True)
    subprocess.run([*install, wheel], check=True)
    subprocess.run([python, "-m", "pip", "check"], check=True, stdout=sys.stderr)
    subprocess.run([python, ROOT / "scripts" / "licences.py"], check=True, stdout=sys.stderr)
    subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", "pip", "setuptools"], check=True)
    return python


def describe(python: Path) -> dict:
    """Return the SBOM of an environment, about lostflops."""
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--spec-version", "1.6"]
    done = subprocess.run([*command, python], check=True, capture_output=True, text=True)
    sbom = json.loads(done.stdout)
    (own,) = [component for component in sbom["components"] if component["name"] == "lostflops"]
    own.pop("externalReferences", None)  # the path of the wheel on this machine
    sbom["components"].remove(own)
    sbom["metadata"]["component"] = own | {"type": "application"}
    return sbom


def add_bundled(sbom: dict) -> None:
    """Add what the bundle of the web UI includes."""
    references = []
    for name, entry in bundled().items():
        reference = f"pkg:npm/{name}@{entry['version']}"
        licence = {"license": {"id": entry["license"], "acknowledgement": "declared"}}
        component = {"type": "library", "name": name, "version": entry["version"], "licenses": [licence]}
        sbom["components"].append(component | {"bom-ref": reference, "purl": reference})
        sbom["dependencies"].append({"ref": reference})
        references.append(reference)
    own = sbom["metadata"]["component"]["bom-ref"]
    (depends,) = [entry for entry in sbom["dependencies"] if entry["ref"] == own]
    depends["dependsOn"] = sorted({*depends.get("dependsOn", ()), *references})


def validate(text: str) -> None:
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415 (a test reads this file without it)
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415

    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"the SBOM does not fit the schema of CycloneDX 1.6: {error}")


def main(wheel: str, out: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sbom = describe(make_environment(Path(folder), Path(wheel).resolve()))
    add_bundled(sbom)
    text = json.dumps(sbom, indent=2, sort_keys=True) + "\n"
    validate(text)
    Path(out).write_text(text, "utf-8")
    print(f"{out}: {len(sbom['components'])} components")


if __name__ == "__main__":
    main(*sys.argv[1:])
