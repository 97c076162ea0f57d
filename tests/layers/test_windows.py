"""Attention in shifted windows against its definition by coordinates, pair by pair."""

import itertools
import math

import pytest
import torch
from torch.nn import functional as F

from regard.layers.block import Block
from regard.layers.context import Context
from regard.layers.windows import WindowAttention
from regard.settings import ModelSettings

B, D, H = 2, 12, 3
GRIDS = [
    ((8, 8), 4),
    ((8, 12), 4),
    ((6, 9), 3),
    ((10, 5), 5),
    ((4, 8), 4),  # as high as the window: shifted to the right only, or not at all
    ((12, 2), 4),  # narrower than the window: shifted down only, or smaller windows
    ((3, 3), 7),  # one window, smaller than the table is made for
    ((4, 4), 4),
    ((1, 6), 2),
    ((3, 2), 1),
]


def settings(**changes) -> ModelSettings:
    return ModelSettings(**{"width": D, "heads": H, "feedforward": 24, "positions": "none", "dropout": 0.0} | changes)


def context(patches: int) -> Context:
    return Context.build(None, torch.arange(patches)[None], causal=False)


def attention_of(
    grid: tuple[int, int], window: int, shifted: bool, narrow: str = "square", **changes
) -> WindowAttention:
    """In double precision, with a table that matters."""
    attention = WindowAttention(settings(**changes), grid, window, shifted, narrow).double()
    with torch.no_grad():
        attention.table.normal_()
    return attention


