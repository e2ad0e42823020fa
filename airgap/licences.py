#!/usr/bin/env python3
"""Collects the licences of the crates in the programs: licences.py WORKSPACE FILE. Texts that several share are there once."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../images"))
sys.dont_write_bytecode = True

from sbom import Crates  # noqa: E402

_NAMES = re.compile(r"(licen[cs]e|copying|notice|unlicense|copyright)", re.IGNORECASE)


def texts(package):
    directory = os.path.dirname(package["manifest_path"])
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if _NAMES.match(name) and os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                yield file.read().strip()


def main():
    workspace, out = sys.argv[1:]
    crates = Crates(workspace, "amd64", os.environ.get("CARGO", "cargo"))
    shared = {}
    for key in crates.reached("sesame-agent") | crates.reached("sesame-controller"):
        package = crates.packages[key]
        if package["source"] is None:
            continue
        title = f"{package['name']} {package['version']} ({package['license'] or 'see below'})"
        for text in list(texts(package)) or [""]:
            shared.setdefault(text, set()).add(title)
    line = "=" * 80
    with open(out, "w", encoding="utf-8") as file:
        for titles, text in sorted((sorted(titles), text) for text, titles in shared.items()):
            file.write(f"{line}\n" + "\n".join(titles) + f"\n{line}\n\n{text}\n\n")


if __name__ == "__main__":
    main()
