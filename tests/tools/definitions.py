#!/usr/bin/env python3
"""Writes the definitions of one Gateway API release, and its licence, into a directory: definitions.py VERSION SUM DIRECTORY.

They come from Go's module cache, or its proxy; SUM is the module's checksum. Go may be too old to build the module, which nobody
asks of it: it fetches and checks the archive all the same.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

MODULE = "sigs.k8s.io/gateway-api"


def fetch(version):
    """Returns what Go says of the module."""
    go = os.environ.get("GO", "go")
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [go, "mod", "download", "-json", f"{MODULE}@{version}"],
            cwd=elsewhere,
            env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod"},
            capture_output=True,
            text=True,
            check=False,
        )
    try:
        module = json.loads(done.stdout)
    except json.JSONDecodeError:
        sys.exit(f"{MODULE} {version} cannot be fetched: {done.stderr.strip() or done.stdout.strip()}")
    if "Zip" not in module or "Sum" not in module:
        sys.exit(f"{MODULE} {version} cannot be fetched: {module.get('Error') or done.stderr.strip()}")
    return module


def main():
    """Fetches, checks and unpacks."""
    version, checksum, directory = sys.argv[1:]
    module = fetch(version)
    if module["Sum"] != checksum:
        sys.exit(f"{MODULE} {version} has the checksum {module['Sum']}; expected {checksum}")
    directory = pathlib.Path(directory)
    new = directory.with_name(directory.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    module_root = f"{MODULE}@{version}/"
    start = f"{module_root}config/crd/"
    with zipfile.ZipFile(module["Zip"]) as archive:
        new.mkdir(parents=True)
        (new / "LICENSE").write_bytes(archive.read(f"{module_root}LICENSE"))
        for name in archive.namelist():
            inside = pathlib.PurePosixPath(name.removeprefix(start))
            if not name.startswith(start) or name.endswith("/") or ".." in inside.parts:
                continue
            target = new / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))
    shutil.rmtree(directory, ignore_errors=True)
    new.rename(directory)


if __name__ == "__main__":
    main()
