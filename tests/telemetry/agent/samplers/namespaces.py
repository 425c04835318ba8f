"""A host with one NIC: a network namespace and a veth pair. The other end of the pair acts as the switch.

The switch has its own namespace: link changes in the machine's namespace make browsers abort their page loads.

rankscope-nic-<pid>-switch      rankscope-nic-<pid>
port       ------ veth ------   data0   <-- sampled by a process in there
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from telemetry.agent.samplers.interface import Event
from tests.parts import require, require_root

INTERFACE = "data0"
PORT = "port"
"""The interface of the switch, at the other end of the pair."""
PROJECT = Path(__file__).parents[4]


class Namespace:
    """A network namespace, its links and the kernel's counts of them."""

    def __init__(self, name: str, switch: str) -> None:
        self.name = name
        self._switch = switch
        self._ip = require("ip")

    def flap(self, times: int) -> None:
        """Take the switch's end down and up, back to back, in one process."""
        self._on_switch(self._flaps(times))

    def flapping(self, times: int) -> "subprocess.Popen[str]":
        """Start the same in the background."""
        process = subprocess.Popen(self._batch(self._switch), stdin=subprocess.PIPE, text=True)
        assert process.stdin is not None
        process.stdin.write(self._flaps(times))
        process.stdin.close()
        return process

    def cut(self) -> None:
        self._on_switch(f"link set {PORT} down\n")

    def mend(self) -> None:
        self._on_switch(f"link set {PORT} up\n")

    def batch(self, commands: str) -> None:
        """Run commands of ``ip`` in the host's namespace."""
        subprocess.run(self._batch(self.name), input=commands, text=True, check=True, capture_output=True)

    def counted(self, interface: str = INTERFACE) -> int:
        """Number of carrier losses that the kernel counted."""
        path = f"/sys/class/net/{interface}/carrier_down_count"
        return int(subprocess.run([*self.inside(), "cat", path], check=True, capture_output=True).stdout)

    def _on_switch(self, commands: str) -> None:
        subprocess.run(self._batch(self._switch), input=commands, text=True, check=True, capture_output=True)

    def _batch(self, namespace: str) -> list[str]:
        return [self._ip, "-n", namespace, "-batch", "-"]

    def _flaps(self, times: int) -> str:
        return f"link set {PORT} down\nlink set {PORT} up\n" * times

    def inside(self) -> list[str]:
        return [self._ip, "netns", "exec", self.name]


@contextmanager
def namespace_of_a_host() -> Iterator[Namespace]:
    """Skip the test if the user may not create a namespace."""
    require_root("network namespaces")
    ip = require("ip")
    name = f"rankscope-nic-{os.getpid()}"
    with _namespace(ip, name), _namespace(ip, f"{name}-switch") as switch:
        host = Namespace(name, switch)
        host.batch(f"link add {INTERFACE} type veth peer name {PORT} netns {switch}\nlink set {INTERFACE} up\n")
        host.mend()
        yield host


@contextmanager
def _namespace(ip: str, name: str) -> Iterator[str]:
    """Delete the namespace, with its links, at the end."""
    subprocess.run([ip, "netns", "add", name], check=True)
    try:
        yield name
    finally:
        subprocess.run([ip, "netns", "del", name], check=True)


class SamplingProcess:
    """A sampler inside a namespace, controlled over a pipe."""

    def __init__(self, host: Namespace, *arguments: str) -> None:
        command = [*host.inside(), sys.executable, "-m", "tests.telemetry.agent.samplers.sampling_process", *arguments]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT)
        self.pid = self._process.pid
        self._answer()

    def __enter__(self) -> "SamplingProcess":
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        status = self._process.wait(timeout=30)
        self._process.stdout.close()
        assert status == 0

    def sample(self, at_ns: int = 0) -> tuple[dict[str, float], list[Event]]:
        """Values by ``metric device``, and events. Without ``at_ns``: now."""
        answer = self._ask(f"sample {at_ns}")
        return answer["values"], [Event(**event) for event in answer["events"]]

    def news(self) -> list[dict[str, Any]]:
        """Netlink messages that no sample has read."""
        answer: list[dict[str, Any]] = self._ask("news")
        return answer

    def _ask(self, question: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())
