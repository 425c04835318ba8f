from telemetry.xid import XidSeverity, meaning_of, xid_catalogue
from tests.each_case import each_case


@each_case(
    ("number", "severity", "action"),
    [
        (13, XidSeverity.APPLICATION, "RESTART_APP"),
        (31, XidSeverity.APPLICATION, "RESTART_APP"),
        (43, XidSeverity.APPLICATION, "IGNORE"),
        (45, XidSeverity.APPLICATION, "IGNORE"),
        (48, XidSeverity.FATAL, "RESET_GPU"),
        (63, XidSeverity.INFORMATIONAL, "IGNORE"),
        (64, XidSeverity.SERVICE, "RESET_GPU"),
        (79, XidSeverity.FATAL, "RESTART_BM"),
        (94, XidSeverity.FATAL, "RESTART_APP"),
        (95, XidSeverity.FATAL, "RESET_GPU"),
        (119, XidSeverity.FATAL, "RESET_GPU"),
    ],
)
def test_catalogue_has_severity_and_action_of_common_xids(number: int, severity: XidSeverity, action: str) -> None:
    xid = meaning_of(number)
    assert (xid.severity, xid.action, xid.known) == (severity, action, True)


def test_every_xid_up_to_the_newest_is_either_explained_or_unused() -> None:
    catalogue = xid_catalogue()
    explained = catalogue.xids.keys()
    assert not explained & catalogue.unused
    assert explained | catalogue.unused == set(range(1, max(explained) + 1))


def test_xid_catalogue_has_a_date_and_sources() -> None:
    catalogue = xid_catalogue()
    assert catalogue.dated.year >= 2026
    assert all(source.startswith("https://docs.nvidia.com/") for source in catalogue.sources)


def test_unknown_xid_has_severity_service_and_action_contact_support() -> None:
    xid = meaning_of(4711)
    assert not xid.known
    assert (xid.severity, xid.action) == (XidSeverity.SERVICE, "CONTACT_SUPPORT")
