"""Tags, notes and views in a store, as a collector writes them."""

import json

from telemetry.collector.annotations import AnnotationLog
from telemetry.stores.interface import Store, StoreReader
from telemetry.wire.annotation import decode_annotation


def annotate(store: Store, kind: str, run_id: str, *, at_ns: int = 10**18, who: str = "Ada", **fields: str) -> None:
    """Store an annotation. ``fields``: name, text, edit."""
    body = json.dumps({"kind": kind, "run_id": run_id, "who": who, **fields})
    log = AnnotationLog(store=store, reader=StoreReader(store), clock_ns=lambda: at_ns)
    log.accept(decode_annotation(body.encode()))
