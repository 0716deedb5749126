"""Runs `manage.py` with the original migrations, which installations from before the squash had."""

import os
import sys

import pytest
from django.core.management import execute_from_command_line
from django.db.migrations.graph import MigrationGraph


def use_originals(patch: pytest.MonkeyPatch) -> None:
    """Makes Django treat every squashed migration as if only some of the originals were applied."""
    patch.setattr(MigrationGraph, "remove_replaced_nodes", MigrationGraph.remove_replacement_node)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    use_originals(pytest.MonkeyPatch())
    execute_from_command_line(sys.argv)
