"""The dashboard's doors."""

from django.contrib.auth import views
from django.urls import path

urlpatterns = [
    path("login", views.LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout", views.LogoutView.as_view(), name="logout"),
]
