import pytest

pytest.register_assert_rewrite("tests.inference.dialects.contract")
