"""A check that never ends, with a child that would outlive it."""

import subprocess
import sys
import threading

if __name__ == "__main__":
    child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
    print(f"child {child.pid}", flush=True)
    threading.Event().wait()
