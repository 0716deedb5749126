"""Reads the settings from the environment, top to bottom; a bad value stops the start."""

import ipaddress
import math
import os
import re
import warnings
from collections.abc import Callable
from email.utils import formataddr
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

from gateway.installation import BASE_DIR, RESOURCES_DIR, SECRET_KEY_FILE, VAR_DIR

env = environ.Env()


def _read(read: Callable[[], Any], wanted: str) -> Any:
    # The error does not repeat the value: it may be a secret.
    try:
        with warnings.catch_warnings(action="ignore"):  # a warning would show a database's address with its password
            return read()
    except (ImproperlyConfigured, KeyError, OSError, ValueError):
        raise ImproperlyConfigured(wanted) from None


def _read_file() -> frozenset[str]:
    """Returns the names of the variables that the file has set; a reload removes them before it reads it again."""
    given = {*os.environ}
    file = os.environ.get("ENV_FILE")
    # django-environ ignores a missing file; the gateway would then start with the settings of a demo.
    if file:
        _read(Path(file).read_bytes, "ENV_FILE is a file that can be read.")
    _read(lambda: environ.Env.read_env(file or BASE_DIR / ".env"), "ENV_FILE is lines of NAME=value, in UTF-8.")
    return frozenset(os.environ.keys() - given)


def _positive(name: str, default: float, *, or_zero: bool = False) -> float:
    wanted = f"{name} is a number of seconds{', zero or' if or_zero else ''} above zero."
    seconds: float = _read(lambda: env.float(name, default), wanted)
    if not (seconds > 0 or (or_zero and seconds == 0)) or not math.isfinite(seconds):
        raise ImproperlyConfigured(wanted)
    return seconds


def _at_least(name: str, default: int, minimum: int, maximum: int = 2**63 - 1) -> int:
    wanted = f"{name} is a whole number from {minimum} to {maximum}."
    value: int = _read(lambda: env.int(name, default), wanted)
    if not minimum <= value <= maximum:
        raise ImproperlyConfigured(wanted)
    return value


def _rate(name: str, default: str) -> str | None:
    rate: str = env.str(name, default).strip().lower()
    if rate == "off":
        return None
    if not re.fullmatch(r"[1-9]\d{0,8}/([1-9]\d{0,5}[smhd]?|[smhd])", rate, re.ASCII):
        raise ImproperlyConfigured(f"{name} is a rate such as 1200/m (s, m, h, d; 100/5m is 100 in 5 minutes), or off.")
    return rate


def _address(name: str) -> tuple[str, int] | None:
    value: str = env.str(name, "off").strip().lower()
    if value == "off":
        return None
    found = re.fullmatch(r"([\w.-]+|\[[0-9a-f:]+\]):(\d{1,5})", value, re.ASCII)
    if found is None or not 1 <= int(found[2]) <= 65535:
        raise ImproperlyConfigured(f"{name} is host:port such as 127.0.0.1:9100, or off.")
    return found[1].strip("[]"), int(found[2])


