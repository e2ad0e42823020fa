#!/usr/bin/env python3
"""Checks finished images: check.py DIRECTORY REVISION. Runs them with runc, as root, without a network.

Programs for another architecture run in an emulator, if one is installed. Checks that need containers run only for this
machine's architecture. Prints each problem with its image, and then exits with 1.
"""

import glob
import hashlib
import io
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile

CAPABILITY = "SCHILY.xattr.security.capability"
NET_BIND_SERVICE = b"\x01\x00\x00\x02\x00\x04\x00\x00" + b"\0" * 12
# Static emulators from Debian's qemu-user-static, which run programs for another architecture.
EMULATORS = {"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}
SHELL = re.compile(r"(^|/)(ba|da|z|c|k|fi)?sh$|(^|/)busybox$")
failures = 0


def check(what, is_so, seen=""):
    global failures
    if not is_so:
        failures += 1
        print(f"wrong: {what}: {seen}", file=sys.stderr)


class Opened:
    """An image archive with verified digests, and the files that result from its layers."""

    def __init__(self, path, arch):
        with tarfile.open(path) as tar:
            self.files = {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}
        for name, content in self.files.items():
            if name.startswith("blobs/sha256/"):
                check(f"{path}: {name}", name.endswith(hashlib.sha256(content).hexdigest()), "another content")
        self.top = json.loads(self.files["index.json"])["manifests"][0]
        descriptor = self.top
        if "index" in descriptor["mediaType"]:
            found = json.loads(self.blob(descriptor))["manifests"]
            descriptor = next(one for one in found if one["platform"]["architecture"] == arch)
        self.manifest = json.loads(self.blob(descriptor))
        self.config = json.loads(self.blob(self.manifest["config"]))["config"]
        self.entries, self.contents = {}, {}
        for layer in self.manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(self.blob(layer))) as tar:
                for entry in tar:
                    self.entries[entry.name] = entry
                    if entry.isfile():
                        self.contents[entry.name] = tar.extractfile(entry).read()

    def blob(self, descriptor):
        return self.files["blobs/" + descriptor["digest"].replace(":", "/")]

    def unpack(self, root):
        """Writes the files as a container would see them."""
        for path, entry in self.entries.items():
            to = os.path.join(root, path)
            if entry.isdir():
                os.makedirs(to, exist_ok=True)
            elif entry.issym():
                os.symlink(entry.linkname, to)
            else:
                with open(to, "wb") as file:
                    file.write(self.contents[path])
            os.lchown(to, entry.uid, entry.gid)
            if not entry.issym():
                os.chmod(to, entry.mode)
            if CAPABILITY in entry.pax_headers:
                value = entry.pax_headers[CAPABILITY].encode()
                os.setxattr(to, "security.capability", value)


def write_bundle(bundle, image, arguments, needs_capability, namespaces, mounts):
    """Writes the configuration to run the image's program in BUNDLE/root: as its user, read-only, without new privileges,
    and with no capability except, if needed, the one for low ports."""
    capabilities = ["CAP_NET_BIND_SERVICE"] if needs_capability else []
    user, group = (int(number) for number in image.config["User"].split(":"))
    sets = {name: capabilities for name in ("bounding", "permitted", "effective")}
    with open(os.path.join(bundle, "config.json"), "w", encoding="utf-8") as file:
        json.dump({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": user, "gid": group},
                "args": arguments,
                "env": image.config["Env"],
                "cwd": image.config["WorkingDir"],
                "capabilities": sets,
                "noNewPrivileges": True,
            },
            "root": {"path": os.path.join(bundle, "root"), "readonly": True},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                *mounts,
            ],
            "linux": {"namespaces": [{"type": name} for name in ("mount", "ipc", "uts", *namespaces)]},
        }, file)


def run(image, root, arguments, needs_capability=True):
    """Runs a program of the image on its own until it exits."""
    bundle = os.path.dirname(root)
    if os.path.exists(os.path.join(root, "emulator")):
        arguments = ["/emulator", *arguments]
    write_bundle(bundle, image, arguments, needs_capability, ("pid", "network"), [])
    name = f"sesame-image-check-{os.getpid()}"
    command = ["runc", "--root", os.path.join(bundle, "state"), "run", "--bundle", bundle, name]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


