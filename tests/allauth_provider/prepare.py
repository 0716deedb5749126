"""Makes the site's tables, a person and a client.

Its arguments are the person's address and password, and the client's id, secret and callback address.
"""

import sys

import django

django.setup()

from allauth.account.models import EmailAddress  # noqa: E402  # models can be imported only now
from allauth.idp.oidc.models import Client  # noqa: E402
from django.contrib.auth.models import User  # noqa: E402
from django.core.management import call_command  # noqa: E402

email, password, client_id, secret, callback = sys.argv[1:]
call_command("migrate", verbosity=0)
person = User.objects.create_user("person", email, password)
EmailAddress.objects.create(user=person, email=email, verified=True, primary=True)
client = Client(id=client_id, name="Gateway", skip_consent=True)
client.set_scopes(["openid", "profile", "email"])
client.set_redirect_uris([callback])
client.set_secret(secret)
client.save()
