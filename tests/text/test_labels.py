"""Tokens made visible."""

from __future__ import annotations

import pytest

from npgpt.text.labels import labeller, visible


@pytest.mark.parametrize(
    ("token", "label"),
    [
        (b" cat", "␣cat"),
        (b"\n\n", "⏎⏎"),
        (b"\t", "⇥"),
        ("猫".encode(), "猫"),
        ("地".encode()[:2], "<E5 9C>"),
        ("地".encode()[2:], "<B0>"),
        (" 想".encode()[:3], "␣<E6 83>"),
        (b"\x9c\xb0a", "<9C B0>a"),
        ("😁".encode(), "😁"),
        ("😁".encode()[:3], "<F0 9F 98>"),
        (b"\x17", "<17>"),
        ("\u200d\u3000".encode(), "<E2 80 8D E3 80 80>"),  # no picture of their own
        ("\u0301x".encode(), "◌\u0301x"),  # an accent needs something to stand on
        (b"<E5>", "<E5>"),
        (b"", "<>"),
    ],
)
def test_every_token_can_be_seen(token, label):
    assert visible(token) == label


def test_ids_without_a_token_are_numbers():
    label = labeller({5: b" cat"})
    assert (label(5), label(50300)) == ("␣cat", "#50300")
