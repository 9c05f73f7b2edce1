"""What the hub cannot give is refused in one sentence with the way out."""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from npgpt.files import hub as hub_module
from npgpt.files.hub import find_model
from tests.files.hub.stand_in import TOKEN, refusal

NEEDS_FULL_PORT = pytest.mark.skipif(sys.platform != "linux", reason="others refuse at once")


def test_an_unknown_id_is_refused(environment, hub):
    text = refusal(FileNotFoundError, "owner/unknown")
    assert f"'owner/unknown' is neither a folder here nor a repository at {hub.url}" in text


def test_a_gated_repository_is_refused(environment, hub, whole):
    hub.add("gated", whole, access="gated")
    for variables in ({}, {"HF_TOKEN": TOKEN}):
        environment(**variables)
        assert f"'gated' is gated: accept its terms at {hub.url}/gated" in refusal(OSError, "gated")


def test_an_unknown_revision_is_refused(environment, hub, whole):
    hub.add("small", whole)
    assert "'small' has no revision 'v9'" in refusal(FileNotFoundError, "small", "v9")


def test_a_wrong_token_is_refused(environment, hub, whole):
    hub.add("small", whole)
    environment(HF_TOKEN="hf_bad")
    text = refusal(OSError, "small")
    assert "401" in text
    assert "HF_TOKEN" in text


def test_a_missing_config_is_refused(environment, hub):
    hub.add("small", {"model.safetensors": b""})
    text = refusal(FileNotFoundError, "small")
    assert text.startswith("'small' has no config.json on the hub: if it has a .gguf, ")


def test_a_pickle_is_refused_and_never_asked_for(environment, hub):
    hub.add("pickled", {"config.json": b"{}", "pytorch_model.bin": b"a pickle"})
    for variables in ({}, {"HF_HUB_OFFLINE": "1"}):
        environment(**variables)
        text = refusal(FileNotFoundError, "pickled")
        assert "'pickled' has no model.safetensors" in text
        assert "convert to safetensors" in text
    assert not any("pytorch_model" in request.path for request in hub.log)


@pytest.mark.parametrize("files", ["model", "tokenizer"])
def test_offline_what_is_not_in_the_cache_is_refused(environment, hub, files):
    environment(HF_HUB_OFFLINE="1")
    text = refusal(FileNotFoundError, "small", files=(files,))
    assert "'small' is not in the cache and HF_HUB_OFFLINE is set: unset it" in text
    assert not hub.log


def test_offline_a_cache_without_the_weights_is_refused(environment, hub, whole):
    hub.add("small", {**whole, "tokenizer.json": b"{}"})
    folder = find_model("small")
    (folder / "model.safetensors").unlink()
    environment(HF_HUB_OFFLINE="1")
    assert refusal(FileNotFoundError, "small").startswith("model.safetensors of 'small' is not in")


@pytest.fixture
def full_port() -> Iterator[int]:
    """A port that answers no one: its queue is full, and what comes is dropped."""
    with socket.socket() as server, contextlib.ExitStack() as stack:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def unknown_host(*_: Any, **__: Any) -> None:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


@pytest.mark.parametrize("files", [("model",), ("tokenizer", "model")])
@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        ("http://127.0.0.1:1", "refused"),
        ("http://no-host.invalid", "Name or service not known"),
        pytest.param("http://127.0.0.1:PORT", "timed out", marks=NEEDS_FULL_PORT),
    ],
)
def test_without_a_network_the_reason_comes_at_once(
    environment, monkeypatch, full_port, endpoint, reason, files
):
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waited for a network"))
    monkeypatch.setattr(hub_module, "CONNECT_SECONDS", 0.5)
    endpoint = endpoint.replace("PORT", str(full_port))
    if "invalid" in endpoint:
        monkeypatch.setattr(socket, "getaddrinfo", unknown_host)
    environment(HF_ENDPOINT=endpoint)
    start = time.monotonic()
    text = refusal(FileNotFoundError, "small", files=files)
    assert time.monotonic() - start < 5
    first = "config.json" if files == ("model",) else "tokenizer.json"
    assert text.startswith(f"{first} of 'small' is not in the cache and {endpoint} did not give")
    assert reason in text
    assert "check the network, HF_ENDPOINT and HF_TOKEN, or name a folder." in text


def test_without_a_network_the_file_that_is_missing_is_named(environment, hub, whole):
    hub.add("small", {**whole, "tokenizer.json": b"{}"})
    folder = find_model("small", files=("tokenizer", "config"))
    environment(HF_ENDPOINT="http://127.0.0.1:1")
    assert find_model("small", files=("tokenizer", "config")) == folder
    text = refusal(FileNotFoundError, "small", files=("tokenizer", "model"))
    assert text.startswith("model.safetensors of 'small' is not in the cache")


def test_a_slow_hub_is_waited_for(environment, hub, whole, monkeypatch):
    hub.add("small", whole)
    hub.delay = 0.4
    monkeypatch.setattr(hub_module, "CONNECT_SECONDS", 0.1)
    assert (find_model("small") / "model.safetensors").is_file()


def test_an_endpoint_that_is_no_hub_is_refused(environment, hub, whole):
    hub.add("small", whole)
    environment(HF_ENDPOINT=f"{hub.url}/no/hub")
    text = refusal(FileNotFoundError, "small")
    assert f"{hub.url}/no/hub did not give it (" in text
    assert "404" in text


@pytest.mark.parametrize("number", ["ENOSPC", "EACCES"])
def test_a_cache_that_cannot_be_written_is_named(environment, monkeypatch, number):
    import huggingface_hub

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(getattr(errno, number), "the system's reason")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    text = refusal(OSError, "small")
    assert "home/hub ([Errno" in text
    assert "the system's reason" in text
    assert "set HF_HUB_CACHE" in text


def test_a_download_that_breaks_off_is_refused(environment, hub, monkeypatch):
    import huggingface_hub

    def fail(*_: Any, **__: Any) -> None:
        raise TimeoutError

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    text = refusal(OSError, "small")
    assert f"config.json of 'small' could not be downloaded from {hub.url} (TimeoutError)" in text