def examine(name, path, arch, version, revision, emulator=""):
    """Inspects an image and runs its programs. For another architecture, uses `emulator`, or runs nothing if it is None."""
    image = Opened(path, arch)
    with open("/etc/passwd", "rb") as file:
        host = file.read()
    labels = image.config["Labels"]
    check(f"{name}: user", re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", image.config["User"]), image.config["User"])
    for label in ("version", "revision", "title", "source", "licenses", "created"):
        check(f"{name}: label {label}", labels.get(f"org.opencontainers.image.{label}"), labels)
    check(f"{name}: label revision", labels["org.opencontainers.image.revision"] == revision, labels)
    for entry in image.entries.values():
        check(f"{name}: no shell", not SHELL.search(entry.name), entry.name)
        check(f"{name}: no setuid program", not entry.mode & (stat.S_ISUID | stat.S_ISGID), entry.name)
        others = entry.isfile() and entry.mode & 0o022
        check(f"{name}: nothing that others may write", not others, entry.name)
    check(f"{name}: no user of the machine", image.contents.get("etc/passwd") != host)
    for program in ("usr/bin/sesame-agent", "usr/lib/sesame/envoy"):
        if program in image.entries:
            value = image.entries[program].pax_headers.get(CAPABILITY, "").encode()
            check(f"{name}: capability of {program}", value == NET_BIND_SERVICE, value)
    with tempfile.TemporaryDirectory() as bundle:
        root = os.path.join(bundle, "root")
        os.mkdir(root)
        image.unpack(root)
        if emulator:
            shutil.copy(emulator, os.path.join(root, "emulator"))
        if emulator is None:
            print(f"NOT RUN: {name}: {EMULATORS[arch]} not found (Debian: qemu-user-static)", file=sys.stderr)
            return
        runs(name, image, root, version, revision)


def runs(name, image, root, version, revision):
    """Runs each program in the image. No library may be missing, and each program must report its version."""
    entrypoint = image.config["Entrypoint"]
    capability = not name.startswith("sesame-controller")
    seen = run(image, root, [*entrypoint, "--version"], capability)
    words = seen.stdout + seen.stderr
    check(f"{name}: --version", seen.returncode == 0 and version in words and revision[:12] in words, words)
    if "usr/lib/sesame/envoy" in image.entries:
        envoy = image.config["Labels"]["io.projectsesame.envoy.version"]
        seen = run(image, root, ["/usr/lib/sesame/envoy", "--version"])
        check(f"{name}: envoy --version", f"/{envoy}/" in seen.stdout, seen.stdout + seen.stderr)
    if not capability:
        seen = run(image, root, ["/usr/bin/kubectl-sesame", "--version"], capability)
        check(f"{name}: kubectl-sesame --version", seen.returncode == 0 and version in seen.stdout, seen.stdout + seen.stderr)
        seen = run(image, root, ["/usr/bin/kubectl_complete-sesame", "ex"], capability)
        check(f"{name}: kubectl_complete-sesame", seen.stdout == "explain\n:4\n", seen.stdout + seen.stderr)
    loader = next(path for path in image.entries if re.fullmatch(r"lib(64)?/ld-linux-[^/]*", path))
    for program in sorted(path for path in image.contents if path.startswith(("usr/bin/", "usr/lib/sesame/"))):
        seen = run(image, root, ["/" + loader, "--list", "/" + program], False)
        whole = seen.returncode == 0 and "not found" not in seen.stdout
        check(f"{name}: libraries of {program}", whole, seen.stdout + seen.stderr)


def named(image):
    """Checks that all references to the image in the manifests use this tag."""
    deploy = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../controller/deploy")
    name, tag = image.rsplit(":", 1)
    seen = []
    for path in glob.glob(os.path.join(deploy, "**/*.yaml"), recursive=True):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        seen += re.findall(rf"image: {name}:(\S+)", text) + re.findall(rf"newName: {name}\n *newTag: (\S+)", text)
    check(f"tags of {name} in controller/deploy", set(seen) == {tag}, f"{sorted(set(seen))} instead of {tag}")


def archive_of(directory, name, arch):
    """Returns the archive of an image for an architecture."""
    found = glob.glob(os.path.join(directory, f"{name}_*_*{arch}*.oci.tar"))
    if len(found) != 1:
        sys.exit(f"wrong: {name}: {len(found)} archives in {directory}")
    return found[0]


def main():
    directory, revision = sys.argv[1:]
    if os.geteuid() != 0:
        sys.exit("error: images are run as root; `sudo make images-check`")
    arch = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()
    for name in ("sesame-agent", "sesame-envoy", "sesame-controller"):
        path = archive_of(directory, name, arch)
        version = os.path.basename(path).split("_")[1].split("-")[-1]
        examine(name, path, arch, version, revision)
        for other in EMULATORS:
            bills = glob.glob(os.path.join(directory, f"{name}_*_{other}.cdx.json"))
            if other != arch and bills:
                examine(f"{name} ({other})", path, other, version, revision, shutil.which(EMULATORS[other]))
    with open(os.path.join(directory, "digests"), encoding="utf-8") as file:
        for line in file:
            named(line.split()[1])
    # Use separate network and process namespaces, so that all processes end with the command.
    served = subprocess.run(
        ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", os.path.join(os.path.dirname(__file__), "serve.py"),
         archive_of(directory, "sesame-agent", arch), archive_of(directory, "sesame-envoy", arch), arch],
        check=False,
    )
    check("the agent and its Envoy serve", served.returncode == 0, f"status {served.returncode}")
    if failures:
        sys.exit(1)
    print("all image checks passed")


if __name__ == "__main__":
    main()
