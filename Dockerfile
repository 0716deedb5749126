# There are two stages: packages are installed by their hashes in the first, and pip and its caches stay there.
FROM python:3.11-slim-bookworm AS packages
WORKDIR /app
# The packages of traces are included, because a setting may need them; `--build-arg REQUIREMENTS=requirements.txt` leaves
# them out.
ARG REQUIREMENTS=requirements-traces.txt
COPY ${REQUIREMENTS} packages.txt
RUN python -m venv .venv && .venv/bin/pip install --no-cache-dir --require-hashes -r packages.txt

FROM python:3.11-slim-bookworm
RUN useradd --uid 10001 --no-create-home --home-dir /app --shell /usr/sbin/nologin gateway && \
    install -d -o 10001 -g 10001 /var/lib/inference-gateway
WORKDIR /app
COPY --from=packages /app/.venv .venv
COPY manage.py pyproject.toml LICENSE ./
COPY accounts accounts
COPY aliases aliases
COPY billing billing
COPY catalogue catalogue
COPY dashboard dashboard
COPY demo demo
COPY docs docs
COPY gateway gateway
COPY inference inference
COPY operations operations
COPY proof proof
COPY reference reference
COPY simulator simulator
COPY static static
COPY templates templates
COPY tools/verify.py tools/
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    BIND=0.0.0.0 PORT=8000 GATEWAY_SPOOL_DIR=/var/lib/inference-gateway/spool
# The spool is the only place that the gateway writes to. Everything else may be read-only.
VOLUME /var/lib/inference-gateway
USER 10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f'http://127.0.0.1:{os.environ[\"PORT\"]}/livez', timeout=2)"]
CMD ["gunicorn", "-c", "python:gateway.gunicorn_conf", "gateway.wsgi"]
