"""Task errors contain no secrets, and the driver extracts their message."""

from __future__ import annotations

import pytest

from servicebus_pair.spark.base.redaction import Redaction, SparkTaskError, redact_errors, task_error_message


def test_task_error_has_no_secret_and_no_cause():
    redaction = Redaction()
    redaction.add_secret("canary")
    redaction.add_secret("canary-4f1d0c6be2")
    with pytest.raises(SparkTaskError) as caught, redact_errors(redaction):
        raise OSError("cannot reach it with canary-4f1d0c6be2 or SharedAccessKey=another;")
    assert str(caught.value) == "OSError: cannot reach it with *** or SharedAccessKey=***;"
    assert caught.value.__suppress_context__
    with pytest.raises(SparkTaskError) as again, redact_errors(redaction):
        raise caught.value
    assert str(again.value) == str(caught.value), "the error is not wrapped twice"


def test_message_is_extracted_from_the_error_of_spark():
    task = "Job aborted:\nTraceback\n  File\nservicebus_pair.spark.base.redaction.SparkTaskError: no queue\n\tat x.y"
    assert task_error_message(RuntimeError(task)) == "no queue"
    assert task_error_message(RuntimeError("\n[SOMETHING_ELSE] of Spark\nand more")) == "[SOMETHING_ELSE] of Spark"
