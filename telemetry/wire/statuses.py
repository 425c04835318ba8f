"""HTTP statuses by which a client of the collector knows the error: the collector answers by this table, and the client
raises by it."""

from telemetry.errors import AheadError, JumpError, RankscopeError, TakenNameError, UnannouncedError

STATUS_OF: dict[type[RankscopeError], int] = {
    TakenNameError: 409,
    JumpError: 416,
    AheadError: 425,
    UnannouncedError: 428,
}
ERROR_OF = {status: error for error, status in STATUS_OF.items()}
