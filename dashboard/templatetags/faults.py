"""Finds the form of a page that was refused."""

from django import template
from django.forms import BaseForm
from django.template import Context

register = template.Library()


@register.simple_tag(takes_context=True)
def refused_form(context: Context) -> BaseForm | None:
    """Returns the form that has errors, under whatever name the view put it into the context."""
    forms = (value for layer in context.dicts for value in layer.values() if isinstance(value, BaseForm))
    return next((form for form in forms if form.errors), None)
