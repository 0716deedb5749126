from django.db import models

from gateway.ids import generation_id


class Checkpoint(models.Model):
    """Holds what an open stream has delivered so far (`frozen`), as it would be settled if its worker died now.

    The worker's beat renews it, settling removes it, and a sweep claims it once it is no longer renewed.
    """

    id = models.UUIDField(primary_key=True, editable=False)  # the generation's id
    frozen = models.TextField()
    beat_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return generation_id(self.id)