def piece(place: int, side: int, window: int, shifted: bool) -> int:
    """Which window a row or column lies in. Unrolled, shifted windows are those of a grid that starts earlier."""
    if window >= side:
        return 0
    return (place - (window // 2 if shifted else 0)) // window


def together(grid: tuple[int, int], window: int, shifted: bool, narrow: str = "square") -> torch.Tensor:
    """True where two patches share a window: [T, T]."""
    if narrow == "square" and min(grid) <= window:
        window, shifted = min(grid), False
    pieces = [
        (piece(row, grid[0], window, shifted), piece(column, grid[1], window, shifted))
        for row, column in itertools.product(range(grid[0]), range(grid[1]))
    ]
    return torch.tensor([[one == other for other in pieces] for one in pieces])


def by_definition(
    attention: WindowAttention, x, grid: tuple[int, int], window: int, shifted: bool, narrow: str = "square"
):
    """Softmax over all patches of the grid, with the bias of each pair looked up by the difference of coordinates."""
    places = list(itertools.product(range(grid[0]), range(grid[1])))
    table = attention.table.view(2 * window - 1, 2 * window - 1, H)
    allowed = together(grid, window, shifted, narrow)
    scores = torch.full((H, len(places), len(places)), -torch.inf, dtype=x.dtype)
    for i, (row, column) in enumerate(places):
        for j, (other_row, other_column) in enumerate(places):
            if allowed[i, j]:
                scores[:, i, j] = table[row - other_row + window - 1, column - other_column + window - 1]
    q, k, v = (part.view(B, len(places), H, -1).transpose(1, 2) for part in attention.to_qkv(x).split(D, dim=-1))
    q, k = attention.query_norm(q), attention.key_norm(k)
    weights = (q @ k.transpose(2, 3) / math.sqrt(D // H) + scores).softmax(-1)
    return attention.to_out((weights @ v).transpose(1, 2).reshape(B, len(places), D))


def influences(function, patches: int) -> torch.Tensor:
    """True where the second patch has a gradient to the output of the first: [T, T]."""
    x = torch.randn(1, patches, D, dtype=torch.double, requires_grad=True)
    direction = torch.randn(D, dtype=torch.double)
    y = function(x)[0] @ direction
    rows = [torch.autograd.grad(y[i], x, retain_graph=True)[0][0].norm(dim=-1) > 1e-12 for i in range(patches)]
    return torch.stack(rows)


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize(
    ("grid", "window", "narrow"),
    [*((*each, kind) for each in GRIDS for kind in ("square", "sides")), ((3, 5), 7, "sides")],
)
def test_windows_are_what_the_coordinates_say(grid, window, narrow, shifted):
    torch.manual_seed(1)
    attention = attention_of(grid, window, shifted, narrow)
    x = torch.randn(B, grid[0] * grid[1], D, dtype=torch.double)
    expected = by_definition(attention, x, grid, window, shifted, narrow)
    torch.testing.assert_close(attention(x, context(x.shape[1])), expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("changes", [{"query_key_norm": True}, {"bias": False}])
def test_options_of_attention_keep_the_definition(changes):
    torch.manual_seed(2)
    attention = attention_of((8, 4), 4, True, **changes)
    for name, parameter in attention.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter)
    x = torch.randn(B, 32, D, dtype=torch.double)
    expected = by_definition(attention, x, (8, 4), 4, True)
    torch.testing.assert_close(attention(x, context(32)), expected, atol=1e-10, rtol=0)
    assert (attention.to_qkv.bias is None) == (attention.to_out.bias is None) == (changes.get("bias") is False)


def test_gradients_are_those_of_the_definition():
    torch.manual_seed(3)
    attention = attention_of((6, 6), 3, True)
    x = torch.randn(B, 36, D, dtype=torch.double, requires_grad=True)
    inputs = [x, *attention.parameters()]
    ours = torch.autograd.grad(attention(x, context(36)).square().sum(), inputs)
    theirs = torch.autograd.grad(by_definition(attention, x, (6, 6), 3, True).square().sum(), inputs)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-8, rtol=0)


@pytest.mark.parametrize(
    ("grid", "window", "narrow"), [((8, 8), 4, "square"), ((4, 8), 4, "sides"), ((6, 9), 3, "square")]
)
def test_the_ends_of_a_rolled_grid_do_not_meet(grid, window, narrow):
    torch.manual_seed(4)
    attention = attention_of(grid, window, shifted=True, narrow=narrow)
    patches = grid[0] * grid[1]
    seen = influences(lambda x: attention(x, context(patches)), patches)
    assert attention.shift != (0, 0)
    assert torch.equal(seen, together(grid, window, shifted=True, narrow=narrow))
    assert not seen[0, patches - 1]
    assert not seen[0, grid[1] - 1]


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("shifted", [False, True])
def test_only_the_shift_connects_windows(norm, shifted):
    torch.manual_seed(5)
    grid, window, patches = (8, 8), 4, 64
    blocks = [
        Block(settings(norm=norm), mixer=attention_of(grid, window, second)).double() for second in (False, shifted)
    ]

    def both(x):
        for block in blocks:
            x = block(x, context(patches))
        return x

    seen = influences(both, patches)
    first, second = together(grid, window, False), together(grid, window, shifted)
    assert torch.equal(seen, (second.float() @ first.float()) > 0)
    in_the_first_window, in_the_last = 3 * 8 + 3, 4 * 8 + 4  # neighbours across the corner
    assert seen[in_the_last, in_the_first_window] == shifted
    assert not seen[0, 63]


@pytest.mark.parametrize(
    ("grid", "square", "sides"),
    [
        ((8, 8), ((4, 4), (2, 2)), ((4, 4), (2, 2))),
        ((4, 8), ((4, 4), (0, 0)), ((4, 4), (0, 2))),
        ((8, 4), ((4, 4), (0, 0)), ((4, 4), (2, 0))),
        ((4, 4), ((4, 4), (0, 0)), ((4, 4), (0, 0))),
        ((2, 8), ((2, 2), (0, 0)), ((2, 4), (0, 2))),
        ((2, 2), ((2, 2), (0, 0)), ((2, 2), (0, 0))),
    ],
)
def test_where_a_side_is_no_longer_than_a_window(grid, square, sides):
    found = [attention_of(grid, 4, True, narrow) for narrow in ("square", "sides")]
    assert [(each.window, each.shift) for each in found] == [square, sides]


def test_the_same_weights_work_on_a_smaller_grid():
    torch.manual_seed(6)
    large, small = attention_of((8, 8), 4, False), attention_of((2, 3), 4, False, "sides")
    small.load_state_dict(large.state_dict())
    # Patches of the small window, where they lie in the large one.
    places = [row * 4 + column for row in range(2) for column in range(3)]
    expected = large.bias()[0][:, places][:, :, places]
    assert torch.equal(small.bias()[0], expected)


def test_an_image_does_not_depend_on_the_others_of_its_batch():
    torch.manual_seed(7)
    attention = attention_of((8, 8), 4, True)
    x = torch.randn(3, 64, D, dtype=torch.double)
    alone = torch.cat([attention(x[i : i + 1], context(64)) for i in range(3)])
    torch.testing.assert_close(attention(x, context(64)), alone, atol=1e-12, rtol=0)


def test_attention_dropout_acts_in_training_only():
    torch.manual_seed(8)
    attention = attention_of((8, 8), 4, True, attention_dropout=0.5)
    x = torch.randn(B, 64, D, dtype=torch.double)
    assert not torch.equal(attention(x, context(64)), attention(x, context(64)))
    attention.eval()
    assert torch.equal(attention(x, context(64)), attention(x, context(64)))


def test_half_precision_is_close_to_full():
    torch.manual_seed(9)
    attention = WindowAttention(settings(query_key_norm=True), (8, 8), 4, shifted=True)
    x = torch.randn(B, 64, D)
    with torch.autocast("cpu", torch.bfloat16):
        half = attention(x, context(64))
        F.mse_loss(half.float(), torch.zeros_like(x)).backward()
    torch.testing.assert_close(half.float(), attention(x, context(64)), atol=0.03, rtol=0)
    assert attention.table.grad.isfinite().all()
    assert attention.table.grad.abs().max() > 0
