"""The provenance of images: an unsigned in-toto statement with an SLSA predicate."""


import re


def statement(subjects, revision, parameters, materials, builder):
    """Returns the statement. `subjects` has the images' digests by name, and `materials` the digests of their input."""

    def digests(by_name, key):
        return [
            {key: name, "digest": {"sha256": found.removeprefix("sha256:")}} for name, found in sorted(by_name.items())
        ]

    source = {"uri": "git+https://projectsesame.io"}
    # The revision is not a commit digest if the tree has uncommitted changes.
    if re.fullmatch("[0-9a-f]{40,64}", revision):
        source["digest"] = {"gitCommit": revision}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": digests(subjects, "name"),
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://projectsesame.io/build/images/v1",
                "externalParameters": {**parameters, "revision": revision},
                "resolvedDependencies": [source, *digests(materials, "name")],
            },
            "runDetails": {"builder": {"id": builder}},
        },
    }
