"""Shared by commands that store what a person writes: opens the collector, and finds the name of the person."""

import getpass
from collections.abc import Iterator
from contextlib import contextmanager

from telemetry.errors import UsageError
from telemetry.finding_log import MAX_NAME
from telemetry.printable import one_line
from telemetry.wire.client import CollectorClient
from ui.cli.readers import open_reader


@contextmanager
def open_collector(address: str, what: str) -> Iterator[CollectorClient]:
    """A client of the collector at ``address``. ``what``: the plural of what is stored, for the message.

    Raises:
        UsageError: ``address`` is that of a store.
    """
    with open_reader(address) as client:
        if not isinstance(client, CollectorClient):
            raise UsageError(
                f"{what} need a running collector, not a store",
                hint="use the address of the collector: --store http://HOST:8719",
            )
        yield client


def name_of_person(by: str) -> str:
    """``by`` as one line, or the name of this user if ``by`` is empty.

    Raises:
        UsageError: the user has no name.
    """
    try:
        return one_line(by or getpass.getuser(), MAX_NAME)
    except (KeyError, OSError) as error:  # a container without users
        raise UsageError("this user has no name", hint="give your name: --by NAME") from error