def _is_host_or_network(text: str) -> bool:
    if re.fullmatch(r"[0-9a-f:.]+(/\d+)?", text, re.ASCII) and not text.isalnum():
        try:
            return bool(ipaddress.ip_network(text))
        except ValueError:
            return False
    return re.fullmatch(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*", text, re.ASCII) is not None


def _switch(name: str, default: str = "false") -> bool:
    # django-environ would read an unknown word as `false`.
    value: str = env.str(name, default).strip().lower() or default
    if value not in (*env.BOOLEAN_TRUE_STRINGS, "false", "off", "no", "n", "0", ""):
        raise ImproperlyConfigured(f"{name} is true or false.")
    return value in env.BOOLEAN_TRUE_STRINGS


def _one_of(name: str, default: str, *others: str) -> str:
    value: str = env.str(name, default).strip().lower()
    if value not in (default, *others):
        raise ImproperlyConfigured(f"{name} is {', '.join(others)} or {default or 'empty'}.")
    return value


def _matching(name: str, default: str, pattern: str, wanted: str) -> str:
    value: str = env.str(name, default).replace("\\n", "\n").strip()  # a file of variables has no line breaks
    if not re.fullmatch(pattern, value) or not value.replace("\n", "").isprintable():
        raise ImproperlyConfigured(f"{name} is {wanted}.")
    return value


def _logo() -> Path | None:
    wanted = "OPERATOR_LOGO is the path of an SVG or PNG file of at most 64 KiB."
    given: str = env.str("OPERATOR_LOGO", "")
    if not given:
        return None
    path = BASE_DIR / given
    content: bytes = _read(path.read_bytes, wanted)
    is_image = {".svg": b"<svg" in content, ".png": content.startswith(b"\x89PNG\r\n\x1a\n")}.get(path.suffix, False)
    if not is_image or len(content) > 64 * 1024 or not re.fullmatch(r"[\w.-]+", path.name, re.ASCII):
        raise ImproperlyConfigured(wanted)
    return path


def _file(name: str) -> Path | None:
    given: str = env.str(name, "")
    if not given:
        return None
    path = BASE_DIR / given
    _read(path.read_bytes, f"{name} is the path of a file that can be read.")
    return path


def _secret_key() -> str:
    # There is no default: anybody could know it.
    from_environment = os.environ.get("SECRET_KEY")  # django-environ would look up a name after a leading `$`
    if from_environment:
        return from_environment
    try:
        return SECRET_KEY_FILE.read_text().strip()
    except OSError:
        raise ImproperlyConfigured(
            "SECRET_KEY is not set and var/secret_key cannot be read: set one, or start with `make run`."
        ) from None


READ_FROM_FILE = _read_file()

SECRET_KEY = _secret_key()
SECRET_KEY_FALLBACKS = env.list("SECRET_KEY_FALLBACKS", default=[])
DEBUG = _switch("DEBUG")

PUBLIC_URL = env.str("PUBLIC_URL", "http://127.0.0.1:8000").rstrip("/")
if not re.fullmatch(r"https?://[\w.-]+(:\d+)?|https?://\[[0-9a-f:]+\](:\d+)?", PUBLIC_URL):
    raise ImproperlyConfigured("PUBLIC_URL is http:// or https:// with a host, and a port if it is not the usual one.")
BILLING_CONTACT_URL = env.str("BILLING_CONTACT_URL", "")  # the page where members can ask for credit
if BILLING_CONTACT_URL and not re.fullmatch(r"(https?://|mailto:)\S+", BILLING_CONTACT_URL):
    raise ImproperlyConfigured("BILLING_CONTACT_URL begins with https://, http:// or mailto:.")
ONE_ADDRESS = r"[^\s@<>]+@[^\s@<>]+"
OPERATOR_NAME = _matching(
    "OPERATOR_NAME", "Inference Gateway", r'[^\n<>@"]{1,60}', 'one line of up to 60 characters without <>@"'
)
OPERATOR_ADDRESS = _matching("OPERATOR_ADDRESS", "", r"(.{0,100}\n){0,7}.{0,100}", r"up to 8 lines, separated by \n")
OPERATOR_EMAIL = _matching("OPERATOR_EMAIL", "", f"({ONE_ADDRESS})?", "an address such as billing@example.com")
OPERATOR_VAT_ID = _matching(
    "OPERATOR_VAT_ID", "", r"([A-Za-z0-9][\w ./+*-]{0,39})?", "letters and digits, such as DE123456789"
)
OPERATOR_LOGO = _logo()
BEHIND_TLS = urlsplit(PUBLIC_URL).scheme == "https"
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = [PUBLIC_URL]

GATEWAY_FASTPATH = _one_of("GATEWAY_FASTPATH", "on", "off") == "on"  # off: uses the libraries only
GATEWAY_FIRST_BYTE_TIMEOUT = _positive("GATEWAY_FIRST_BYTE_TIMEOUT", 30.0)
GATEWAY_FIRST_BYTE_PER_1000_TOKENS = _positive("GATEWAY_FIRST_BYTE_PER_1000_TOKENS", 0.25, or_zero=True)
GATEWAY_STREAM_IDLE_TIMEOUT = _positive("GATEWAY_STREAM_IDLE_TIMEOUT", 90.0)
GATEWAY_BODY_TIMEOUT = _positive("GATEWAY_BODY_TIMEOUT", 300.0)
GATEWAY_OVERALL_TIMEOUT = _positive("GATEWAY_OVERALL_TIMEOUT", 300.0)
GATEWAY_DRAIN_TIMEOUT = _positive("GATEWAY_DRAIN_TIMEOUT", 30.0)
GATEWAY_MAX_BODY_BYTES = _at_least("GATEWAY_MAX_BODY_BYTES", 32 * 1024 * 1024, 1)
GATEWAY_MAX_BODIES_BYTES = _at_least("GATEWAY_MAX_BODIES_BYTES", 256 * 1024 * 1024, GATEWAY_MAX_BODY_BYTES)
GATEWAY_MAX_WAITING = _at_least("GATEWAY_MAX_WAITING", 256, 0)
GATEWAY_MAX_UPSTREAM_BYTES = _at_least("GATEWAY_MAX_UPSTREAM_BYTES", 64 * 1024 * 1024, 1)
GATEWAY_AGGREGATE_OVER_TOKENS = _at_least("GATEWAY_AGGREGATE_OVER_TOKENS", 64, 0)

GATEWAY_IP_RATE = _rate("GATEWAY_IP_RATE", "1200/m")
GATEWAY_KEY_RPM = _at_least("GATEWAY_KEY_RPM", 0, 0)
GATEWAY_KEY_TPM = _at_least("GATEWAY_KEY_TPM", 0, 0)
GATEWAY_ACCOUNT_CONCURRENCY = _at_least("GATEWAY_ACCOUNT_CONCURRENCY", 0, 0)
GATEWAY_EXPECTED_ANSWER_TOKENS = _at_least("GATEWAY_EXPECTED_ANSWER_TOKENS", 1000, 0)
GATEWAY_TRUSTED_PROXIES = _at_least("GATEWAY_TRUSTED_PROXIES", 0, 0, 100)
GATEWAY_OVERDRAFT_ALERT = _at_least("GATEWAY_OVERDRAFT_ALERT", 10, 0, 10**8)
GATEWAY_FAILURE_DAYS = _at_least("GATEWAY_FAILURE_DAYS", 30, 1, 3650)
RECORD_YEARS = _at_least("RECORD_YEARS", 10, 1, 100)
GATEWAY_WEBHOOK_HOSTS = [host.strip().lower() for host in env.list("GATEWAY_WEBHOOK_HOSTS", default=[])]
if not all(map(_is_host_or_network, GATEWAY_WEBHOOK_HOSTS)):
    raise ImproperlyConfigured("GATEWAY_WEBHOOK_HOSTS is names of hosts and networks, such as hooks.lan,10.1.0.0/16.")
GATEWAY_ALIAS_LIMIT = _at_least("GATEWAY_ALIAS_LIMIT", 5, 0)
GATEWAY_BILL_BROKEN_STREAMS = _switch("GATEWAY_BILL_BROKEN_STREAMS", "true")
GATEWAY_WHOLE_RECORDS = env.bool("GATEWAY_WHOLE_RECORDS", False)
GATEWAY_SPOOL_DIR = BASE_DIR / env.str("GATEWAY_SPOOL_DIR", "var/spool")

GATEWAY_AUTO_OBJECTIVE = env.str("GATEWAY_AUTO_OBJECTIVE", "carbon")
if GATEWAY_AUTO_OBJECTIVE not in ("carbon", "cost"):
    raise ImproperlyConfigured("GATEWAY_AUTO_OBJECTIVE is carbon or cost.")
GATEWAY_AUTO_FAILOVER = _switch("GATEWAY_AUTO_FAILOVER")
GATEWAY_AUTO_SKIP_DOWN = _switch("GATEWAY_AUTO_SKIP_DOWN", "true")
GATEWAY_GRID_SOURCES = list(dict.fromkeys(env.list("GATEWAY_GRID_SOURCES", default=[])))
if not {*GATEWAY_GRID_SOURCES} <= {"entsoe", "energy-charts", "carbonintensity"}:
    raise ImproperlyConfigured("GATEWAY_GRID_SOURCES is some of entsoe,energy-charts,carbonintensity.")

# The transparency log (`proof`). django-environ would look up a name after a leading `$` of the key.
LOG_KEY = os.environ.get("LOG_KEY", "").strip()
LOG_KEY_FILE = BASE_DIR / env.str("LOG_KEY_FILE", "var/log_key")
LOG_POLICY = _file("LOG_POLICY")

BIND = env.str("BIND", "127.0.0.1")
PORT = _at_least("PORT", 8000, 0, 65535)
WEB_CONCURRENCY = _at_least("WEB_CONCURRENCY", 1, 1, 1000)
METRICS_BIND = _address("METRICS_BIND")
if METRICS_BIND is not None and METRICS_BIND[1] == PORT:
    raise ImproperlyConfigured("METRICS_BIND is on another port than PORT: metrics are not public.")

# The catalogue's names of dialects. A new dialect is a line here and a module of its own.
DIALECTS = {
    "openai": "inference.dialects.openai.OpenAIDialect",
    "anthropic": "inference.dialects.anthropic.AnthropicDialect",
}

INSTALLED_APPS = [
    "allauth.account",  # before ours, which remove its pages from the admin
    "allauth.mfa",
    "allauth.usersessions",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "gateway",
    "accounts",
    "catalogue",
    "billing",
    "aliases",
    "inference",
    "dashboard",
    "operations",
    "proof",
    "reference",
    "simulator",
    "demo",
    "rest_framework",
    "gateway.pages.admin_app.OperatorAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
if (RESOURCES_DIR / "tools" / "__init__.py").is_file():  # only a checkout has it
    INSTALLED_APPS.append("tools")

# Requests for the API and probes do not go further than ApiMiddleware.
MIDDLEWARE = [
    "gateway.edge.middleware.RequestIdMiddleware",
    "gateway.edge.middleware.ApiMiddleware",
    "gateway.edge.middleware.PageMiddleware",
    "django.middleware.gzip.GZipMiddleware",  # pads answers at random, so that their lengths reveal no secret (BREACH)
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "accounts.audit.ActorMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "accounts.people_seen.PeopleSeenMiddleware",
    "accounts.second_factors.SecondFactorMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "gateway.edge.middleware.NotAllowedMiddleware",
]

ROOT_URLCONF = "gateway.urls"
WSGI_APPLICATION = "gateway.wsgi.application"
INFERENCE_ENDPOINTS = "inference.api.ENDPOINTS"  # gateway.wsgi answers these without Django's handler
DATA_UPLOAD_MAX_NUMBER_FIELDS = 10_000  # the admin's page of an account sends four for each member
DATA_UPLOAD_MAX_MEMORY_SIZE = 1024 * 1024  # of a page's form, of any content type (gateway.edge.middleware)
FILE_UPLOAD_HANDLERS: list[str] = []  # no form takes a file
APPEND_SLASH = False  # a redirect would turn an SDK's POST into a GET, so both forms are routes

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [RESOURCES_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "builtins": ["gateway.templatetags.loops", "gateway.templatetags.operator"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    # While SQLite's C code waits, every greenlet of the worker stops. So it waits briefly, and Python tries again.
    "timeout": 1.0,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
}

ENGINES = ("django.db.backends.sqlite3", "django.db.backends.postgresql")
DATABASE_TRANSACTION_POOLING = _switch("DATABASE_TRANSACTION_POOLING")


def _database(*, pool_size: int, statement_timeout_ms: int, variable: str = "DATABASE_URL") -> dict[str, Any]:
    rule = f"{variable} is sqlite:///path or postgres://user:password@host:port/name."
    database: dict[str, Any] = _read(lambda: env.db_url(variable, f"sqlite:///{VAR_DIR / 'gateway.sqlite3'}"), rule)
    if database.get("ENGINE") not in ENGINES or not database["NAME"]:
        raise ImproperlyConfigured(rule)
    if database["ENGINE"] == "django.db.backends.sqlite3":
        if not env.str("DATABASE_URL", ""):
            VAR_DIR.mkdir(exist_ok=True)
        if database["NAME"] != ":memory:":
            database["NAME"] = str(BASE_DIR / database["NAME"])
        return database | {"OPTIONS": SQLITE_OPTIONS}
    options = {
        # A pool waits longer after each failed attempt to connect. It gives up after 5 s and starts over with the
        # next request: if it tried for minutes, it would notice the database's return minutes late.
        "pool": {"min_size": 2, "max_size": pool_size, "timeout": 5.0, "reconnect_timeout": 5.0},
        "server_side_binding": True,
    }
    if DATABASE_TRANSACTION_POOLING and variable != "MIGRATE_DATABASE_URL":  # the session's state is lost
        options["prepare_threshold"] = None
    else:
        options |= {"prepare_threshold": 0, "options": f"-c statement_timeout={statement_timeout_ms}"}
    return database | {
        "ENGINE": "gateway.db.postgresql",
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": False,
        "DISABLE_SERVER_SIDE_CURSORS": DATABASE_TRANSACTION_POOLING,
        "OPTIONS": database.get("OPTIONS", {}) | options,
    }


# While a migration waits for a lock on a table, requests for that table queue up after it.
MIGRATION_LOCK_TIMEOUT = _positive("MIGRATION_LOCK_TIMEOUT", 5.0)

# Settlement has its own connections: else requests that wait for one could keep running requests from ending.
DATABASES = {
    "default": _database(pool_size=20, statement_timeout_ms=30_000),
    "settlement": _database(pool_size=8, statement_timeout_ms=5_000) | {"TEST": {"MIRROR": "default"}},
}

# Connects as the owner of the tables, past any pooler. Only `manage.py migrate` uses it.
MIGRATION_DATABASE = None
if env.str("MIGRATE_DATABASE_URL", ""):
    MIGRATION_DATABASE = _database(pool_size=4, statement_timeout_ms=30_000, variable="MIGRATE_DATABASE_URL")
    if {MIGRATION_DATABASE["ENGINE"], DATABASES["default"]["ENGINE"]} != {"gateway.db.postgresql"}:
        raise ImproperlyConfigured("MIGRATE_DATABASE_URL is postgres://…, and so must DATABASE_URL be.")

DATABASE_REPLICA_MAX_LAG = _positive("DATABASE_REPLICA_MAX_LAG", 5.0)
if env.str("DATABASE_REPLICA_URL", ""):  # statistics, lists and downloads (billing.usage.replica)
    DATABASES["replica"] = _database(pool_size=8, statement_timeout_ms=30_000, variable="DATABASE_REPLICA_URL")
    if {each["ENGINE"] for each in DATABASES.values()} != {"gateway.db.postgresql"}:
        raise ImproperlyConfigured("DATABASE_REPLICA_URL is postgres://…, and so must DATABASE_URL be.")
    DATABASES["replica"]["OPTIONS"]["target_session_attrs"] = "any"
    DATABASE_ROUTERS = ["billing.usage.replica.Router"]

CACHE_URL_RULE = "CACHE_URL is redis://host:port/number (rediss:// with TLS), or locmemcache:// for each worker alone."


def _redis_url() -> str | None:
    url: str = env.str("CACHE_URL", "locmemcache://")
    if url == "locmemcache://":
        return None
    if not re.fullmatch(r"rediss?://\S+", url):
        raise ImproperlyConfigured(CACHE_URL_RULE)
    _read(lambda: urlsplit(url).port, CACHE_URL_RULE)
    return url


SHARED_CACHE_URL = _redis_url()
CACHES = {
    "default": {
        "BACKEND": "gateway.edge.cache.SharedCounters",
        "KEY_PREFIX": "gateway",
        "OPTIONS": {"MAX_ENTRIES": 100_000},  # in a worker's memory, while Redis is away
    }
}

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_USER_MODEL = "accounts.User"
PASSWORD_HASHERS = ["accounts.passwords.ThreadedHasher"]
MIN_PASSWORD_LENGTH = 12
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}", "OPTIONS": options}
    for name, options in (
        ("UserAttributeSimilarityValidator", {}),
        ("MinimumLengthValidator", {"min_length": MIN_PASSWORD_LENGTH}),
        ("CommonPasswordValidator", {}),
        ("NumericPasswordValidator", {}),
    )
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "overview"
LOGOUT_REDIRECT_URL = "login"
PASSWORD_RESET_TIMEOUT = 3600  # seconds; people use such a mail at once

PASSWORD_SIGN_IN = _switch("PASSWORD_SIGN_IN", "true")
REQUIRE_SECOND_FACTOR = _one_of("REQUIRE_SECOND_FACTOR", "", "staff", "everyone")

# Single sign-on. django-environ would look up a name after a leading `$` of the secret.
OIDC_ISSUER = env.str("OIDC_ISSUER", "").strip()
if not re.fullmatch(r"(https://[\w.-]+|http://(localhost|127\.0\.0\.1))(:\d+)?(/[^\s?#]*)?|", OIDC_ISSUER):
    raise ImproperlyConfigured("OIDC_ISSUER is the https:// address of an identity provider, without ? and #.")
OIDC_CLIENT_ID = env.str("OIDC_CLIENT_ID", "").strip()
OIDC_CLIENT_SECRET = os.environ.get("OIDC_CLIENT_SECRET", "")
if OIDC_ISSUER and not OIDC_CLIENT_ID:
    raise ImproperlyConfigured("OIDC_CLIENT_ID is the name that the provider of OIDC_ISSUER has for the gateway.")
if OIDC_ISSUER and not OIDC_CLIENT_SECRET:
    raise ImproperlyConfigured("OIDC_CLIENT_SECRET is the secret that the provider of OIDC_ISSUER has given.")
OIDC_NAME = env.str("OIDC_NAME", "").strip() or "single sign-on"
OIDC_GROUPS_CLAIM = env.str("OIDC_GROUPS_CLAIM", "").strip() or "groups"
OIDC_GROUPS = os.environ.get("OIDC_GROUPS", "").strip()  # accounts.oidc_groups reads it
OIDC_IS_SECOND_FACTOR = _switch("OIDC_IS_SECOND_FACTOR", "true")

# django-allauth. It keeps no addresses of its own (EmailAddress has no rows): a person's address is `User.email`.
ACCOUNT_ADAPTER = "accounts.sign_in.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "none"  # invitations and resets prove an address
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_RATE_LIMITS = False  # accounts.throttle limits guesses
MFA_RATE_LIMITS = False
SOCIALACCOUNT_ADAPTER = "accounts.single_sign_on.SocialAccountAdapter"
SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"provider_class": "accounts.single_sign_on.Provider"}}
MFA_ADAPTER = "accounts.second_factors.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_RECOVERY_CODES_SHOW_ONCE = True
MFA_TOTP_ISSUER = OPERATOR_NAME
MFA_TOTP_TOLERANCE = 1  # a code also works in the 30 seconds before and after its own

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["accounts.keys.BearerAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_RENDERER_CLASSES": ["gateway.edge.responses.OrjsonRenderer"],
    "DEFAULT_PARSER_CLASSES": [],  # ControlView.json_body reads bodies
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "gateway.edge.responses.AlwaysJson",
    "DEFAULT_METADATA_CLASS": None,
    "EXCEPTION_HANDLER": "gateway.edge.exception_handler.drf_exception_handler",
    "UNAUTHENTICATED_USER": None,
}

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-gb"
USE_I18N = False
FORMAT_MODULE_PATH = "gateway.pages.formats"

