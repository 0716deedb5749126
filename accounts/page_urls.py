"""Signing in, passwords, and the dashboard's pages on keys and members."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from .views import keys, sign_in
from .views.invitations import change_invitation, invitation
from .views.members import member, members, remove

urlpatterns = [
    path("login", sign_in.SignIn.as_view(), name="login"),
    path("logout", LogoutView.as_view(), name="logout"),
    path("password", sign_in.ChangePassword.as_view(), name="password"),
    path("password/reset", sign_in.ResetPassword.as_view(), name="password-reset"),
    path("password/reset/sent", sign_in.ResetSent.as_view(), name="password-reset-sent"),
    path("password/reset/done", sign_in.ResetDone.as_view(), name="password-reset-done"),
    path("password/reset/<uidb64>/<token>", sign_in.ResetLink.as_view(), name="password-reset-link"),
    path("keys", keys.api_keys, name="keys"),
    path("keys/<uuid:key_id>/delete", keys.delete, name="delete-key"),
    path("members", members, name="members"),
    path("members/<int:membership_id>", member, name="member"),
    path("members/<int:membership_id>/remove", remove, name="remove-member"),
    path("members/invitations/<uuid:invitation_id>", change_invitation, name="change-invitation"),
    path("invitations/<str:signed>", invitation, name="invitation"),
]
