#!/usr/bin/env python3
"""Collects the licenses of all crates in the programs: licences.py WORKSPACE FILE. Shared texts are included only once."""

import os
import re
import sys

from sbom import Crates

_NAMES = re.compile(r"(licen[cs]e|copying|notice|unlicense|copyright)", re.IGNORECASE)
_LINE = "=" * 80


def _texts(package):
    """Returns the license texts in a crate."""
    directory, found = os.path.dirname(package["manifest_path"]), []
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if _NAMES.match(name) and os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                found.append(file.read().strip())
    return found


def collect(crates, names):
    """Returns the licenses of all third-party crates that these crates depend on."""
    shared = {}
    for key in set().union(*(crates.reached(name) for name in names)):
        package = crates.packages[key]
        if package["source"] is None:
            continue
        title = f"{package['name']} {package['version']} ({package['license'] or 'see below'})"
        for text in _texts(package) or [""]:
            shared.setdefault(text, set()).add(title)
    entries = sorted((sorted(titles), text) for text, titles in shared.items())
    return "".join(f"{_LINE}\n" + "\n".join(titles) + f"\n{_LINE}\n\n{text}\n\n" for titles, text in entries)


def main():
    workspace, out = sys.argv[1:]
    crates = Crates(workspace, "amd64", os.environ.get("CARGO", "cargo"))
    with open(out, "w", encoding="utf-8") as file:
        file.write(collect(crates, ["sesame-agent", "sesame-controller"]))


if __name__ == "__main__":
    main()
