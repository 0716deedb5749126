"""Reads forms of pages without a browser: returns what one would send if nothing on the page were changed."""

from html.parser import HTMLParser

NOT_SENT = {"submit", "button", "file", "reset"}


class _Fields(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[str, list[str]] = {}
        self._select: str | None = None
        self._textarea: str | None = None
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        name = given.get("name")
        if "disabled" in given:
            return
        if tag == "input" and name and given.get("type") not in NOT_SENT:
            is_choice = given.get("type") in ("checkbox", "radio")
            if not is_choice or "checked" in given:
                self.sent.setdefault(name, []).append(given.get("value") or ("on" if is_choice else ""))
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select and "selected" in given:
            self.sent.setdefault(self._select, []).append(given.get("value") or "")
        elif tag == "textarea":
            self._textarea, self._text = name, ""

    def handle_data(self, data: str) -> None:
        self._text += data if self._textarea else ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self._select = None
        elif tag == "textarea" and self._textarea:
            self.sent.setdefault(self._textarea, []).append(self._text.removeprefix("\n"))
            self._textarea = None


def filled_in(html: str, form_id: str) -> dict[str, list[str]]:
    """Returns the fields of the form with this id, each with its values."""
    form = html.partition(f'id="{form_id}"')[2].partition("</form>")[0]
    fields = _Fields()
    fields.feed(form)
    assert fields.sent, f"the page has no form {form_id!r}"
    return {name: values for name, values in fields.sent.items() if "__prefix__" not in name}
