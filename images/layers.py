"""Layers, images and archives in the OCI format. Their bytes depend only on their content."""

import gzip
import hashlib
import io
import json
import os
import struct
import tarfile

# The user of every image. The ID is numeric, so that kubelet can enforce `runAsNonRoot`.
USER = 65532
CAP_NET_BIND_SERVICE = 10
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def encode(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class Tree:
    """The files of a layer. Owners, order and times are the same in every build."""

    def __init__(self, epoch):
        self.entries = {}
        self.epoch = epoch

    def directory(self, path, mode=0o755, owner=0):
        self._add(path, mode, owner, tarfile.DIRTYPE)

    def file(self, path, content, mode=0o644, capability=None):
        """Adds a file. The program gets `capability` when it runs, if its container has that capability."""
        entry = self._add(path, mode, 0, tarfile.REGTYPE, content)
        if capability is not None:
            # Revision 2 of the kernel's format: the effective flag, then the permitted and
            # inheritable sets, each as two 32-bit words.
            value = struct.pack("<5I", 0x02000001, 1 << capability, 0, 0, 0)
            entry.pax_headers["SCHILY.xattr.security.capability"] = value.decode("ascii")

    def link(self, path, target):
        entry = self._add(path, 0o777, 0, tarfile.SYMTYPE)
        entry.linkname = target

    def _add(self, path, mode, owner, kind, content=b""):
        parent = os.path.dirname(path)
        if parent and parent not in self.entries:
            self.directory(parent)
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode, entry.mtime = kind, mode, self.epoch
        entry.uid = entry.gid = owner
        entry.size = len(content)
        self.entries[path] = (entry, content)
        return entry

    def tar(self):
        """Returns the files as a tar, with each directory before its content."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(self.entries):
                entry, content = self.entries[path]
                tar.addfile(entry, io.BytesIO(content))
        return out.getvalue()


class Layer:
    """A compressed tar, and the digests by which an image refers to it."""

    def __init__(self, blob, diff_id, media_type=_LAYER):
        self.blob = blob
        self.diff_id = diff_id
        self.descriptor = {"mediaType": media_type, "digest": digest(blob), "size": len(blob)}

    @classmethod
    def of(cls, tar, level):
        return cls(gzip.compress(tar, level, mtime=0), digest(tar))


class Image:
    """An image for one architecture: layers and a configuration."""

    def __init__(self, layers, arch, config, created, labels, history):
        self.platform = {"architecture": arch, "os": "linux"}
        document = {
            **self.platform,
            "created": created,
            "config": {**config, "Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
            "history": [{"created": created, "created_by": text} for text in history],
        }
        self.config = encode(document)
        self.manifest = encode({
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "digest": digest(self.config), "size": len(self.config)},
            "layers": [layer.descriptor for layer in layers],
            "annotations": labels,
        })
        self.blobs = [self.config, self.manifest, *(layer.blob for layer in layers)]
        self.layers = layers

    def descriptor(self):
        return {
            "mediaType": _MANIFEST,
            "digest": digest(self.manifest),
            "size": len(self.manifest),
            "platform": self.platform,
        }


def archive(path, name, images, labels, epoch):
    """Writes the images, one per architecture, to one archive under this name. Returns the digest that the name refers to.

    Docker before version 29 reads only `manifest.json`, which contains only the first architecture.
    """
    top, blobs = images[0].descriptor(), [blob for image in images for blob in image.blobs]
    if len(images) > 1:
        index = encode({
            "schemaVersion": 2,
            "mediaType": _INDEX,
            "manifests": [image.descriptor() for image in images],
            "annotations": labels,
        })
        top = {"mediaType": _INDEX, "digest": digest(index), "size": len(index)}
        blobs.append(index)
    names = {"org.opencontainers.image.ref.name": name, "io.containerd.image.name": name}
    place = lambda blob: "blobs/" + digest(blob).replace(":", "/")  # noqa: E731
    tree = Tree(epoch)
    for blob in blobs:
        tree.file(place(blob), blob)
    tree.file("oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
    tree.file("index.json", encode({
        "schemaVersion": 2,
        "mediaType": _INDEX,
        "manifests": [{**top, "annotations": names}],
    }))
    tree.file("manifest.json", encode([{
        "Config": place(images[0].config),
        "RepoTags": [name],
        "Layers": [place(layer.blob) for layer in images[0].layers],
    }]))
    with open(path + ".new", "wb") as file:
        file.write(tree.tar())
    os.replace(path + ".new", path)
    return top["digest"]
