"""`manage.py` with the original migrations in place of squashed ones: an installation had these before the squash."""

import os
import sys

import pytest
from django.core.management import execute_from_command_line
from django.db.migrations.graph import MigrationGraph


def use_originals(patch: pytest.MonkeyPatch) -> None:
    """Makes Django treat every squashed migration as it does where only some of the originals are applied."""
    patch.setattr(MigrationGraph, "remove_replaced_nodes", MigrationGraph.remove_replacement_node)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    use_originals(pytest.MonkeyPatch())
    execute_from_command_line(sys.argv)
