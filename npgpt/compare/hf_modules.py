"""Where transformers computes the stations: its modules, which hooks watch at work.

Stations have the names of transformers' modules, so a table of names per architecture is enough to
find them. Three are no module's output: scores and weights are what the softmax reads and gives,
and a Llama's queries and keys come out of a function that turns them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any, NamedTuple
from unittest import mock

from npgpt.compare.activations import GRAD, Stations
from npgpt.models.bert.families import FAMILIES as BERTS
from npgpt.models.bert.families import Family
from npgpt.models.llama.families import FAMILIES as LLAMAS
from npgpt.models.llama.families import Experts


class Attention(NamedTuple):
    """One attention of a layer."""

    module: str
    q: str  # the modules within that project
    k: str
    v: str
    out: str  # the module of the layer that reads the heads, side by side
    station: str = ""  # what its stations belong to, where that is another module


class Stack(NamedTuple):
    """Layers one after the other."""

    embed: str  # the station of what the first layer reads
    layers: str  # the module that lists them
    outputs: tuple[str, ...]  # those modules of a layer whose outputs are stations
    attentions: tuple[Attention, ...]
    inputs: tuple[tuple[str, str], ...] = ()  # (module, the station that it reads)
    router: str = ""  # the module that chooses experts, in those layers that have some


class Names(NamedTuple):
    """One class of transformers."""

    cls: str
    stacks: tuple[Stack, ...]
    last: tuple[str, ...] = ()  # the module behind the layers whose output is a station
    spare: tuple[str, ...] = ()  # prefixes of parameters that npgpt does not have
    experts: Experts | None = None  # what checkpoints call those that transformers 5 stacks


PROJECTIONS = ("q_proj", "k_proj", "v_proj")
SELF_ATTN = Attention("self_attn", *PROJECTIONS, "self_attn.out_proj")
ENCODER_ATTN = Attention("encoder_attn", *PROJECTIONS, "encoder_attn.out_proj")
FFN = ("fc1", "activation_fn", "fc2")
SEQ2SEQ_STACKS = (
    Stack(
        "encoder.embed",
        "encoder.layers",
        ("self_attn", "self_attn_layer_norm", *FFN),
        (SELF_ATTN,),
    ),
    Stack(
        "decoder.embed",
        "decoder.layers",
        ("self_attn", "self_attn_layer_norm", "encoder_attn", "encoder_attn_layer_norm", *FFN),
        (SELF_ATTN, ENCODER_ATTN),
    ),
)
GPT2_STACK = Stack(
    "embed",
    "h",
    ("ln_1", "attn", "ln_2", "mlp.c_fc", "mlp.act", "mlp"),
    (Attention("attn", "c_attn", "c_attn", "c_attn", "attn.c_proj"),),
)
GPT_NEO_STACK = GPT2_STACK._replace(
    attentions=(Attention("attn.attention", *PROJECTIONS, "attn.attention.out_proj", "attn"),)
)
LLAMA_STACK = Stack(
    "embed",
    "layers",
    (
        *("input_layernorm", "self_attn", "post_attention_layernorm"),
        *("mlp.gate_proj", "mlp.act_fn", "mlp.up_proj", "mlp"),
    ),
    (Attention("self_attn", *PROJECTIONS, "self_attn.o_proj"),),
    (("mlp.down_proj", "mlp.gated"),),
    "mlp.gate",
)
NAMES = {
    "gpt2": Names("GPT2LMHeadModel", (GPT2_STACK,), last=("ln_f",)),
    "gpt_neo": Names("GPTNeoForCausalLM", (GPT_NEO_STACK,), last=("ln_f",)),
    **{
        kind: Names(family.cls, (LLAMA_STACK,), last=("norm",), experts=family.experts)
        for kind, family in LLAMAS.items()
    },
    "bart": Names("BartForConditionalGeneration", SEQ2SEQ_STACKS),
    "marian": Names(
        "MarianMTModel",
        SEQ2SEQ_STACKS,
        spare=("model.encoder.embed_positions.", "model.decoder.embed_positions."),
    ),
}


def names_of(model_type: str, params: Collection[str]) -> Names:
    """The class that has the same parts as a model of npgpt with these parameters."""
    if model_type in BERTS:
        return _names_of_bert(BERTS[model_type], params)
    if model_type == "bart" and "shared.weight" not in params:
        return NAMES["bart"]._replace(spare=("model.shared.",))  # each side has a table of its own
    return NAMES[model_type]


def _names_of_bert(family: Family, params: Collection[str]) -> Names:
    parts = family.parts
    projections = (parts.query, parts.key, parts.value)
    q, k, v = (name.removeprefix(f"{parts.attention}.") for name in projections)
    stack = Stack(
        "embed",
        family.layers,
        (parts.out, parts.attn_norm, parts.wide, parts.activation, parts.narrow),
        (Attention(parts.attention, q, k, v, parts.out),),
    )
    last = ("pooler",) if "pooler.dense.weight" in params else ()
    if family.bias not in params:
        return Names(f"{family.cls}Model", (stack,), last, () if last else ("pooler.",))
    if last and family.cls == "Bert":  # the others have no class with both
        return Names("BertForPreTraining", (stack,), last, ("cls.seq_relationship.",))
    return Names(f"{family.cls}ForMaskedLM", (stack,))


Shape = Callable[[Any], Any]  # from a tensor of transformers', or its gradient, to the station's


class Seen:
    """The tensors of a pass by station; their gradients once there has been a backward pass."""

    def __init__(self) -> None:
        self._tensors: dict[str, tuple[Any, Shape]] = {}

    def note(
        self, name: str, tensor: Any, shape: Shape = lambda tensor: tensor, *, batched: bool = True
    ) -> None:
        """Keep a tensor, which has a batch of one in front unless told otherwise."""
        if tensor.requires_grad:
            tensor.retain_grad()
        self._tensors[name] = tensor, (lambda x: shape(x.detach()[0])) if batched else shape

    def stations(self) -> Stations:
        """The stations as arrays."""
        return {name: bare(x).detach().numpy() for name, (x, bare) in self._tensors.items()}

    def gradients(self) -> Stations:
        """The gradient at each station on which the loss depends."""
        return {
            GRAD + name: bare(x.grad).numpy()
            for name, (x, bare) in self._tensors.items()
            if x.grad is not None
        }


@contextmanager
def watched(model: Any, names: Names) -> Iterator[Seen]:
    """The stations of the passes in here."""
    import torch

    seen, now = Seen(), [""]  # the attention that is at work; a router has a softmax, too

    def note_softmax(scores: Any, *args: Any, **options: Any) -> Any:
        probs = softmax(scores, *args, **options)
        for name, table in (("scores", scores), ("probs", probs)) if now[0] else ():
            seen.note(f"{now[0]}.{name}", table, lambda x: x.reshape(-1, *x.shape[-2:]))
        return probs

    def note_turned(*args: Any, **options: Any) -> Any:
        turned = turn(*args, **options)  # type: ignore[misc]
        for name, heads in zip("qk", turned, strict=True):
            seen.note(f"{now[0]}.{name}", heads)
        return turned

    softmax = torch.nn.functional.softmax
    code: Any = import_module(type(model).__module__)
    turn = getattr(code, "apply_rotary_pos_emb", None)
    with ExitStack() as stack:
        for handle in _hooks(model, names, seen, now, turned=turn is not None):
            stack.callback(handle.remove)
        stack.enter_context(mock.patch.object(torch.nn.functional, "softmax", note_softmax))
        if turn is not None:
            stack.enter_context(mock.patch.object(code, "apply_rotary_pos_emb", note_turned))
        yield seen


def _hooks(model: Any, names: Names, seen: Seen, now: list[str], *, turned: bool) -> Iterator[Any]:
    """Hooks on all modules of the tables."""
    for stack in names.stacks:
        layers = model.base_model.get_submodule(stack.layers)
        yield _on_input(layers[0], seen, stack.embed)
        for n, layer in enumerate(layers):
            at = f"{stack.layers}.{n}"
            modules = dict(layer.named_modules())  # those of one FFN, or a router and its experts
            for part in stack.outputs:
                if part in modules:
                    yield _on_output(modules[part], seen, f"{at}.{part}")
            for part, station in stack.inputs:
                if part in modules:
                    yield _on_input(modules[part], seen, f"{at}.{station}")
            if stack.router in modules and stack.router:
                yield _on_router(modules[stack.router], seen, f"{at}.{stack.router}")
            for attention in stack.attentions:
                yield from _attention_hooks(layer, at, attention, seen, now, turned=turned)
            yield _on_output(layer, seen, at)
    for name in names.last:
        yield _on_output(model.base_model.get_submodule(name), seen, name)


def _attention_hooks(
    layer: Any, at: str, attention: Attention, seen: Seen, now: list[str], *, turned: bool
) -> Iterator[Any]:
    module = layer.get_submodule(attention.module)
    name = f"{at}.{attention.station or attention.module}"

    def enter(*_: Any) -> None:
        now[0] = name

    def leave(*_: Any) -> None:
        now[0] = ""

    yield module.register_forward_pre_hook(enter)
    yield module.register_forward_hook(leave)
    yield _on_input(layer.get_submodule(attention.out), seen, f"{name}.context")
    parts = (("q", attention.q), ("k", attention.k), ("v", attention.v))
    for place, (station, part) in enumerate(parts):
        if not turned or station == "v":
            third = place if attention.q == attention.k else None
            shape = _in_heads(_head_width(module), third)
            yield _on_output(module.get_submodule(part), seen, f"{name}.{station}", shape)


def _head_width(module: Any) -> int:
    """d_h of an attention."""
    return getattr(module, "head_dim", None) or module.attention_head_size


def _in_heads(width: int, third: int | None) -> Shape:
    """[T, H d_h] as [H, T, d_h]; of [T, 3 H d_h] one third."""

    def shape(x: Any) -> Any:
        if third is not None:
            x = x.chunk(3, dim=-1)[third]
        return x.reshape(len(x), -1, width).transpose(0, 1)

    return shape


def _on_output(module: Any, seen: Seen, name: str, shape: Shape = lambda x: x) -> Any:
    def hook(_module: Any, _inputs: Any, output: Any) -> None:
        seen.note(name, output[0] if isinstance(output, tuple) else output, shape)

    return module.register_forward_hook(hook)


def _on_input(module: Any, seen: Seen, name: str) -> Any:
    def hook(_module: Any, inputs: Any) -> None:
        seen.note(name, inputs[0])

    return module.register_forward_pre_hook(hook)


def _on_router(module: Any, seen: Seen, name: str) -> Any:
    """Its scores; the weights of the experts chosen, between zeros for all others."""

    def hook(_module: Any, _inputs: Any, output: Any) -> None:
        scores, weights, chosen = output
        block = name.rpartition(".")[0]
        seen.note(name, scores, batched=False)
        spread = lambda w: w.new_zeros(scores.shape).scatter(-1, chosen, w)  # noqa: E731
        seen.note(f"{block}.weights", weights, spread, batched=False)

    return module.register_forward_hook(hook)


def one_by_one(name: str, array: Any, experts: Experts) -> dict[str, Any]:
    """What transformers 5 stacks for all experts, as matrices [in, out] with a checkpoint's names.

    Any other parameter stays as it is, but for the name of the block's module.
    """
    block, _, of_mlp = name.partition(".mlp.")
    at, (gate, up, down) = f"{block}.{experts.part}", experts.matrices
    if of_mlp == "gate.weight":
        return {f"{at}.{of_mlp}": array}
    if of_mlp not in ("experts.gate_up_proj", "experts.down_proj"):
        return {name: array}
    named: dict[str, Any] = {}
    for e, W in enumerate(array.swapaxes(1, 2)):  # [E, out, in]
        half = W.shape[1] // 2
        parts = {gate: W[:, :half], up: W[:, half:]} if "gate" in of_mlp else {down: W}
        named |= {f"{at}.experts.{e}.{kind}.weight": part for kind, part in parts.items()}
    return named
