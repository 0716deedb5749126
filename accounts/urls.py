"""Routes the endpoints on an account's members and its audit log."""

from django.urls import re_path

from . import people_api

urlpatterns = [
    re_path(r"^members/?$", people_api.Members.as_view()),
    re_path(r"^members/(?P<person_id>[^/]+)/?$", people_api.OneMember.as_view()),
    re_path(r"^invitations/?$", people_api.Invitations.as_view()),
    re_path(r"^audit/?$", people_api.Audit.as_view()),
]
