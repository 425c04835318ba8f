"""The node checks of `rankscope doctor --node` on the GPUs of this machine: each check of a GPU measures a value."""

import json
import subprocess
import sys

from tests.gpu.outcome import say

OF_DEVICES = ("device-memory", "device-copies", "gemm")


def main() -> None:
    words = [sys.executable, "-m", "rankscope", "doctor", "--node", "--force", "--json"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    checks = json.loads(done.stdout)["checks"]
    figures = {f"{one['check']} {one['subject']}": one["value"] for one in checks if one["value"] is not None}
    wrong = [f"{one['check']} {one['subject']}: {one['detail']}" for one in checks if one["verdict"] == "failed"]
    measured = {one["check"] for one in checks if one["verdict"] == "measured"}
    wrong += [f"{name} measured nothing" for name in OF_DEVICES if name not in measured]
    say("failed" if wrong or done.returncode else "passed", figures, "; ".join(wrong))


if __name__ == "__main__":
    main()
