from django.contrib.admin.apps import AdminConfig


class OperatorAdminConfig(AdminConfig):
    """Makes `admin.site` an OperatorSite."""

    default_site = "gateway.pages.admin_site.OperatorSite"
