"""Times in the admin, to the second with their zone."""

DATETIME_FORMAT = "j M Y, H:i:s e"
