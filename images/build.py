#!/usr/bin/env python3
"""Builds the images from existing programs. Called by build.sh, which documents the programs.

The images are written directly as tars and JSON, so a build needs neither a container runtime nor root. The same input
always produces the same bytes.
"""

import argparse
import datetime
import json
import os
import re

import base
import licences
import provenance
import sbom
from layers import CAP_NET_BIND_SERVICE, USER, Image, Layer, Tree, archive, digest

HERE = os.path.dirname(os.path.abspath(__file__))
WORKSPACE = os.path.dirname(HERE)
SOURCE = "https://projectsesame.io"
# A placeholder, not a registry. To push the images, use your registry's name.
REGISTRY = "localhost"
TITLES = {
    "sesame-agent": "Sesame agent: turns Gateway API objects into the files that Envoy watches",
    "sesame-envoy": "Envoy, and the launcher that starts it for a Sesame agent",
    "sesame-controller": "Sesame controller: resolves the Gateways of a cluster and publishes them for agents",
}
PROGRAM, ENVOY = "usr/bin/{}", "usr/lib/sesame/envoy"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, help="directory of the archives")
    parser.add_argument("--stage", action="append", required=True, metavar="ARCH=DIRECTORY",
                        help="programs for a processor, and Debian packages for its base in debs/")
    parser.add_argument("--epoch", type=int, required=True, help="time of everything in the images, in Unix seconds")
    parser.add_argument("--revision", required=True)
    parser.add_argument("--envoy-version", required=True)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--level", type=int, default=6, help="how much to compress, 1 to 9")
    parser.add_argument("--base", help="image archive or root file system to use instead of Debian packages")
    parser.add_argument("--builder", default=f"{SOURCE}/build/make")
    return parser.parse_args()


def main():
    options = arguments()
    os.makedirs(options.out, exist_ok=True)
    stages = dict(stage.split("=", 1) for stage in options.stage)
    if options.base and len(stages) > 1 and not base.is_image(options.base):
        raise SystemExit(f"{options.base} is a file system for one processor; build one image at a time, or give an image archive")
    with open(os.path.join(WORKSPACE, "Cargo.toml"), encoding="utf-8") as file:
        version = re.search(r'^version = "(.*)"', file.read(), re.MULTILINE).group(1)
    parts = {arch: Parts(arch, stage, options) for arch, stage in sorted(stages.items())}
    tags = {
        "sesame-agent": version,
        "sesame-envoy": f"{options.envoy_version}-{version}",
        "sesame-controller": version,
    }
    digests = {}
    for image, tag in tags.items():
        labels = {
            "org.opencontainers.image.title": image,
            "org.opencontainers.image.description": TITLES[image],
            "org.opencontainers.image.version": tag,
            "org.opencontainers.image.revision": options.revision,
            "org.opencontainers.image.source": SOURCE,
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.created": created(options),
        }
        if image != "sesame-controller":
            labels["io.projectsesame.envoy.version"] = options.envoy_version
        name = f"{REGISTRY}/{image}:{tag}"
        file = f"{image}_{tag}_{'-'.join(parts)}"
        images = [part.image(image, labels, options) for part in parts.values()]
        path = os.path.join(options.out, f"{file}.oci.tar")
        digests[name] = archive(path, name, images, labels, options.epoch)
        for part, built in zip(parts.values(), images, strict=True):
            write(options.out, f"{image}_{tag}_{part.arch}.cdx.json", part.bill(image, tag, digest(built.manifest)))
        print(f"{digests[name]}  {path}")
    materials = {name: found for part in parts.values() for name, found in part.materials().items()}
    parameters = {"profile": options.profile, "architectures": list(parts)}
    write(options.out, "provenance.json",
          provenance.statement(digests, options.revision, parameters, materials, options.builder))
    with open(os.path.join(options.out, "digests"), "w", encoding="utf-8") as file:
        file.writelines(f"{found}  {name}\n" for name, found in digests.items())


