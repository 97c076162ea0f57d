"""Models of other libraries with the weights of one of Regard's: what the comparisons are made with.

    gpt2(model)             GPT2LMHeadModel of `transformers` for a causal language model of GPT-2's shape
    marian(model)           MarianMTModel of `transformers` for a translator of the paper's shape
    ctranslate2_of(model)   the same translator for CTranslate2, as a folder
    Plain(model)            nn.Transformer of torch for a translator of the demo's shape

Each computes the same numbers up to rounding; what differs is only how. A model of another shape is refused.
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.data.tokenizers import END, PAD, START
from regard.layers.attention import Attention
from regard.layers.block import Block
from regard.layers.positions import Learned, Sinusoidal, SinusoidalHalves, sinusoidal
from regard.models.causal import Causal
from regard.models.seq2seq import Seq2Seq


@torch.no_grad()
def gpt2(model: Causal) -> Any:
    """GPT-2 of `transformers`: pre-norm, GELU by tanh, learned positions, tied embeddings."""
    from transformers import GPT2Config, GPT2LMHeadModel

    trunk, blocks = model.trunk, [block for block in model.trunk.blocks if isinstance(block, Block)]
    positions = trunk.embedding.positions
    _must(isinstance(positions, Learned), 'model.positions = "learned"')
    _must(blocks[0].pre_norm, 'model.norm = "pre"')
    _must(trunk.embedding.scale == 1.0, "model.scale_embeddings = false")
    _must(model.to_logits.weight is trunk.embedding.table.weight, "tied embeddings")
    config = GPT2Config(
        vocab_size=model.to_logits.out_features,
        n_positions=positions.table.num_embeddings,
        n_embd=model.to_logits.in_features,
        n_layer=len(blocks),
        n_head=blocks[0].mixer.heads,
        n_inner=blocks[0].feedforward.expand.out_features,
        activation_function="gelu_new",
        layer_norm_epsilon=trunk.norm.eps,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    theirs = GPT2LMHeadModel(config).eval()
    theirs.transformer.wte.weight.copy_(trunk.embedding.table.weight)
    theirs.transformer.wpe.weight.copy_(positions.table.weight)
    theirs.transformer.ln_f.load_state_dict(trunk.norm.state_dict())
    for mine, other in zip(blocks, theirs.transformer.h, strict=True):
        other.ln_1.load_state_dict(mine.mixer_norm.state_dict())
        other.ln_2.load_state_dict(mine.feedforward_norm.state_dict())
        pairs = [
            (mine.mixer.to_qkv, other.attn.c_attn),
            (mine.mixer.to_out, other.attn.c_proj),
            (mine.feedforward.expand, other.mlp.c_fc),
            (mine.feedforward.contract, other.mlp.c_proj),
        ]
        for linear, conv in pairs:  # GPT-2 keeps its matrices the other way round
            conv.weight.copy_(linear.weight.T)
            conv.bias.copy_(linear.bias)
    return theirs.to(trunk.embedding.table.weight.device)


@torch.no_grad()
def marian(model: Seq2Seq, dropout: float = 0.0, max_positions: int = 512) -> Any:
    """Marian of `transformers`: post-norm, ReLU, sines before cosines, target embedding tied to the output."""
    from transformers import MarianConfig, MarianMTModel

    encoder, decoder = _translator_blocks(model)
    shared = model.source_embedding.table is model.target_embedding.table
    block = decoder[0]
    config = MarianConfig(
        vocab_size=model.source_embedding.table.num_embeddings,
        decoder_vocab_size=model.target_embedding.table.num_embeddings,
        max_position_embeddings=max_positions,
        encoder_layers=len(encoder),
        decoder_layers=len(decoder),
        encoder_attention_heads=block.mixer.heads,
        decoder_attention_heads=block.mixer.heads,
        encoder_ffn_dim=block.feedforward.expand.out_features,
        decoder_ffn_dim=block.feedforward.expand.out_features,
        d_model=model.to_logits.in_features,
        activation_function="relu",
        dropout=dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        scale_embedding=True,
        share_encoder_decoder_embeddings=shared,
        pad_token_id=PAD,
        decoder_start_token_id=START,
        eos_token_id=END,
        forced_eos_token_id=None,
    )
    theirs = MarianMTModel(config).eval()
    theirs.model.encoder.embed_tokens.weight.copy_(model.source_embedding.table.weight)
    theirs.model.decoder.embed_tokens.weight.copy_(model.target_embedding.table.weight)
    theirs.lm_head.weight = theirs.model.decoder.embed_tokens.weight
    if shared:
        theirs.model.shared.weight = theirs.model.encoder.embed_tokens.weight = theirs.lm_head.weight
    for side, blocks in ((theirs.model.encoder, encoder), (theirs.model.decoder, decoder)):
        for mine, other in zip(blocks, side.layers, strict=True):
            _fill_attention(other.self_attn, mine.mixer)
            other.self_attn_layer_norm.load_state_dict(mine.mixer_norm.state_dict())
            if mine.cross is not None:
                _fill_attention(other.encoder_attn, mine.cross)
                other.encoder_attn_layer_norm.load_state_dict(mine.cross_norm.state_dict())
            other.fc1.load_state_dict(mine.feedforward.expand.state_dict())
            other.fc2.load_state_dict(mine.feedforward.contract.state_dict())
            other.final_layer_norm.load_state_dict(mine.feedforward_norm.state_dict())
    return theirs.to(model.to_logits.weight.device)


def _fill_attention(theirs: nn.Module, mine: Attention) -> None:
    parts = [theirs.get_submodule(name) for name in ("q_proj", "k_proj", "v_proj")]
    weights, biases = mine.to_qkv.weight.split(mine.widths), mine.to_qkv.bias.split(mine.widths)
    for part, weight, bias in zip(parts, weights, biases, strict=True):
        part.weight.copy_(weight)
        part.bias.copy_(bias)
    theirs.get_submodule("out_proj").load_state_dict(mine.to_out.state_dict())


def ctranslate2_of(model: Seq2Seq, folder: Path, kind: str = "float32", max_positions: int = 512) -> Path:
    """The translator as CTranslate2 reads it, with weights of this kind; a token is the number of its id, as text."""
    from ctranslate2.specs import TransformerSpec, common_spec

    encoder, decoder = _translator_blocks(model)
    spec = TransformerSpec.from_config(
        (len(encoder), len(decoder)), decoder[0].mixer.heads, pre_norm=False, activation=common_spec.Activation.RELU
    )
    code = SinusoidalHalves.code(model.source_embedding.positions, torch.arange(max_positions))
    for part, embedding in ((spec.encoder, model.source_embedding), (spec.decoder, model.target_embedding)):
        table = part.embeddings[0] if isinstance(part.embeddings, list) else part.embeddings
        table.weight = _array(embedding.table.weight)
        part.scale_embeddings = True
        part.position_encodings.encodings = _array(code)
    spec.decoder.projection.weight = _array(model.to_logits.weight)
    for part, blocks in ((spec.encoder, encoder), (spec.decoder, decoder)):
        for layer, mine in zip(part.layer, blocks, strict=True):
            _set_linear(layer.self_attention.linear[0], mine.mixer.to_qkv)
            _set_linear(layer.self_attention.linear[1], mine.mixer.to_out)
            _set_norm(layer.self_attention.layer_norm, mine.mixer_norm)
            if mine.cross is not None:
                queries, rest = mine.cross.widths[0], mine.cross.to_qkv
                _set_linear(layer.attention.linear[0], rest, slice(0, queries))
                _set_linear(layer.attention.linear[1], rest, slice(queries, None))
                _set_linear(layer.attention.linear[2], mine.cross.to_out)
                _set_norm(layer.attention.layer_norm, mine.cross_norm)
            _set_linear(layer.ffn.linear_0, mine.feedforward.expand)
            _set_linear(layer.ffn.linear_1, mine.feedforward.contract)
            _set_norm(layer.ffn.layer_norm, mine.feedforward_norm)
    spec.register_source_vocabulary([str(token) for token in range(model.source_embedding.table.num_embeddings)])
    spec.register_target_vocabulary([str(token) for token in range(model.target_embedding.table.num_embeddings)])
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = str(PAD), str(START), str(END)
    spec.config.decoder_start_token = str(START)
    spec.config.add_source_bos = spec.config.add_source_eos = False  # the sentences end with <end> already
    spec.validate()
    spec.optimize(quantization=kind)
    folder.mkdir(parents=True)
    spec.save(str(folder))
    return folder


class Plain(nn.Module):
    """nn.Transformer with what it lacks, embeddings and positions: pre-norm, ReLU, one table for all."""

    @torch.no_grad()
    def __init__(self, model: Seq2Seq):
        super().__init__()
        encoder, decoder = ([block for block in side if isinstance(block, Block)] for side in _sides(model))
        block = decoder[0]
        _must(block.pre_norm, 'model.norm = "pre"')
        _must(model.to_logits.weight is model.source_embedding.table.weight, 'model.tie_embeddings = "all"')
        _must(isinstance(model.source_embedding.positions, Sinusoidal), 'model.positions = "sinusoidal"')
        _must(block.feedforward.activation is F.relu and not block.feedforward.gated, 'model.activation = "relu"')
        _must(block.dropout.p == 0, "model.dropout = 0, which nn.Transformer has in other places")
        words, width = model.to_logits.weight.shape
        self.table = nn.Embedding(words, width)
        self.table.weight.copy_(model.to_logits.weight)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # pre-norm layers have no nested tensors
            self.layers = nn.Transformer(
                width,
                block.mixer.heads,
                len(encoder),
                len(decoder),
                block.feedforward.expand.out_features,
                dropout=0.0,
                batch_first=True,
                norm_first=True,
                layer_norm_eps=model.encoder_norm.eps,
            )
        self.layers.encoder.norm.load_state_dict(model.encoder_norm.state_dict())
        self.layers.decoder.norm.load_state_dict(model.decoder_norm.state_dict())
        for blocks, layers in ((encoder, self.layers.encoder.layers), (decoder, self.layers.decoder.layers)):
            for mine, other in zip(blocks, layers, strict=True):
                attention, norms = [(other.self_attn, mine.mixer)], [mine.mixer_norm, mine.feedforward_norm]
                if mine.cross is not None:
                    attention.append((other.multihead_attn, mine.cross))
                    norms.insert(1, mine.cross_norm)
                for theirs, own in attention:
                    theirs.in_proj_weight.copy_(own.to_qkv.weight)
                    theirs.in_proj_bias.copy_(own.to_qkv.bias)
                    theirs.out_proj.load_state_dict(own.to_out.state_dict())
                for number, norm in enumerate(norms, start=1):
                    other.get_submodule(f"norm{number}").load_state_dict(norm.state_dict())
                other.linear1.load_state_dict(mine.feedforward.expand.state_dict())
                other.linear2.load_state_dict(mine.feedforward.contract.state_dict())
        self.register_buffer("code_PD", sinusoidal(torch.arange(512), width), persistent=False)
        self.to(model.to_logits.weight.device)

    def forward(self, source_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Logits of the next token at every target position: [B, T, W]."""
        padding_BS = source_BS == PAD
        causal_TT = nn.Transformer.generate_square_subsequent_mask(target_BT.shape[1], device=target_BT.device)
        x_BTD = self.layers(
            self._embed(source_BS),
            self._embed(target_BT),
            tgt_mask=causal_TT.isinf(),
            src_key_padding_mask=padding_BS,
            memory_key_padding_mask=padding_BS,
            tgt_is_causal=True,
        )
        return F.linear(x_BTD, self.table.weight)

    def _embed(self, tokens_BT: Tensor) -> Tensor:
        code_PD: Tensor = self.get_buffer("code_PD")
        return self.table(tokens_BT) * math.sqrt(self.table.embedding_dim) + code_PD[: tokens_BT.shape[1]]


