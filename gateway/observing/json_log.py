"""Writes log lines as JSON (LOG_FORMAT=json). gunicorn's master imports this before gevent's patching."""

import logging
from datetime import UTC, datetime

import orjson


class JsonFormatter(logging.Formatter):
    """Writes each record as one line of JSON, with the record's `fields` among its own."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        } | getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()
