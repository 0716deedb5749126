"""Gathers every table of the catalogue, because Django finds an app's models in this package alone."""

from .counters import SHARDS, ProviderFailure, ProviderMinute, ProviderOutage, ProviderTrouble, RouteDay, RouteHour
from .energy import EnergyEstimate
from .facts import FACTS, Confidential, Transfer
from .figures import FigureChange
from .grid import GridImport, GridIntensity, GridSlot
from .names import SEGMENT
from .offer import WITH_ENDPOINT, MaxTokensField, Modality, Model, State, Thinking
from .places import Place
from .prices import ExchangeRate, PriceChange
from .provider import Provider, Status, dialect_choices
from .route import PER_MILLION, PRICES, Region
from .version import CatalogueVersion

__all__ = [
    "FACTS",
    "PER_MILLION",
    "PRICES",
    "SEGMENT",
    "SHARDS",
    "WITH_ENDPOINT",
    "CatalogueVersion",
    "Confidential",
    "EnergyEstimate",
    "ExchangeRate",
    "FigureChange",
    "GridImport",
    "GridIntensity",
    "GridSlot",
    "MaxTokensField",
    "Modality",
    "Model",
    "Place",
    "PriceChange",
    "Provider",
    "ProviderFailure",
    "ProviderMinute",
    "ProviderOutage",
    "ProviderTrouble",
    "Region",
    "RouteDay",
    "RouteHour",
    "State",
    "Status",
    "Thinking",
    "Transfer",
    "dialect_choices",
]
