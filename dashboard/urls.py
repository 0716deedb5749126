"""Every page of the dashboard, and the admin's two addresses that lead to its sign-in."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from . import (
    aliases,
    carbon,
    credit,
    downloads,
    invitations,
    keys,
    members,
    models_page,
    notifications,
    overview,
    sign_in,
    usage,
    usage_records,
)

urlpatterns = [
    path("admin/login/", sign_in.admin_login),
    path("admin/password_change/", sign_in.admin_password),
    path("", overview.overview, name="overview"),
    path("login", sign_in.SignIn.as_view(), name="login"),
    path("logout", LogoutView.as_view(), name="logout"),
    path("password", sign_in.ChangePassword.as_view(), name="password"),
    path("password/reset", sign_in.ResetPassword.as_view(), name="password-reset"),
    path("password/reset/sent", sign_in.ResetSent.as_view(), name="password-reset-sent"),
    path("password/reset/done", sign_in.ResetDone.as_view(), name="password-reset-done"),
    path("password/reset/<uidb64>/<token>", sign_in.ResetLink.as_view(), name="password-reset-link"),
    path("usage", usage.usage, name="usage"),
    path("usage/export", downloads.usage_export, name="usage-export"),
    path("usage/records", usage_records.record_list, name="usage-records"),
    path("usage/records/<str:generation_id>", usage_records.record_detail, name="usage-record"),
    path("usage/failures/<str:request_id>", usage_records.failure_detail, name="usage-failure"),
    path("carbon", carbon.carbon, name="carbon"),
    path("carbon/export", downloads.carbon_export, name="carbon-export"),
    path("credit", credit.credit, name="credit"),
    path("statement", downloads.statement, name="statement"),
    path("keys", keys.key_list, name="keys"),
    path("keys/<uuid:key_id>/delete", keys.delete_key, name="delete-key"),
    path("models", models_page.model_list, name="models"),
    path("aliases", aliases.alias_list, name="aliases"),
    path("aliases/<uuid:alias_id>", aliases.alias_detail, name="alias"),
    path("aliases/<uuid:alias_id>/delete", aliases.delete_alias, name="delete-alias"),
    path("notifications", notifications.notifications, name="notifications"),
    path("members", members.member_list, name="members"),
    path("members/<int:membership_id>", members.member_detail, name="member"),
    path("members/<int:membership_id>/remove", members.remove_member, name="remove-member"),
    path("members/invitations/<uuid:invitation_id>", invitations.change_invitation, name="change-invitation"),
    path("invitations/<str:signed>", invitations.open_invitation, name="invitation"),
]