class Parts:
    """The input for the images of one architecture."""

    def __init__(self, arch, stage, options):
        self.arch = arch
        self.envoy_version = options.envoy_version
        if options.base:
            self.base = base.of_archive(options.base, arch, options.level)
        else:
            self.base = base.of_packages(os.path.join(stage, "debs"), options.epoch, options.level)
        self.programs = {}
        for name in ("envoy", "sesame-agent", "sesame-controller"):
            with open(os.path.join(stage, name), "rb") as file:
                self.programs[name] = file.read()
        self.crates = sbom.Crates(WORKSPACE, arch, os.environ.get("CARGO", "cargo"))
        self.layers = {
            "envoy": self._layer(ENVOY, "envoy", "sesame-envoy", options),
            "sesame-agent": self._layer(PROGRAM.format("sesame-agent"), "sesame-agent", "sesame-agent", options),
            "sesame-controller": self._layer(PROGRAM.format("sesame-controller"), "sesame-controller", "sesame-controller", options),
        }

    def _layer(self, path, program, package, options):
        tree = Tree(options.epoch)
        # Envoy binds listener ports. The launcher needs the capability to pass it to Envoy, and the
        # agent needs it to hold ports while an Envoy is replaced. The controller does not bind
        # ports below 1024.
        capability = None if program == "sesame-controller" else CAP_NET_BIND_SERVICE
        tree.file(path, self.programs[program], 0o755, capability)
        if program == "sesame-controller":
            # kubectl finds plugins and their completion programs by these names.
            for name in ("kubectl-sesame", "kubectl_complete-sesame"):
                tree.link(PROGRAM.format(name), program)
        if program == "sesame-agent":
            tree.directory("run/sesame", 0o700, USER)
            tree.directory("var/lib/sesame", 0o700, USER)
        with open(os.path.join(WORKSPACE, "systemd/packages/copyright"), encoding="utf-8") as file:
            text = file.read().replace("@NAME@", package)
        ours = program != "envoy"
        text = text.replace("@SOURCE@", SOURCE if ours else "https://github.com/envoyproxy/envoy")
        text = text.replace("@HOLDER@", "The Sesame authors" if ours else "The Envoy project authors")
        tree.file(f"usr/share/doc/{package}/copyright", text.encode())
        if ours:
            tree.file(f"usr/share/doc/{package}/crates", licences.collect(self.crates, [program]).encode())
        with open(os.path.join(WORKSPACE, "LICENSE"), "rb") as file:
            tree.file("usr/share/doc/sesame/LICENSE", file.read())
        return Layer.of(tree.tar(), options.level)

    def image(self, name, labels, options):
        if name == "sesame-controller":
            programs = ["sesame-controller"]
        else:
            # The agent needs an Envoy to validate each configuration. The two images share their
            # layers and differ only in their command.
            programs = ["envoy", "sesame-agent"]
        config = {
            **self.base.config,
            "User": f"{USER}:{USER}",
            "Entrypoint": ["/" + PROGRAM.format(programs[-1])],
            "Cmd": {"sesame-agent": ["run"], "sesame-envoy": ["launcher"], "sesame-controller": ["run"]}[name],
            # Container runtimes collect logs from standard output.
            "Env": ["PATH=/usr/lib/sesame:/usr/bin", *(["SESAME_ACCESS_LOG=stdout"] if programs[-1] == "sesame-agent" else [])],
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
        }
        layers = [*self.base.layers, *(self.layers[program] for program in programs)]
        history = ["base"] * len(self.base.layers) + programs
        return Image(layers, self.arch, config, created(options), labels, history)

    def bill(self, image, version, image_digest):
        components = [sbom.debian(package) for package in self.base.packages]
        incomplete = []
        if image != "sesame-controller":
            envoy = sbom.envoy(self.envoy_version, digest(self.programs["envoy"]).removeprefix("sha256:"))
            components.append(envoy)
            incomplete.append(envoy["bom-ref"])
        crates, needs = self.crates.of("sesame-controller" if image == "sesame-controller" else "sesame-agent")
        return sbom.document(image, version, image_digest, components + crates, needs, incomplete)

    def materials(self):
        found = {f"{name} ({self.arch})": digest(content) for name, content in self.programs.items()}
        found[f"base ({self.arch})"] = self.base.source
        with open(os.path.join(WORKSPACE, "Cargo.lock"), "rb") as file:
            found["Cargo.lock"] = digest(file.read())
        return found


def created(options):
    """Returns the images' timestamp in the format of RFC 3339."""
    return datetime.datetime.fromtimestamp(options.epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write(directory, name, value):
    with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main()
