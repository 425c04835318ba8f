"""How to make an alert quiet elsewhere. Text only: the dashboard changes nothing."""

import shlex

from diagnose.alerts.alert import Alert
from diagnose.alerts.hooks.shape import label_name

PLACES = ("host", "rank", "device", "stage")


def amtool_command(alert: Alert) -> str:
    """A command for Alertmanager that silences ``alert`` for two hours, and no other: a label that it lacks must be
    absent. Names come from jobs: each word is quoted for a shell; empty where one would do something to a terminal.
    """
    if not all(value.isprintable() for value in alert.labels.values()):
        return ""
    labels = {name: "" for name in PLACES} | {k: v for k, v in alert.labels.items() if k != "severity"}
    matchers = [f'{label_name(name)}="{_escaped(value)}"' for name, value in sorted(labels.items())]
    words = ["amtool", "silence", "add", "--alertmanager.url=http://ALERTMANAGER:9093", "--duration=2h"]
    return shlex.join([*words, f"--comment=rankscope {alert.fingerprint}", *matchers])


def rule(alert: Alert) -> str:
    """What in the watcher's file keeps its kind quiet, in every run."""
    return f"[rules.{alert.kind}]\nhooks = []"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
