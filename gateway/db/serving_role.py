"""Limits what the servers' role may do in the database (docs/security.md#a-role-for-serving)."""

from pathlib import Path

from django.core.management import CommandError
from django.db import ProgrammingError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql
from psycopg.errors import InsufficientPrivilege

RIGHTS = Path(__file__).with_name("serving_role.sql")
ROLE = "gateway_serving"


def grant(connection: BaseDatabaseWrapper, login: str, password: str) -> None:
    """Gives the role its rights, and makes `login` a member of it. Creates either if it does not exist.

    Raises CommandError if the connection's role may not do this.
    """
    try:
        with transaction.atomic(connection.alias), connection.cursor() as cursor:
            with connection.wrap_database_errors:
                connection.connection.execute(
                    RIGHTS.read_text(), prepare=False
                )  # several statements are never prepared
            cursor.execute("SELECT pg_has_role(oid, %s, 'MEMBER') FROM pg_roles WHERE rolname = %s", [ROLE, login])
            found = cursor.fetchone()
            if found is None:
                hashed = cursor.connection.pgconn.encrypt_password(password.encode(), login.encode(), b"scram-sha-256")
                made = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE {}")
                cursor.execute(made.format(sql.Identifier(login), hashed.decode(), sql.Identifier(ROLE)))
            elif not found[0]:
                cursor.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(ROLE), sql.Identifier(login)))
    except ProgrammingError as error:
        if not isinstance(error.__cause__, InsufficientPrivilege):
            raise
        raise CommandError(
            f"The role of MIGRATE_DATABASE_URL may not make or give the roles {ROLE} and {login}. All migrations are "
            "applied: make the roles as a superuser (docs/security.md, A role for serving), and run this again."
        ) from error
