#!/usr/bin/env python3
"""Sets the version of a release, and checks that every file agrees on it.

    release.py set VERSION     writes VERSION everywhere, and dates its section of the changelog
    release.py check VERSION   fails if a file contains another version, or the changelog has no section for VERSION
    release.py notes VERSION   prints that section
"""

import datetime
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
CHANGELOG = TOP / "CHANGELOG.md"
SEMVER = re.compile(r"(\d+)\.(\d+)\.(\d+)")
# Excludes conformance reports, which contain the tested version, and upgrades.md, which contains a
# later one.
PLACES = ["Cargo.toml", "README.md", "controller/deploy", "docs", ":!docs/conformance", ":!docs/upgrades.md", ":!*.png"]
# A Sesame version in Cargo.toml, the chart, or the name of an image or archive.
MENTION = re.compile(
    r'(?:^version = "|^(?:version|appVersion): |\btag: (?:[\d.]+-)?|\bnewTag: (?:[\d.]+-)?|\*\*State:\*\* version '
    r"|\bsesame(?:-[a-z]+)?[:_-](?:\d[\d.]*\d-)?)(\d+\.\d+\.\d+)\b(?![-.]?\d)",
    re.MULTILINE,
)


def fail(message):
    sys.exit(f"release: {message}")


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=TOP, check=True, capture_output=True, text=True).stdout


def current():
    found = re.search(r'^version = "([^"]+)"', (TOP / "Cargo.toml").read_text(), re.MULTILINE)
    return found.group(1)


def mentions():
    """Yields each file that contains a version of Sesame, with its text and the matches."""
    for name in git("ls-files", "--", *PLACES).split():
        text = (TOP / name).read_text()
        found = list(MENTION.finditer(text))
        if found:
            yield name, text, found


def section(version):
    """Returns the changelog's section for a version, without its heading, or None."""
    found = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## \[|\Z)", CHANGELOG.read_text(), re.MULTILINE | re.DOTALL
    )
    return found and found.group(1).strip()


def set_version(version):
    if git("status", "--porcelain"):
        fail("the working tree has changes: commit or stash them first")
    old = tuple(map(int, SEMVER.fullmatch(current()).groups()))
    if tuple(map(int, SEMVER.fullmatch(version).groups())) < old:
        fail(f"{version} is older than {current()}, which Cargo.toml has")
    if not section("Unreleased"):
        fail("CHANGELOG.md: the section [Unreleased] is empty: say what users will notice")
    if section(version):
        fail(f"CHANGELOG.md already has a section [{version}]")
    for name, text, found in mentions():
        for match in reversed(found):
            text = text[: match.start(1)] + version + text[match.end(1) :]
        (TOP / name).write_text(text)
    heading = f"## [Unreleased]\n\n## [{version}] - {datetime.date.today().isoformat()}"
    CHANGELOG.write_text(CHANGELOG.read_text().replace("## [Unreleased]", heading, 1))
    subprocess.run(["cargo", "update", "--workspace", "--offline", "--quiet"], cwd=TOP, check=True)
    check(version)
    print(git("diff", "--stat"), end="")
    print(f"Read the diff, then:\n  git commit -am 'release: {version}' && git tag -s v{version} -m {version}")


def check(version):
    wrong = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group(1)}"
        for name, text, found in mentions()
        for match in found
        if match.group(1) != version
    ]
    if current() != version:
        wrong.insert(0, f"Cargo.toml: {current()}")
    if not section(version):
        wrong.append(f"CHANGELOG.md: no section [{version}]")
    locked = subprocess.run(
        ["cargo", "metadata", "--locked", "--offline", "--format-version=1", "--no-deps"], cwd=TOP, capture_output=True
    )
    if locked.returncode:
        wrong.append("Cargo.lock: out of date")
    if wrong:
        fail(f"expected {version} everywhere, but found:\n  " + "\n  ".join(wrong))


def notes(version):
    print(section(version) or fail(f"CHANGELOG.md: no section [{version}]"))


def main():
    commands = {"set": set_version, "check": check, "notes": notes}
    if len(sys.argv) != 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    if not SEMVER.fullmatch(sys.argv[2]):
        fail(f"version {sys.argv[2]!r}: expected X.Y.Z, as in 0.2.0")
    commands[sys.argv[1]](sys.argv[2])


if __name__ == "__main__":
    main()
