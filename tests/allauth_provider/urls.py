"""Routes the site's sign-in and its endpoints of OpenID Connect."""

from django.urls import include, path

urlpatterns = [
    path("accounts/", include("allauth.account.urls")),
    path("", include("allauth.idp.urls")),
]
