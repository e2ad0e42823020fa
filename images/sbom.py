"""Bills of materials in the CycloneDX format: crates, Debian packages and Envoy, each with its digest."""

import json
import subprocess
import tomllib
import uuid

_TRIPLES = {"amd64": "x86_64-unknown-linux-gnu", "arm64": "aarch64-unknown-linux-gnu"}


class Crates:
    """The workspace's crates and their runtime dependencies, in the versions that `Cargo.lock` pins."""

    def __init__(self, workspace, arch, cargo="cargo"):
        command = [cargo, "metadata", "--locked", "--format-version=1", "--filter-platform", _TRIPLES[arch]]
        output = subprocess.run(command, cwd=workspace, check=True, capture_output=True).stdout
        metadata = json.loads(output)
        self.packages = {package["id"]: package for package in metadata["packages"]}
        self.needs = {
            node["id"]: sorted(
                dependency["pkg"]
                for dependency in node["deps"]
                if any(kind["kind"] is None for kind in dependency["dep_kinds"])
            )
            for node in metadata["resolve"]["nodes"]
        }
        with open(f"{workspace}/Cargo.lock", "rb") as file:
            locked = tomllib.load(file)["package"]
        self.checksums = {(crate["name"], crate["version"]): crate.get("checksum") for crate in locked}

    def reached(self, name):
        """Returns the identifiers of a crate and all its dependencies."""
        root = next(key for key, package in self.packages.items() if package["name"] == name)
        seen, left = set(), [root]
        while left:
            key = left.pop()
            if key not in seen:
                seen.add(key)
                left.extend(self.needs[key])
        return seen

    def of(self, name):
        """Returns the components of a crate and all its dependencies, and the edges between them."""
        seen = self.reached(name)
        components = sorted((self._component(key) for key in seen), key=lambda found: found["bom-ref"])
        needs = [
            {"ref": self._reference(key), "dependsOn": sorted(self._reference(need) for need in self.needs[key])}
            for key in seen
        ]
        return components, sorted(needs, key=lambda found: found["ref"])

    def _reference(self, key):
        return f"pkg:cargo/{self.packages[key]['name']}@{self.packages[key]['version']}"

    def _component(self, key):
        package = self.packages[key]
        component = {
            "type": "library",
            "bom-ref": self._reference(key),
            "purl": self._reference(key),
            "name": package["name"],
            "version": package["version"],
        }
        if package.get("license"):
            # Some crates still separate licenses with a slash, which is not valid in an SPDX expression.
            component["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        checksum = self.checksums.get((package["name"], package["version"]))
        if checksum:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        return component


def debian(package):
    """Returns the component of a Debian package."""
    architecture, name, version = package["Architecture"], package["Package"], package["Version"]
    reference = f"pkg:deb/debian/{name}@{version.replace('+', '%2B')}?arch={architecture}"
    return {
        "type": "library",
        "bom-ref": reference,
        "purl": reference,
        "name": name,
        "version": version,
        "hashes": [{"alg": "SHA-256", "content": package["digest"].removeprefix("sha256:")}],
    }


def envoy(version, sha256):
    """Returns the component of an Envoy binary."""
    reference = f"pkg:github/envoyproxy/envoy@v{version}"
    return {
        "type": "application",
        "bom-ref": reference,
        "purl": reference,
        "name": "envoy",
        "version": version,
        "licenses": [{"expression": "Apache-2.0"}],
        "hashes": [{"alg": "SHA-256", "content": sha256}],
    }


def document(image, version, image_digest, components, needs, incomplete):
    """Returns an image's bill of materials. The parts of the components in `incomplete` are not listed."""
    reference = f"pkg:oci/{image}@{image_digest.replace(':', '%3A')}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, reference)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "bom-ref": reference,
                "purl": reference,
                "name": image,
                "version": version,
            }
        },
        "components": components,
        "dependencies": needs,
        "compositions": [{"aggregate": "incomplete", "assemblies": sorted(incomplete)}] if incomplete else [],
    }
