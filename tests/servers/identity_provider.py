"""Plays an identity provider (OpenID Connect) that a test can make answer wrongly, in a thread of the tests."""

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import requests
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT, SECRET = "gateway", "the-secret-of-the-client"
Claims = dict[str, Any]


class IdentityProvider:
    """Signs in one person, `claims`, whoever asks. The other attributes are faults that a test switches on."""

    def __init__(self) -> None:
        self.key, self.other_key = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.reset()

    def reset(self) -> None:
        """Ends all faults, and forgets what was asked."""
        self.claims: dict[str, Any] = {"sub": "1", "email": "ada@acme.example", "email_verified": True}
        self.of_token: Claims = {}  # replaces claims of the ID token only; None removes one
        self.discovery: Claims = {}  # replaces what the discovery document says
        self.signs_with, self.algorithm = self.key, "RS256"
        self.answer: tuple[int, bytes] | None = None  # of the token address
        self.asked: list[dict[str, str]] = []  # the queries of sign-ins
        self.posted: list[dict[str, str]] = []  # the forms that the token address got
        self._codes: dict[str, dict[str, str]] = {}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def let_in(self, address: str) -> str:
        """Follows a redirect to the provider as a browser does, and returns the address that it leads back to."""
        reply = requests.get(address, allow_redirects=False, timeout=5)
        assert reply.status_code == 302, reply.text
        return reply.headers["Location"]

    def _authorize(self, query: dict[str, str]) -> str:
        self.asked.append(query)
        code = secrets.token_urlsafe(16)
        self._codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def _redeem(self, form: dict[str, str]) -> tuple[int, bytes]:
        self.posted.append(form)
        if self.answer is not None:
            return self.answer
        asked = self._codes.pop(form["code"], None)
        proof = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        if asked is None or asked["code_challenge"] != proof or form["client_secret"] != SECRET:
            return 400, b'{"error": "invalid_grant"}'
        now = int(time.time())
        token: Claims = {"iss": self.origin, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": asked["nonce"]}
        token = {name: value for name, value in (token | self.claims | self.of_token).items() if value is not None}
        signed = jwt.encode(token, self.signs_with, self.algorithm, headers={"kid": "one"})
        return 200, json.dumps({"access_token": "a", "token_type": "Bearer", "id_token": signed}).encode()

    def _document(self) -> Claims:
        found = {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "jwks_uri": f"{self.origin}/keys",
            "userinfo_endpoint": f"{self.origin}/userinfo",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }
        merged: Claims = {**found, **self.discovery}
        return {name: value for name, value in merged.items() if value is not None}

    def _keys(self) -> Claims:
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [public | {"kid": "one", "use": "sig", "alg": "RS256"}]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self
        documents: dict[str, Callable[[], Claims]] = {
            "/.well-known/openid-configuration": self._document,
            "/keys": self._keys,
            "/userinfo": lambda: self.claims,
        }

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                address = urlsplit(self.path)
                if address.path == "/authorize":
                    self._send(302, b"", Location=provider._authorize(_flat(address.query)))
                elif address.path in documents:
                    self._send(200, json.dumps(documents[address.path]()).encode())
                else:
                    self._send(404, b"{}")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._send(*provider._redeem(_flat(body.decode())))

            def _send(self, status: int, body: bytes, **headers: str) -> None:
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_args: object) -> None: ...

        return Handler


def _flat(query: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(query).items()}
