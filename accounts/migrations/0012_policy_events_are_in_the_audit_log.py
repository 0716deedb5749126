from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps


def copy(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    """Copies the changes of policies and tags to the audit log, with their times and authors."""
    policy_events, audit_events = (
        apps.get_model("accounts", name).objects.using(editor.connection.alias)
        for name in ("PolicyEvent", "AuditEvent")
    )
    events = policy_events.select_related("key", "by_key").order_by("id")
    for event in events.iterator(chunk_size=1000):
        if event.key is not None:
            subject = ("key", str(event.key_id), event.key.name)
        elif event.tag:
            subject = ("tag", event.tag, event.tag)
        else:
            subject = ("new keys" if event.level == "default" else "account", str(event.account_id), "")
        actor = ("system", "", "")
        if event.by_id is not None:
            actor = ("member", str(event.by_id), "")
        elif event.by_key_id is not None:
            actor = ("key", str(event.by_key_id), "" if event.by_key is None else event.by_key.name)
        is_of_tags = "tags" in (event.old or {}) or "tags" in (event.new or {})
        audit_events.create(
            id=event.id,
            account_id=event.account_id,
            created_at=event.created_at,
            action="tags.changed" if is_of_tags else "policy.changed",
            actor_kind=actor[0],
            actor_id=actor[1],
            actor_name=actor[2],
            object_kind=subject[0],
            object_id=subject[1],
            object_name=subject[2],
            old=event.old,
            new=event.new,
        )


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0011_keys_of_kinds_and_audit_log"),
    ]

    operations = [
        migrations.RunPython(copy, migrations.RunPython.noop),
        migrations.DeleteModel(name="PolicyEvent"),
    ]

    reviewed = "No release has read or written the table."