STATIC_URL = "/static/"
STATICFILES_DIRS = [RESOURCES_DIR / "static"]
STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
STATICFILES_FINDERS += [
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "gateway.pages.static_files.LogoFinder",
]
WHITENOISE_ROOT = RESOURCES_DIR / "static" / "root"  # served at the root, for example /favicon.ico
WHITENOISE_USE_FINDERS = True  # serves from the source tree: no collectstatic between clone and run
WHITENOISE_MAX_AGE = 7 * 24 * 3600  # seconds; a changed file gets another address
STORAGES = {"staticfiles": {"BACKEND": "gateway.pages.static_files.VersionedFiles"}}

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BEHIND_TLS
# Browsers accept a `__Host-` cookie only from this host over TLS: other hosts of the domain cannot set one.
SESSION_COOKIE_NAME = "__Host-sessionid" if BEHIND_TLS else "sessionid"
CSRF_COOKIE_NAME = "__Host-csrftoken" if BEHIND_TLS else "csrftoken"
SESSION_COOKIE_AGE = 12 * 60 * 60  # seconds after signing in
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = (
    "Lax"  # a link in a mail opens with the session, a form on another site is sent without it
)
SECURE_SSL_REDIRECT = BEHIND_TLS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_TLS else None
SECURE_HSTS_SECONDS = 31_536_000 if BEHIND_TLS else 0
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]  # HSTS of subdomains: only the operator can decide that

