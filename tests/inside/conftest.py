"""Subjects: small models with random weights, of every kind."""

from collections.abc import Callable

import pytest
import torch

from regard.inside.subject import Subject
from small_models import KINDS, make_subject


@pytest.fixture(scope="module", params=KINDS)
def subject(request) -> Subject:
    torch.manual_seed(1)
    return KINDS[request.param]()


@pytest.fixture(scope="session")
def make() -> Callable[..., Subject]:
    """A function that returns a subject, one of `KINDS` or with other settings: make("language", norm="post")."""
    return make_subject


@pytest.fixture(scope="session")
def silent() -> Callable[[Subject], Subject]:
    """A function that reduces a model of one stack to its embedding and linear head, without mixing positions."""

    def silence(subject: Subject) -> Subject:
        for block in subject.last.blocks:
            for layer in (block.mixer.to_out, block.feedforward.contract):
                for parameter in layer.parameters():
                    parameter.data.zero_()
        subject.model.trunk.norm = torch.nn.Identity()
        return subject

    return silence
