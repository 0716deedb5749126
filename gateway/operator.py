"""Describes who operates this gateway: on pages, in mails and on statements."""

from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

LOGO_PREFIX = "operator"


@dataclass(frozen=True, slots=True)
class Operator:
    """Holds the operator's name, which is the product's name too, and what is known of the rest."""

    name: str
    address: tuple[str, ...]  # its lines
    email: str
    vat_id: str
    logo: str  # the name of a static file
    top_up: str  # the address at which members ask for credit


def operator() -> Operator:
    """Returns the operator of the settings."""
    logo: Path | None = settings.OPERATOR_LOGO
    return Operator(
        name=settings.OPERATOR_NAME,
        address=tuple(settings.OPERATOR_ADDRESS.splitlines()),
        email=settings.OPERATOR_EMAIL,
        vat_id=settings.OPERATOR_VAT_ID,
        logo="img/mark.svg" if logo is None else f"{LOGO_PREFIX}/{logo.name}",
        top_up=settings.BILLING_CONTACT_URL or (f"mailto:{settings.OPERATOR_EMAIL}" if settings.OPERATOR_EMAIL else ""),
    )
