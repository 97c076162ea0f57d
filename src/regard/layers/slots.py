"""Slots: a fixed number of places for texts that are decoded side by side, each at its own position.

A text enters a free slot and leaves it when it is done, while others go on; no tensor changes its shape or its place
in memory. So a step can be captured in a CUDA graph, and what is computed for a text does not depend on which others
are decoded beside it.

The hypotheses of a text are never moved either. Position l of beam k is computed in row k and stays there; when
another beam takes over the beginning of that one, only a table of origins is changed: `origins[b, k, l]` is the row
that holds position l of what is now beam k.

Instead of beams, a slot may have rows for several positions of its text that are fed at once: the next token, and what
is guessed to follow it. Each sees those before it. The keys of a wrong guess lie behind where the text goes on; they
are overwritten before anyone looks there.

Shapes: B slots · K beams of a slot · A of its positions fed at once (K or A is 1) · N = B · K · A rows · H heads ·
        G key and value heads · E positions held · L longest text · S source positions · X texts that enter ·
        T of their positions
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from regard.layers.attention import Attention


class Places:
    """Where every text stands, and in which row each of its positions is found."""

    def __init__(self, slots: int, beams: int, length: int, device: torch.device, at_once: int = 1):
        """`at_once`: successive positions of every text that are fed together, without beams."""
        assert beams == 1 or at_once == 1
        self.slots, self.beams, self.length, self.at_once = slots, beams, length, at_once
        self.held = length + at_once - 1  # guesses may go beyond the longest text, though nobody reads them there
        # Every text stands below it: what lies behind is not looked at. But how far one looks shows in the last bits:
        # it stays at `held` where a text is to be the same in any company.
        self.reach = self.held
        self.offset_A = torch.arange(at_once, device=device)
        self.positions_N = self.offset_A.repeat(slots * beams)
        self.beam_K = torch.arange(beams, device=device)
        self.slot_N = torch.arange(slots * beams * at_once, device=device) // (beams * at_once)
        self.origins_BKL = torch.zeros(slots, beams, length, dtype=torch.int32, device=device) if beams > 1 else None
        self.known: dict[tuple[str, int], Tensor] = {}  # of this step, for all blocks

    def enter(self, slots_X: Tensor, positions_X: Tensor) -> None:
        """These slots hold new texts, that have so many positions behind them."""
        self.positions_N.view(self.slots, -1)[slots_X] = positions_X[:, None] + self.offset_A
        if self.origins_BKL is not None:
            self.origins_BKL.index_fill_(0, slots_X, 0)  # a number that is put there by index would be copied to a GPU
        self.known.clear()

    def advance(self, by_B: Tensor, from_BK: Tensor | None) -> None:
        """So many positions further, 0 where a slot is done; beam k goes on from what was beam `from_BK[k]`."""
        if self.origins_BKL is not None and from_BK is not None:
            at_BK1 = self.positions_N.view(self.slots, self.beams, 1)
            lineage_BKL = self.origins_BKL.gather(1, from_BK[:, :, None].expand_as(self.origins_BKL))
            self.origins_BKL.copy_(lineage_BKL.scatter_(2, at_BK1, from_BK[:, :, None].int()))
        self.positions_N.view(self.slots, -1).add_(by_B[:, None])
        self.known.clear()

    def mask(self, entries: int) -> Tensor:
        """True where a row may look, of keys held in `entries` places for every beam: [B, 1, K or A, E · K].

        Position l is held in place l mod `entries`. The positions of this step are held already.
        """
        if ("mask", entries) not in self.known:
            now_BA = self.positions_N.view(self.slots, -1)[:, :: self.beams]
            now_B1, newest_B1 = now_BA[:, :1], now_BA[:, -1:]
            place_E = torch.arange(min(entries, self.reach), device=now_B1.device)
            held_BE = newest_B1 - (newest_B1 - place_E) % entries  # the position in each place; below 0: none yet
            mask_BKEK = (held_BE >= 0)[:, None, :, None]
            if self.at_once > 1:
                behind_BAE = now_BA[:, :, None] - held_BE[:, None]
                window = entries - self.at_once + 1  # that one row sees
                mask_BKEK = mask_BKEK & ((behind_BAE >= 0) & (behind_BAE < window))[..., None]
            if self.origins_BKL is not None:
                held_BKE = held_BE.clamp(min=0)[:, None].expand(-1, self.beams, -1)
                origin_BKE = self.origins_BKL.gather(2, held_BKE)
                origin_BKE = torch.where(held_BKE == now_B1[:, :, None], self.beam_K[:, None].int(), origin_BKE)
                mask_BKEK = mask_BKEK & (origin_BKE[..., None] == self.beam_K)
            self.known["mask", entries] = mask_BKEK.flatten(2)[:, None]
        return self.known["mask", entries]

    def hidden(self, entries: int) -> Tensor:
        """The opposite of the mask, for one beam."""
        if ("hidden", entries) not in self.known:
            self.known["hidden", entries] = ~self.mask(entries)
        return self.known["hidden", entries]

    def newest(self, entries: int) -> Tensor:
        """Where each row puts its newest position: [N]."""
        if ("newest", entries) not in self.known:
            place_XK = (self.positions_N % entries).view(-1, self.beams) * self.beams + self.beam_K
            self.known["newest", entries] = place_XK.flatten()
        return self.known["newest", entries]


class KeySlots:
    """Keys and values of what has been decoded so far; of local attention, of the last positions only."""

    def __init__(self, attention: Attention, places: Places, window: int, like: Tensor):
        """`window`: positions that a row sees, itself included."""
        self.places, self.window = places, min(window, places.length)
        # What is fed at once must not take the places of what the first of them still sees.
        self.entries = self.window + places.at_once - 1
        shape = (places.slots, attention.key_value_heads, self.entries * places.beams)
        self.keys_BGEK = like.new_zeros(*shape, attention.key_width)
        self.values_BGEV = like.new_zeros(*shape, attention.value_width)

    def attend(self, q_NH1K: Tensor, k_NG1K: Tensor, v_NG1V: Tensor) -> Tensor:
        """Add one position to every row; what it finds in those before it and in itself: [N, H · V]."""
        if kernel := slot_kernel(q_NH1K):
            return kernel.attend_to_own(q_NH1K, k_NG1K, v_NG1V, self)
        places = self.places
        place_N = places.newest(self.entries)
        self.keys_BGEK[places.slot_N, :, place_N] = k_NG1K[:, :, 0]
        self.values_BGEV[places.slot_N, :, place_N] = v_NG1V[:, :, 0]
        used = min(self.entries, places.reach) * places.beams
        keys_BGEK, values_BGEV = self.keys_BGEK[:, :, :used], self.values_BGEV[:, :, :used]
        if places.beams * places.at_once == 1:
            return _one_query(q_NH1K, keys_BGEK, values_BGEV, places.hidden(self.entries))
        return _rows_as_queries(q_NH1K, keys_BGEK, values_BGEV, places.mask(self.entries))

    def entering(self, slots_X: Tensor, lengths_X: Tensor) -> Entering:
        return Entering(self, slots_X, lengths_X)


class Entering:
    """The state that the first positions of texts are read into: some of the slots."""

    def __init__(self, state: KeySlots, slots_X: Tensor, lengths_X: Tensor):
        self.state, self.slots_X, self.lengths_X = state, slots_X, lengths_X

    def append(self, k_XGTK: Tensor, v_XGTV: Tensor) -> None:
        """Of rows that are filled up at their end: what is kept of the filling is never looked at."""
        entries = self.state.entries
        if k_XGTK.shape[2] > entries:
            last_X1 = self.lengths_X[:, None] - 1
            held_XE = last_X1 - (last_X1 - torch.arange(entries, device=last_X1.device)) % entries
            held_X1E1 = held_XE.clamp(min=0)[:, None, :, None]
            k_XGTK, v_XGTV = (x.gather(2, held_X1E1.expand(-1, x.shape[1], -1, x.shape[3])) for x in (k_XGTK, v_XGTV))
        beams = self.state.places.beams
        for held, new in ((self.state.keys_BGEK, k_XGTK), (self.state.values_BGEV, v_XGTV)):
            # All beams find them in the row of the first.
            held.unflatten(2, (entries, beams))[:, :, : new.shape[2], 0][self.slots_X] = new


class MemorySlots:
    """Keys and values of the encoder's output: once for every text, however many beams it has."""

    def __init__(self, attention: Attention, places: Places, source_length: int, like: Tensor):
        self.places = places
        shape = (places.slots, attention.key_value_heads, source_length)
        self.keys_BGSK = like.new_zeros(*shape, attention.key_width)
        self.values_BGSV = like.new_zeros(*shape, attention.value_width)
        self.lengths_B = torch.ones(places.slots, dtype=torch.long, device=like.device)
        # True behind the end of each source
        self.hidden_B11S = torch.zeros(places.slots, 1, 1, source_length, dtype=torch.bool, device=like.device)

    def enter(self, slots_X: Tensor, k_XGSK: Tensor, v_XGSV: Tensor, lengths_X: Tensor) -> None:
        self.keys_BGSK[:, :, : k_XGSK.shape[2]][slots_X] = k_XGSK
        self.values_BGSV[:, :, : v_XGSV.shape[2]][slots_X] = v_XGSV
        self.lengths_B[slots_X] = lengths_X
        position_S = torch.arange(self.hidden_B11S.shape[-1], device=lengths_X.device)
        self.hidden_B11S[slots_X] = (position_S >= lengths_X[:, None])[:, None, None]

    def attend(self, q_NH1K: Tensor) -> Tensor:
        """What every row finds in the source: [N, H · V]."""
        if kernel := slot_kernel(q_NH1K):
            return kernel.attend_across(q_NH1K, self)
        if self.places.beams == 1:
            return _one_query(q_NH1K, self.keys_BGSK, self.values_BGSV, self.hidden_B11S)
        mask_B1KS = (~self.hidden_B11S).expand(-1, -1, self.places.beams, -1)
        return _rows_as_queries(q_NH1K, self.keys_BGSK, self.values_BGSV, mask_B1KS)


