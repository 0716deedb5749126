"""LOG_FORMAT=json: each log record as one line of JSON. gunicorn's master imports this before gevent has patched."""

import logging
from datetime import UTC, datetime

import orjson


class JsonFormatter(logging.Formatter):
    """`time`, `level`, `logger`, `process`, `message`, the record's own `fields`, and `traceback` where one is."""

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
