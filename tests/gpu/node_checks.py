"""The node checks of `rankscope doctor --node` on the GPUs of this machine: each check of a GPU measures a value."""

import json
import subprocess
import sys

from tests.gpu.outcome import say
from trainer.drive.node_check import FAILED_VERDICTS

OF_DEVICES = ("device-memory", "device-copies", "gemm")


def main() -> None:
    command = [sys.executable, "-m", "rankscope", "doctor", "--node", "--force", "--json"]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    checks = json.loads(result.stdout)["checks"]
    figures = {f"{one['check']} {one['subject']}": one["value"] for one in checks if one["value"] is not None}
    wrong = [f"{one['check']} {one['subject']}: {one['detail']}" for one in checks if one["verdict"] in FAILED_VERDICTS]
    measured = {one["check"] for one in checks if one["verdict"] == "measured"}
    wrong += [f"{name} measured nothing" for name in OF_DEVICES if name not in measured]
    say("failed" if wrong else "passed", figures, "; ".join(wrong))


if __name__ == "__main__":
    main()