def _rows_as_queries(q_NH1K: Tensor, keys_BGEK: Tensor, values_BGEV: Tensor, mask_B1RE: Tensor) -> Tensor:
    """The R rows of a text are queries over the same keys, of which each sees its own: [N, H · V]."""
    slots, rows = mask_B1RE.shape[0], mask_B1RE.shape[2]
    q_BHRK = q_NH1K[:, :, 0].unflatten(0, (slots, rows)).transpose(1, 2)
    grouped = keys_BGEK.shape[1] != q_BHRK.shape[1]
    y_BHRV = F.scaled_dot_product_attention(q_BHRK, keys_BGEK, values_BGEV, mask_B1RE, enable_gqa=grouped)
    return y_BHRV.transpose(1, 2).flatten(0, 1).flatten(1)


def _one_query(q_BH1K: Tensor, keys_BGEK: Tensor, values_BGEV: Tensor, hidden_B11E: Tensor) -> Tensor:
    """What the one beam of every text finds: [B, H · V].

    Written out, because for one query torch shares the keys of a text between threads, by where it lies in the batch.
    """
    rows, groups, _, width = keys_BGEK.shape
    scores_BGHE = q_BH1K.reshape(rows, groups, -1, width) @ keys_BGEK.transpose(2, 3)
    weights_BGHE = scores_BGHE.mul_(width**-0.5).masked_fill_(hidden_B11E, -torch.inf).softmax(-1)
    return (weights_BGHE @ values_BGEV).flatten(1)


def slot_kernel(like: Tensor) -> Any:
    """On a GPU, the module of the kernels that go over each text's own length; else None."""
    if not like.is_cuda:
        return None
    try:
        from regard.layers import slot_attention
    except ImportError:  # torch without Triton
        return None
    return slot_attention
