"""TensorBoard: event files in a folder, with the file writer of the package ``tensorboard``, without torch."""

from collections.abc import Sequence
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event as FileEvent
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text.metadata import create_summary_metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

from telemetry.exports.trackers.interface import Event, StepValues, TrackedRun, table_of

NS_PER_S = 1e9
FINDINGS = "rankscope/findings"
SETTINGS = "rankscope/run"


class TensorBoardTracker:
    """``folder``: a folder that exists and is empty."""

    def __init__(self, folder: Path, run: TrackedRun) -> None:
        self.place = str(folder)
        self._writer = EventFileWriter(str(folder))
        self._newest_s = run.started_ns / NS_PER_S
        rows = [[name, value] for name, value in run.settings.items()]
        self._add(_text(SETTINGS, _as_markdown(["setting", "value"], rows)), step=0)

    def write(self, steps: Sequence[StepValues]) -> None:
        for of_step in steps:
            self._newest_s = of_step.at_ns / NS_PER_S
            scalars = [Summary.Value(tag=name, simple_value=value) for name, value in of_step.values.items()]
            self._add(*scalars, step=of_step.step)
        self._writer.flush()

    def write_events(self, events: Sequence[Event]) -> None:
        columns, rows = table_of(events)
        step = max((event.step for event in events), default=0)
        self._add(_text(FINDINGS, _as_markdown(columns, rows) if rows else "no findings"), step=step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _add(self, *values: Summary.Value, step: int) -> None:
        self._writer.add_event(FileEvent(wall_time=self._newest_s, step=step, summary=Summary(value=values)))


def _text(tag: str, text: str) -> Summary.Value:
    return Summary.Value(
        tag=tag,
        metadata=create_summary_metadata(display_name=None, description=None),
        tensor=make_tensor_proto([text.encode()]),
    )


def _as_markdown(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
