#!/usr/bin/env python3
"""Serves a route on port 80 with the images of the agent and of Envoy, in separate containers as in the DaemonSet.

check.py runs this in a separate network namespace. Both containers are read-only, and neither runs as root.
"""

import http.client
import os
import subprocess
import sys
import tempfile
import time

from check import Opened, write_bundle

# Maximum time until the route is served, in seconds.
DEADLINE = 60
MANIFESTS = """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: edge}
spec: {controllerName: projectsesame.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: default}
spec:
  gatewayClassName: edge
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: moved, namespace: default}
spec:
  parentRefs: [{name: edge}]
  rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: moved.example.com}}]}]
"""


class Containers:
    """Containers that share the directories of a node."""

    def __init__(self, directory):
        self.directory = directory
        self.running = {}

    def make(self, name, mode, owner):
        """Creates a directory of the node."""
        path = os.path.join(self.directory, name)
        os.mkdir(path)
        os.chown(path, owner, owner)
        os.chmod(path, mode)
        return path

    def start(self, name, image, arguments, mounts):
        bundle = os.path.join(self.directory, name)
        os.makedirs(os.path.join(bundle, "root"))
        image.unpack(os.path.join(bundle, "root"))
        bound = [
            {"destination": inside, "type": "bind", "source": outside, "options": ["bind", "rw"]}
            for inside, outside in mounts.items()
        ]
        write_bundle(bundle, image, [*image.config["Entrypoint"], *arguments], True, (), bound)
        log = open(os.path.join(bundle, "log"), "wb")  # noqa: SIM115
        self.running[name] = subprocess.Popen(
            ["runc", "--root", os.path.join(self.directory, "state"), "run", "--bundle", bundle, self.id(name)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )

    def id(self, name):
        return f"sesame-image-check-{name}-{os.path.basename(self.directory)}"

    def tell(self):
        """Returns the containers' output."""
        said = ""
        for name in self.running:
            with open(os.path.join(self.directory, name, "log"), encoding="utf-8", errors="replace") as file:
                said += f"--- {name}\n{file.read()}"
        return said

    def end(self):
        for name in self.running:
            delete = ["runc", "--root", os.path.join(self.directory, "state"), "delete", "--force", self.id(name)]
            subprocess.run(delete, check=False, capture_output=True)


def answer():
    """Returns the status and location of the response, or the error."""
    try:
        connection = http.client.HTTPConnection("127.0.0.1", 80, timeout=5)
        connection.request("GET", "/here", headers={"Host": "example.com"})
        response = connection.getresponse()
        return f"{response.status} {response.getheader('location')}"
    except OSError as error:
        return str(error)


def main():
    agent, envoy, arch = sys.argv[1:]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    agent, envoy = Opened(agent, arch), Opened(envoy, arch)
    user = int(agent.config["User"].split(":")[0])
    with tempfile.TemporaryDirectory() as directory:
        containers = Containers(directory)
        manifests = containers.make("manifests", 0o755, 0)
        with open(os.path.join(manifests, "edge.yaml"), "w", encoding="utf-8") as file:
            file.write(MANIFESTS)
        shared = {
            "/run/sesame": containers.make("runtime", 0o700, user),
            "/dev/shm": containers.make("shm", 0o1777, 0),
        }
        state = {"/var/lib/sesame": containers.make("kept", 0o700, user), "/manifests": manifests}
        # The image does not contain a /manifests directory.
        agent.entries["manifests"] = agent.entries["tmp"]
        try:
            containers.start("envoy", envoy, envoy.config["Cmd"], shared)
            arguments = ["run", "--launcher", "--manifests", "/manifests", "--address", "127.0.0.1"]
            containers.start("agent", agent, arguments, {**shared, **state})
            wanted, deadline = "302 http://moved.example.com/here", time.monotonic() + DEADLINE
            while (seen := answer()) != wanted and time.monotonic() < deadline:
                time.sleep(0.2)
            if seen != wanted:
                sys.exit(f"after {DEADLINE} s: {seen}, and not {wanted}\n{containers.tell()}")
        finally:
            containers.end()


if __name__ == "__main__":
    main()
