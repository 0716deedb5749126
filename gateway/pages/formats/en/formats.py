"""Shows times in the admin with seconds and their zone."""

DATETIME_FORMAT = "j M Y, H:i:s e"
