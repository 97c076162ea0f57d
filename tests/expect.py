"""What tests expect of errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from regard.errors import RegardError


def error_of(act: Callable[..., Any], *arguments: Any, **values: Any) -> RegardError:
    """The error of a call, or of reading all that it gives: three parts, none of them empty."""
    with pytest.raises(RegardError) as caught:
        result = act(*arguments, **values)
        if isinstance(result, Iterator):
            list(result)
    assert all(part.strip() for part in (caught.value.what, caught.value.why, caught.value.fix))
    return caught.value
