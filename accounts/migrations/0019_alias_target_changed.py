from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0018_aliases_reserved"),
    ]

    operations = [
        migrations.AlterField(
            model_name="auditevent",
            name="action",
            field=models.CharField(
                choices=[
                    ("account.created", "account created"),
                    ("account.changed", "account changed"),
                    ("account.suspended", "account suspended"),
                    ("account.resumed", "suspension lifted"),
                    ("account.closed", "account closed"),
                    ("alerts.changed", "amounts of the balance for alerts changed"),
                    ("alias.created", "alias created"),
                    ("alias.renamed", "alias renamed"),
                    ("alias.repointed", "alias target changed"),
                    ("alias.fallbacks_changed", "fallbacks of an alias changed"),
                    ("alias.deleted", "alias deleted"),
                    ("balance.threshold", "balance at or below an amount"),
                    ("budget.threshold", "budget spent in part"),
                    ("credit.granted", "credit granted"),
                    ("credit.corrected", "balance corrected"),
                    ("export.made", "data exported"),
                    ("invitation.sent", "invitation sent"),
                    ("invitation.revoked", "invitation revoked"),
                    ("key.created", "key created"),
                    ("key.changed", "key changed"),
                    ("key.rotated", "key rotated"),
                    ("key.disabled", "key disabled"),
                    ("key.enabled", "key enabled"),
                    ("key.expiring", "key about to expire"),
                    ("key.deleted", "key deleted"),
                    ("member.added", "member added"),
                    ("member.role_changed", "role changed"),
                    ("member.removed", "member removed"),
                    ("password.changed", "password changed"),
                    ("policy.changed", "policy changed"),
                    ("provider.down", "provider is down"),
                    ("provider.up", "provider is up"),
                    ("second_factor.added", "second factor added"),
                    ("second_factor.removed", "second factor removed"),
                    ("session.opened", "signed in"),
                    ("session.closed", "signed out"),
                    ("session.failed", "sign-in failed"),
                    ("single_sign_on.unlinked", "single sign-on unlinked"),
                    ("statement.ready", "statement ready"),
                    ("tags.changed", "tags of a key changed"),
                    ("test", "test"),
                    ("webhook.created", "webhook created"),
                    ("webhook.changed", "webhook changed"),
                    ("webhook.deleted", "webhook deleted"),
                ],
                max_length=40,
            ),
        ),
    ]
