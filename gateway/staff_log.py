"""What staff do in the admin: Django's history (LogEntry) has the words, the server's log one line for each."""

import logging
from typing import Any

from django.contrib.admin.models import LogEntry
from django.db.models.signals import post_save

logger = logging.getLogger(__name__)


def log_to_server(instance: LogEntry, created: bool, **_kwargs: Any) -> None:
    """Signal: who did what to which row. Neither names nor values: those are in the history, for staff to read."""
    if created:
        did = instance.get_action_flag_display().lower()
        kind = instance.content_type
        label = f"{kind.app_label}.{kind.model}" if kind is not None else "nothing"
        logger.info("staff %s: %s of %s %s", instance.user_id, did, label, instance.object_id)


def connect() -> None:
    """From now on."""
    post_save.connect(log_to_server, sender=LogEntry, dispatch_uid="a-line-for-every-staff-action")
