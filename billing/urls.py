"""Routes the endpoints on keys, credit, usage and records."""

from django.urls import re_path

from . import keys_api, operator_api, records_api, usage_api

KEY = r"(?P<key_id>[^/]+)"
ACCOUNT = r"(?P<account_id>[^/]+)"

urlpatterns = [
    re_path(r"^key/?$", keys_api.CurrentKey.as_view()),
    re_path(r"^credits/?$", keys_api.Credits.as_view()),
    re_path(r"^keys/?$", keys_api.Keys.as_view()),
    re_path(rf"^keys/{KEY}/?$", keys_api.OneKey.as_view()),
    re_path(rf"^keys/{KEY}/rotate/?$", keys_api.RotatedKey.as_view()),
    re_path(r"^ledger/?$", usage_api.Ledger.as_view()),
    re_path(r"^usage/?$", usage_api.Usage.as_view()),
    re_path(r"^operator/accounts/?$", operator_api.Accounts.as_view()),
    re_path(rf"^operator/accounts/{ACCOUNT}/?$", operator_api.OneAccount.as_view()),
    re_path(rf"^operator/accounts/{ACCOUNT}/credit/?$", operator_api.Credit.as_view()),
    re_path(r"^policies/(?P<holder>[^/]+)/?$", keys_api.Policies.as_view()),
    re_path(r"^generations/?$", records_api.Generations.as_view()),
    re_path(r"^generation/(?P<generation_id>[^/]+)/?$", records_api.GenerationDetail.as_view()),
    re_path(r"^metrics/(?P<generation_id>[^/]+)/?$", records_api.Metrics.as_view()),
]
