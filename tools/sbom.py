#!/usr/bin/env python3
"""Writes the bill of materials of the program, in the format CycloneDX 1.5: `sbom.py [--out FILE] [--features mpi,…] [--target TRIPLE]`.

Every package that the program is built from (`cargo tree`, with macros and build scripts, without tests), with its version, licence,
source and the SHA-256 of `Cargo.lock`. Equal lock files give equal bytes. Needs Python 3.11 and cargo; no network where the packages
have been fetched (add `--offline`).
"""
import argparse
import json
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "crossfade-cli"
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


def cargo(*words):
    done = subprocess.run(["cargo", *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"cargo {' '.join(words)}:\n{done.stderr}")
    return done.stdout


def packages(args):
    """Names and versions of what the program is built from, as cargo selects features for it."""
    words = ["tree", "--locked", "--package", PROGRAM, "--edges", "normal,build", "--prefix", "none", "--format", "{p}"]
    words += ["--features", args.features] if args.features else []
    words += ["--target", args.target] if args.target else []
    words += ["--offline"] if args.offline else []
    lines = [line.split() for line in cargo(*words).splitlines() if line.strip()]
    return sorted({(line[0], line[1].removeprefix("v")) for line in lines})


def reference(name, version):
    return f"pkg:cargo/{name}@{version}"


def licence(package, clarified):
    """As an SPDX expression. Older packages write a slash for "or"."""
    stated = package["license"] or clarified.get(package["name"])
    if stated is None:
        sys.exit(f"{package['name']} {package['version']} states no licence; add it to [[licenses.clarify]] of deny.toml")
    return " ".join(stated.replace("/", " OR ").split())


def component(package, locked, clarified):
    name, version = package["name"], package["version"]
    found = {
        "type": "library",
        "bom-ref": reference(name, version),
        "name": name,
        "version": version,
        "scope": "required",
        "licenses": [{"expression": licence(package, clarified)}],
        "purl": reference(name, version),
    }
    checksum = locked.get((name, version), {}).get("checksum")
    if checksum:
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["source"] == REGISTRY:
        url = f"https://static.crates.io/crates/{name}/{name}-{version}.crate"
        found["externalReferences"] = [{"type": "distribution", "url": url}]
    elif package["source"] is not None:
        sys.exit(f"{name} {version} comes from {package['source']}, which is not crates.io")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the file; standard output without it")
    parser.add_argument("--features", help="features of the program, with commas between them")
    parser.add_argument("--target", help="the platform [default: this one]")
    parser.add_argument("--offline", action="store_true", help="let cargo fetch nothing")
    args = parser.parse_args()

    lock = (ROOT / "Cargo.lock").read_bytes()
    locked = {(p["name"], p["version"]): p for p in tomllib.loads(lock.decode())["package"]}
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    clarified = {entry["crate"]: entry["expression"] for entry in rules["licenses"].get("clarify", [])}
    words = ["metadata", "--locked", "--format-version", "1"] + (["--offline"] if args.offline else [])
    # Without a platform, cargo would ask for the packages of all of them.
    host = next(line.split()[1] for line in cargo("-vV").splitlines() if line.startswith("host: "))
    known = json.loads(cargo(*words, "--filter-platform", args.target or host))
    of = {(p["name"], p["version"]): p for p in known["packages"]}
    found = packages(args)
    names = {p["id"]: (p["name"], p["version"]) for p in known["packages"]}
    edges = {names[node["id"]]: sorted(names[dep["pkg"]] for dep in node["deps"]) for node in known["resolve"]["nodes"]}

    components = [component(of[package], locked, clarified) for package in found]
    root = next(part for part in components if part["name"] == PROGRAM)
    components.remove(root)
    bill = {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, lock.decode() + repr(found))}",
        "version": 1,
        "metadata": {"component": root | {"type": "application"}},
        "components": components,
        "dependencies": [
            {"ref": reference(*package), "dependsOn": [reference(*dep) for dep in edges[package] if dep in set(found)]}
            for package in found
        ],
    }
    text = json.dumps(bill, indent=1, ensure_ascii=False) + "\n"
    if args.out:
        args.out.write_text(text)
        print(f"{len(components) + 1} packages in {args.out}", file=sys.stderr)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