EMAIL_CONFIG = _read(
    lambda: env.email_url("EMAIL_URL", "consolemail://"),
    "EMAIL_URL is consolemail:// or smtp://user:password@host:port (smtp+tls, smtp+ssl).",
)
vars().update(EMAIL_CONFIG)
NO_REPLY = formataddr((OPERATOR_NAME, f"no-reply@{urlsplit(PUBLIC_URL).hostname}"))
DEFAULT_FROM_EMAIL = SERVER_EMAIL = env.str("EMAIL_FROM", NO_REPLY)
if not re.fullmatch(rf"{ONE_ADDRESS}|[^@<>\r\n]+ <{ONE_ADDRESS}>", DEFAULT_FROM_EMAIL):
    raise ImproperlyConfigured("EMAIL_FROM is an address, or a name with the address in angle brackets.")

# The OpenTelemetry SDK reads it too, with the other OTEL_ variables (`gateway.observing.tracing`).
OTEL_EXPORTER_OTLP_ENDPOINT = env.str("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip()
if not re.fullmatch(r"(https?://[^\s/]\S*)?", OTEL_EXPORTER_OTLP_ENDPOINT):
    raise ImproperlyConfigured("OTEL_EXPORTER_OTLP_ENDPOINT is the http:// or https:// address of an OTLP collector.")
TRACES_CAN_BE_SENT = bool(OTEL_EXPORTER_OTLP_ENDPOINT) and find_spec("opentelemetry") is not None

LOG_FORMAT = _one_of("LOG_FORMAT", "plain", "json")
ACCESS_LOG = _one_of("ACCESS_LOG", "errors", "all", "off")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "plain": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"},
        "json": {"()": "gateway.observing.json_log.JsonFormatter"},
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": LOG_FORMAT}},
    "root": {"handlers": ["stderr"], "level": "INFO"},
    "loggers": {
        "django": {"handlers": [], "level": "INFO", "propagate": True},
        # A line for each 4xx adds nothing to the access log, and the path may hold a secret that a client sent.
        "django.request": {"level": "ERROR"},
        "django.security.csrf": {"level": "ERROR"},
        "django.security.DisallowedHost": {"level": "CRITICAL"},
        "fido2": {"level": "WARNING"},  # its lines name passkeys
        # The pools' attempts to reach a database that is away: the code that needs a connection logs the outage.
        "psycopg.pool": {"level": "ERROR"},
        # While a collector is away, gateway.observing.tracing logs one line at the start and one a minute.
        "opentelemetry": {"level": "CRITICAL"},
    },
}
