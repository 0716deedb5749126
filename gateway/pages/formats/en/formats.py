"""Times in the admin: to the second, as ledgers need them, with their zone. Django finds this by its path."""

DATETIME_FORMAT = "j M Y, H:i:s e"
