"""Is a site of Django's with allauth's identity provider, for the test of single sign-on in a browser."""