def _set_linear(spec: Any, linear: nn.Linear, rows: slice = slice(None)) -> None:
    spec.weight, spec.bias = _array(linear.weight[rows]), _array(linear.bias[rows])


def _set_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> np.ndarray:
    """A copy: CTranslate2 changes its arrays in place."""
    return np.array(tensor.detach().float().cpu().numpy(), order="C", copy=True)


def _translator_blocks(model: Seq2Seq) -> tuple[list[Block], list[Block]]:
    """Of the encoder and of the decoder; refused if they are not those of Marian."""
    encoder, decoder = ([block for block in side if isinstance(block, Block)] for side in _sides(model))
    block = decoder[0]
    _must(isinstance(model.source_embedding.positions, SinusoidalHalves), 'model.positions = "sinusoidal-halves"')
    _must(not block.pre_norm, 'model.norm = "post"')
    _must(model.to_logits.weight is model.target_embedding.table.weight, "tied embeddings")
    _must(isinstance(block.mixer, Attention) and isinstance(block.cross, Attention), 'model.mixer = "attention"')
    _must(block.feedforward.activation is F.relu and not block.feedforward.gated, 'model.activation = "relu"')
    return encoder, decoder


def _sides(model: Seq2Seq) -> tuple[nn.ModuleList, nn.ModuleList]:
    return model.encoder, model.decoder


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise SystemExit(f"The peer has this shape and no other: the model needs {what}.")
