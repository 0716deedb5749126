"""Names for the steps of a request, so that a 500 can say which one failed and nothing more."""

import logging
from types import TracebackType
from typing import Self

from .errors import ApiError, StepFailed

logger = logging.getLogger(__name__)


class step:  # noqa: N801  # reads as a statement: `with step("settling the charge"):`
    """Turns an unexpected exception inside the block into a `StepFailed` that names the step and says `bill`."""

    __slots__ = ("bill", "doing")

    def __init__(self, doing: str, bill: str = "") -> None:
        self.doing, self.bill = doing, bill

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, Exception) and not isinstance(error, ApiError):
            logger.error("failed while %s", self.doing, exc_info=error)
            raise StepFailed(self.doing, self.bill) from error
