"""Lists the APIs that clients speak. Each has its request, answer, stream and errors in a module (`base.WireForm`)."""

from .base import WireForm
from .chat import ChatForm
from .completions import CompletionForm
from .embeddings import EmbeddingForm
from .messages import MessagesForm
from .responses import ResponsesForm

WIRE_FORMS: tuple[WireForm, ...] = (ChatForm(), CompletionForm(), EmbeddingForm(), ResponsesForm(), MessagesForm())
