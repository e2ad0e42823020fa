"""The base file system: a C library, the public root certificates and a user, but no shell or other programs."""

import gzip
import io
import json
import os
import re
import subprocess
import tarfile

from layers import USER, Layer, Tree, digest

# Debian packages that the programs need at run time, without dependencies needed only to install
# them. `gcc-…-base` contains the license of libgcc-s1.
PACKAGES = ("base-files", "ca-certificates", "libc6", "libgcc-s1", "gcc-[0-9]+-base")
_KEPT = re.compile(
    r"(lib/[^/]+-linux-gnu[^/]*/[^/]+\.so[^/]*|lib64/.*|lib/ld-linux-[^/]*|usr/lib/os-release|etc/os-release"
    r"|usr/share/doc/[^/]+|usr/share/doc/[^/]+/copyright|usr/share/common-licenses/.*)$"
)
# Newer Debian releases install libraries under /usr, but programs still expect their loader in /lib
# or /lib64.
_LIBRARY = re.compile(r"^usr/(?=lib(64)?/(?!os-release))")
_ROOTS = re.compile(r"usr/share/ca-certificates/.*\.crt$")
_FIELDS = ("Package", "Version", "Architecture", "Source", "Maintainer", "Homepage")


class Base:
    """The base layers, the packages in them, and a digest of their input."""

    def __init__(self, layers, packages, source, config=None):
        self.layers = layers
        self.packages = packages
        self.source = source
        self.config = config or {}


def of_packages(directory, epoch, level):
    """Builds the base from Debian packages in a directory."""
    tree, roots, packages = Tree(epoch), {}, []
    files = sorted(os.listdir(directory))
    for wanted in PACKAGES:
        found = [file for file in files if re.fullmatch(wanted, file.split("_")[0])]
        if len(found) != 1:
            raise SystemExit(f"{directory}: there are {len(found)} packages {wanted}, and one is needed")
        path = os.path.join(directory, found[0])
        fields = _control(path)
        with open(path, "rb") as file:
            packages.append({**fields, "digest": digest(file.read())})
        # Scanners look for packages at this path, because distroless images use it.
        text = "".join(f"{field}: {fields[field]}\n" for field in _FIELDS if field in fields)
        tree.file(f"var/lib/dpkg/status.d/{fields['Package']}", (text + "Status: install ok installed\n").encode())
        _unpack(path, tree, roots)
    tree.file("etc/ssl/certs/ca-certificates.crt", b"".join(roots[path] for path in sorted(roots)))
    tree.file("etc/passwd", b"root:x:0:0:root:/:/nonexistent\n"
              + f"sesame:x:{USER}:{USER}:Sesame:/var/lib/sesame:/nonexistent\n".encode())
    tree.file("etc/group", f"root:x:0:\nsesame:x:{USER}:\n".encode())
    tree.file("etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n")
    tree.directory("tmp", 0o1777)
    made_of = "".join(f"{package['Package']} {package['digest']}\n" for package in packages).encode()
    return Base([Layer.of(tree.tar(), level)], packages, digest(made_of))


def of_archive(path, arch, level):
    """Reads the base from a file: an OCI image archive, or a tar of a root file system."""
    with open(path, "rb") as file:
        content = file.read()
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        names = {name.removeprefix("./") for name in tar.getnames()}
        if "oci-layout" not in names:
            plain = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
            return Base([Layer.of(plain, level)], [], digest(content))
        return _of_image(tar, arch, path, digest(content))


def _of_image(tar, arch, path, source):
    prefix = "./" if "./index.json" in tar.getnames() else ""

    def read(name):
        return tar.extractfile(prefix + name).read()

    def blob(descriptor):
        content = read("blobs/" + descriptor["digest"].replace(":", "/"))
        if digest(content) != descriptor["digest"]:
            raise SystemExit(f"{path}: the blob {descriptor['digest']} has another content")
        return content

    found = json.loads(read("index.json"))["manifests"]
    while found and "index" in found[0]["mediaType"]:
        found = json.loads(blob(found[0]))["manifests"]
    for descriptor in found:
        manifest = json.loads(blob(descriptor))
        document = json.loads(blob(manifest["config"]))
        if document["architecture"] == arch:
            pairs = zip(manifest["layers"], document["rootfs"]["diff_ids"], strict=True)
            layers = [Layer(blob(layer), diff_id, layer["mediaType"]) for layer, diff_id in pairs]
            return Base(layers, [], source, document.get("config", {}))
    raise SystemExit(f"{path}: there is no image for {arch}")


def _control(package):
    text = subprocess.run(["dpkg-deb", "-f", package, *_FIELDS], check=True, capture_output=True, text=True).stdout
    return dict(line.split(": ", 1) for line in text.splitlines())


def _unpack(package, tree, roots):
    """Adds a package's required files to the tree, and its certificates to `roots`."""
    content = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        for entry in tar:
            path = _LIBRARY.sub("", entry.name.removeprefix("./").rstrip("/"), count=1)
            if _ROOTS.match(path) and entry.isfile():
                roots[path] = tar.extractfile(entry).read().rstrip(b"\n") + b"\n"
            elif not _KEPT.match(path):
                continue
            elif entry.issym():
                tree.link(path, entry.linkname)
            elif entry.isfile():
                tree.file(path, tar.extractfile(entry).read(), entry.mode & 0o755)


def is_image(path):
    """Returns True if the file is an OCI image archive, which may contain several architectures."""
    with tarfile.open(path) as tar:
        return any(name.removeprefix("./") == "oci-layout" for name in tar.getnames())
