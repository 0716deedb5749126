"""Finds a word in a column of words that are separated by spaces, such as the tags of a record."""

from typing import Any

from django.db.models import CharField, Lookup


@CharField.register_lookup
class HasWord(Lookup[Any]):
    """Tells whether the column has the whole word: `filter(tags__has_word="team=search")`."""

    lookup_name = "has_word"

    def get_prep_lookup(self) -> str:
        return f" {self.rhs} "

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        # A word is looked for by removing it: `replace` is the only function for this that both databases have.
        column, column_params = self.process_lhs(compiler, connection)
        word, word_params = self.process_rhs(compiler, connection)
        padded = f"' ' || {column} || ' '"
        return f"replace({padded}, {word}, '') <> {padded}", (*column_params, *word_params, *column_params)
