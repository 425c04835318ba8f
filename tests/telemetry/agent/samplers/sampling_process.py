"""A NIC sampler that takes one command per input line and answers in JSON. It ends when its input ends."""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

from telemetry.agent.samplers.link_events import BUFFER_BYTES, LinkListener
from telemetry.agent.samplers.nic import InterfaceChoice, NicSampler

SYSFS = Path("/sys")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--deaf", action="store_true", help="without netlink")
    parser.add_argument("--buffer", type=int, default=BUFFER_BYTES)
    parser.add_argument("--interfaces", default="", help="a pattern")
    chosen = parser.parse_args()
    news = None if chosen.deaf else LinkListener(buffer_bytes=chosen.buffer)
    choice = InterfaceChoice(wanted=(chosen.interfaces,) if chosen.interfaces else ())
    sampler = NicSampler(SYSFS, news=news, choice=choice)
    say(sampler.devices)
    for line in sys.stdin:
        verb, *rest = line.split()
        if verb == "sample":
            sample = sampler.sample(int(rest[0]) or time.time_ns())
            values = {f"{one.metric} {one.device}": one.value for one in sample.readings}
            say({"values": values, "events": [asdict(event) for event in sample.events]})
        elif news is not None:
            say([asdict(message) for message in news.drain()])
    sampler.close()


def say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
